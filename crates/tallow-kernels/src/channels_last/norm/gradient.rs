//! The backward pass that writes the gradient of the input.

use super::tiling::{Piece, TILE, Tiling};
use super::{
    Gate, Mask, Open, Relu, Relu6, Statistics, Sums, check_lens, check_mask, check_operands,
    inverse_std, rows_of,
};
use crate::error::{Result, check_len};
use crate::parallel::{Rows, for_each, rows};
use crate::simd::{Isa, dispatch};
use crate::workspace::Workspace;

/// The gradient of batch norm in training, by its input `x` of `[rows, C]`:
/// `dx = weight / sqrt(var + eps) (g - mean(g) - xhat mean(g xhat)) + add`.
///
/// `g` is `dy` where `mask` lets it pass; it is stored in `masked` if that is given: the gradient of a residual that
/// was added before the activation. `add` is another gradient of `x`, from a branch that read it too. Without
/// `weight` it is 1.
///
/// # Errors
/// As [`backward_sums`](super::backward_sums).
pub fn backward_input(
    channels: usize,
    dy: &[f32],
    mask: Mask<'_>,
    x: &[f32],
    statistics: Statistics<'_>,
    weight: Option<&[f32]>,
    sums: Sums<'_>,
    add: Option<&[f32]>,
    dx: &mut [f32],
    masked: Option<&mut [f32]>,
    workspace: &Workspace,
) -> Result<()> {
    const KERNEL: &str = "backward_input";
    let count = check_operands(KERNEL, channels, dy, mask, x, statistics)?;
    check_training(KERNEL, channels, weight, sums)?;
    check_lens(KERNEL, x.len(), &[("dx", dx), ("add", add.unwrap_or(x))])?;
    let mut slopes = workspace.take(3 * channels);
    let slopes = Slopes::new(statistics, weight, sums, count, &mut slopes);
    let pass = Pass::new(channels, mask, Some(x), slopes, add);
    pass.run::<Training>(KERNEL, Some(dy), dx, masked)
}

/// [`backward_input`] that overwrites `dy`, given as `dx`, with its result.
///
/// # Errors
/// As [`backward_sums`](super::backward_sums).
pub fn backward_input_in_place(
    channels: usize,
    mask: Mask<'_>,
    x: &[f32],
    statistics: Statistics<'_>,
    weight: Option<&[f32]>,
    sums: Sums<'_>,
    add: Option<&[f32]>,
    dx: &mut [f32],
    masked: Option<&mut [f32]>,
    workspace: &Workspace,
) -> Result<()> {
    const KERNEL: &str = "backward_input_in_place";
    let count = check_operands(KERNEL, channels, dx, mask, x, statistics)?;
    check_training(KERNEL, channels, weight, sums)?;
    check_lens(KERNEL, x.len(), &[("add", add.unwrap_or(x))])?;
    let mut slopes = workspace.take(3 * channels);
    let slopes = Slopes::new(statistics, weight, sums, count, &mut slopes);
    let pass = Pass::new(channels, mask, Some(x), slopes, add);
    pass.run::<Training>(KERNEL, None, dx, masked)
}

/// The gradient of batch norm with statistics that are constants: `dx = g scale + add`, with the scale of
/// [`fold`](super::fold). `g`, `masked` and `add` are those of [`backward_input`].
///
/// # Errors
/// [`Error::Geometry`](crate::Error::Geometry) where `dx` isn't whole rows of `channels`;
/// [`Error::Length`](crate::Error::Length) for a slice of another length.
pub fn backward_frozen(
    channels: usize,
    dy: &[f32],
    mask: Mask<'_>,
    scale: &[f32],
    add: Option<&[f32]>,
    dx: &mut [f32],
    masked: Option<&mut [f32]>,
) -> Result<()> {
    const KERNEL: &str = "backward_frozen";
    rows_of(KERNEL, dx, channels)?;
    check_mask(KERNEL, mask, dx.len())?;
    check_lens(KERNEL, channels, &[("scale", scale)])?;
    check_lens(KERNEL, dx.len(), &[("dy", dy), ("add", add.unwrap_or(dy))])?;
    let pass = Pass::new(channels, mask, None, Slopes::constant(scale), add);
    pass.run::<Frozen>(KERNEL, Some(dy), dx, masked)
}

/// [`backward_frozen`] that overwrites `dy`, given as `dx`, with its result.
///
/// # Errors
/// As [`backward_frozen`].
pub fn backward_frozen_in_place(
    channels: usize,
    mask: Mask<'_>,
    scale: &[f32],
    add: Option<&[f32]>,
    dx: &mut [f32],
    masked: Option<&mut [f32]>,
) -> Result<()> {
    const KERNEL: &str = "backward_frozen_in_place";
    rows_of(KERNEL, dx, channels)?;
    check_mask(KERNEL, mask, dx.len())?;
    check_lens(KERNEL, channels, &[("scale", scale)])?;
    add.map_or(Ok(()), |add| check_len(KERNEL, "add", add, dx.len()))?;
    let pass = Pass::new(channels, mask, None, Slopes::constant(scale), add);
    pass.run::<Frozen>(KERNEL, None, dx, masked)
}

fn check_training(
    kernel: &'static str,
    channels: usize,
    weight: Option<&[f32]>,
    Sums { g, g_xhat }: Sums<'_>,
) -> Result<()> {
    weight.map_or(Ok(()), |weight| {
        check_len(kernel, "weight", weight, channels)
    })?;
    check_lens(
        kernel,
        channels,
        &[("sum of g", g), ("sum of g xhat", g_xhat)],
    )
}

/// `dx = of_g (g - constant - of_x (x - mean))`, one of each a channel.
#[derive(Clone, Copy)]
struct Slopes<'a> {
    of_g: &'a [f32],
    of_x: &'a [f32],
    constant: &'a [f32],
    mean: &'a [f32],
}

impl<'a> Slopes<'a> {
    fn new(
        statistics: Statistics<'a>,
        weight: Option<&[f32]>,
        sums: Sums<'_>,
        count: usize,
        scratch: &'a mut [f32],
    ) -> Self {
        let (of_g, rest) = scratch.split_at_mut(statistics.mean.len());
        let (of_x, constant) = rest.split_at_mut(of_g.len());
        let per_row = 1.0 / count.max(1) as f32;
        for c in 0..of_g.len() {
            let invstd = inverse_std(statistics.var[c], statistics.eps);
            of_g[c] = weight.map_or(invstd, |weight| weight[c] * invstd);
            of_x[c] = invstd * sums.g_xhat[c] * per_row;
            constant[c] = sums.g[c] * per_row;
        }
        Self {
            of_g,
            of_x,
            constant,
            mean: statistics.mean,
        }
    }

    fn constant(scale: &'a [f32]) -> Self {
        Self {
            of_g: scale,
            of_x: scale,
            constant: scale,
            mean: scale,
        }
    }
}

/// Whether the statistics depend on `x`, as a type.
trait Kind: Sync {
    fn gradient<I: Isa>(g: f32, x: f32, slopes: [f32; 4]) -> f32;
}

struct Training;

impl Kind for Training {
    #[inline(always)]
    fn gradient<I: Isa>(g: f32, x: f32, [of_g, of_x, constant, mean]: [f32; 4]) -> f32 {
        of_g * I::fma(mean - x, of_x, g - constant)
    }
}

struct Frozen;

impl Kind for Frozen {
    #[inline(always)]
    fn gradient<I: Isa>(g: f32, _x: f32, [of_g, _, _, _]: [f32; 4]) -> f32 {
        of_g * g
    }
}

/// What a leaf needs besides the rows that it writes.
#[derive(Clone, Copy)]
struct Pass<'a> {
    tiling: Tiling,
    mask: Mask<'a>,
    /// Where the gradient depends on it.
    x: Option<&'a [f32]>,
    slopes: Slopes<'a>,
    add: Option<&'a [f32]>,
}

impl<'a> Pass<'a> {
    fn new(
        channels: usize,
        mask: Mask<'a>,
        x: Option<&'a [f32]>,
        slopes: Slopes<'a>,
        add: Option<&'a [f32]>,
    ) -> Self {
        Self {
            tiling: Tiling::new(channels),
            mask,
            x,
            slopes,
            add,
        }
    }

    /// Without `dy`, `dx` holds it.
    fn run<K: Kind>(
        &self,
        kernel: &'static str,
        dy: Option<&[f32]>,
        dx: &mut [f32],
        masked: Option<&mut [f32]>,
    ) -> Result<()> {
        if let Some(masked) = &masked {
            check_len(kernel, "masked", masked, dx.len())?;
        }
        let channels = self.tiling.channels;
        let count = dx.len() / channels;
        let masked = masked.map(|masked| rows(masked, channels));
        let data = (rows(dx, channels), masked);
        let leaf = match self.mask {
            Mask::None => leaf::<Open, K>,
            Mask::Relu(_) => leaf::<Relu, K>,
            Mask::Relu6(_) => leaf::<Relu6, K>,
        };
        for_each(
            count,
            self.tiling.leaf_rows(1),
            data,
            |first, (dx, masked)| {
                let start = first * channels;
                let dy = dy.map(|dy| &dy[start..]);
                leaf(&self.from(start), dy, dx.data, masked);
            },
        );
        Ok(())
    }

    /// From element `start` on.
    fn from(&self, start: usize) -> Self {
        let from = |slice: &'a [f32]| &slice[start..];
        Self {
            mask: match self.mask {
                Mask::None => Mask::None,
                Mask::Relu(y) => Mask::Relu(from(y)),
                Mask::Relu6(y) => Mask::Relu6(from(y)),
            },
            x: self.x.map(from),
            add: self.add.map(from),
            ..*self
        }
    }
}

dispatch! {
    fn leaf<I, G: Gate, K: Kind>(
        pass: &Pass<'_>, dy: Option<&[f32]>, dx: &mut [f32], masked: Option<Rows<&mut [f32]>>
    ) {
        let Slopes { of_g, of_x, constant, mean } = pass.slopes;
        let mut buffers = [[0.0; TILE]; 4];
        let [a, b, c, d] = &mut buffers;
        let slopes = [
            pass.tiling.repeat(of_g, a),
            pass.tiling.repeat(of_x, b),
            pass.tiling.repeat(constant, c),
            pass.tiling.repeat(mean, d),
        ];
        let mut masked = masked.map(|rows| rows.data);
        let mut copy = [0.0; TILE];
        for Piece { at, column, len } in pass.tiling.pieces(dx.len()) {
            let dx = &mut dx[at..][..len];
            let dy = match dy {
                Some(dy) => &dy[at..][..len],
                None => {
                    // Through the nearest cache, which costs next to nothing beside the way to memory.
                    copy[..len].copy_from_slice(dx);
                    &copy[..len]
                }
            };
            let slopes = [0, 1, 2, 3].map(|i| &slopes[i][column..][..len]);
            // What a variant doesn't read is given as `dy`, which it reads anyway.
            let y = match pass.mask {
                Mask::None => dy,
                Mask::Relu(y) | Mask::Relu6(y) => &y[at..][..len],
            };
            let x = pass.x.map_or(dy, |x| &x[at..][..len]);
            let add = pass.add.map(|add| &add[at..][..len]);
            match &mut masked {
                Some(masked) => {
                    let masked = &mut masked[at..][..len];
                    mask_tile::<G>(dy, y, masked);
                    tile::<I, Open, K>(masked, y, x, slopes, add, dx);
                }
                None => tile::<I, G, K>(dy, y, x, slopes, add, dx),
            }
        }
    }
}

/// A function of its own, so that the compiler knows the slices to be apart.
#[inline(always)]
fn mask_tile<G: Gate>(dy: &[f32], y: &[f32], masked: &mut [f32]) {
    for ((masked, &dy), &y) in masked.iter_mut().zip(dy).zip(y) {
        *masked = G::gradient(y, dy);
    }
}

#[inline(always)]
fn tile<I: Isa, G: Gate, K: Kind>(
    dy: &[f32],
    y: &[f32],
    x: &[f32],
    slopes: [&[f32]; 4],
    add: Option<&[f32]>,
    dx: &mut [f32],
) {
    let len = dx.len();
    let (dy, y, x) = (&dy[..len], &y[..len], &x[..len]);
    let [of_g, of_x, constant, mean] = slopes.map(|vector| &vector[..len]);
    match add {
        None => {
            for i in 0..len {
                let slopes = [of_g[i], of_x[i], constant[i], mean[i]];
                dx[i] = K::gradient::<I>(G::gradient(y[i], dy[i]), x[i], slopes);
            }
        }
        Some(add) => {
            let add = &add[..len];
            for i in 0..len {
                let slopes = [of_g[i], of_x[i], constant[i], mean[i]];
                dx[i] = K::gradient::<I>(G::gradient(y[i], dy[i]), x[i], slopes) + add[i];
            }
        }
    }
}
