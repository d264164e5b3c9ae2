//! The forward pass: a scale and a shift a channel, the residual branch, the activation.

use super::tiling::{Buffer, Piece, TILE, Tiling};
use super::{
    Clamp, Gate, Open, Relu, Relu6, Statistics, check_eps, check_lens, inverse_std, rows_of,
};
use crate::error::{Result, check_len};
use crate::parallel::{for_each, rows};
use crate::simd::{Isa, dispatch};

/// `x scale + shift` with one scale and shift a channel, each `[C]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Affine<'a> {
    /// What a channel is multiplied by.
    pub scale: &'a [f32],
    /// What is then added to it.
    pub shift: &'a [f32],
}

/// What [`normalize`] adds before the activation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Residual<'a> {
    /// Nothing.
    None,
    /// `[rows, C]` as they are: the identity branch of a residual block (He et al. 2015).
    Plain(&'a [f32]),
    /// `[rows, C]` with a scale and shift of their own: the branch that ends in a norm, such as a ResNet's where it
    /// halves the image.
    Normalized(&'a [f32], Affine<'a>),
}

/// The scale and shift that batch norm comes to: `scale = weight / sqrt(var + eps)`,
/// `shift = bias - mean scale`, all `[C]`. Without `weight` it is 1, without `bias` 0.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) for a slice of another length than `scale`;
/// [`Error::Parameter`](crate::Error::Parameter) for a negative `eps`.
pub fn fold(
    statistics: Statistics<'_>,
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    scale: &mut [f32],
    shift: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "fold";
    let channels = scale.len();
    let Statistics { mean, var, eps } = statistics;
    check_lens(
        KERNEL,
        channels,
        &[("shift", shift), ("mean", mean), ("var", var)],
    )?;
    for (name, vector) in [("weight", weight), ("bias", bias)] {
        vector.map_or(Ok(()), |vector| check_len(KERNEL, name, vector, channels))?;
    }
    check_eps(KERNEL, eps)?;
    for c in 0..channels {
        let weight = weight.map_or(1.0, |weight| f64::from(weight[c]));
        let bias = bias.map_or(0.0, |bias| f64::from(bias[c]));
        let factor = f64::from(inverse_std(var[c], eps)) * weight;
        scale[c] = factor as f32;
        // With the rounded scale: what is rounded off then doesn't shift the mean.
        shift[c] = (bias - f64::from(mean[c]) * f64::from(scale[c])) as f32;
    }
    Ok(())
}

/// `y = act(x scale + shift + residual)` for `x` and `y` of `[rows, C]`.
///
/// # Errors
/// [`Error::Geometry`](crate::Error::Geometry) where `x` isn't whole rows of `channels`;
/// [`Error::Length`](crate::Error::Length) for a slice of another length.
pub fn normalize(
    channels: usize,
    x: &[f32],
    affine: Affine<'_>,
    residual: Residual<'_>,
    activation: Clamp,
    y: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "normalize";
    let count = check(KERNEL, channels, x, affine, residual)?;
    check_len(KERNEL, "y", y, x.len())?;
    let tiling = Tiling::new(channels);
    let pass = Pass {
        tiling,
        affine,
        residual,
    };
    let data = (rows(x, channels), rows(y, channels));
    for_each(count, tiling.leaf_rows(1), data, |first, (x, y)| {
        let pass = pass.starting_at(first);
        match activation {
            Clamp::None => apart::<Open>(&pass, x.data, y.data),
            Clamp::Relu => apart::<Relu>(&pass, x.data, y.data),
            Clamp::Relu6 => apart::<Relu6>(&pass, x.data, y.data),
        }
    });
    Ok(())
}

/// [`normalize`] that overwrites `x`, given as `y`, with its result.
///
/// # Errors
/// As [`normalize`].
pub fn normalize_in_place(
    channels: usize,
    affine: Affine<'_>,
    residual: Residual<'_>,
    activation: Clamp,
    y: &mut [f32],
) -> Result<()> {
    let count = check("normalize_in_place", channels, y, affine, residual)?;
    let tiling = Tiling::new(channels);
    let pass = Pass {
        tiling,
        affine,
        residual,
    };
    for_each(count, tiling.leaf_rows(1), rows(y, channels), |first, y| {
        let pass = pass.starting_at(first);
        match activation {
            Clamp::None => in_place::<Open>(&pass, y.data),
            Clamp::Relu => in_place::<Relu>(&pass, y.data),
            Clamp::Relu6 => in_place::<Relu6>(&pass, y.data),
        }
    });
    Ok(())
}

/// Checks all but `y`; gives the number of rows.
fn check(
    kernel: &'static str,
    channels: usize,
    x: &[f32],
    affine: Affine<'_>,
    residual: Residual<'_>,
) -> Result<usize> {
    let count = rows_of(kernel, x, channels)?;
    let check_affine = |Affine { scale, shift }: Affine<'_>| {
        check_lens(kernel, channels, &[("scale", scale), ("shift", shift)])
    };
    check_affine(affine)?;
    match residual {
        Residual::None => {}
        Residual::Plain(residual) => check_len(kernel, "residual", residual, x.len())?,
        Residual::Normalized(residual, affine) => {
            check_len(kernel, "residual", residual, x.len())?;
            check_affine(affine)?;
        }
    }
    Ok(count)
}

/// What a leaf needs besides the rows that it writes.
#[derive(Clone, Copy)]
struct Pass<'a> {
    tiling: Tiling,
    affine: Affine<'a>,
    /// From the leaf's first row on.
    residual: Residual<'a>,
}

impl Pass<'_> {
    fn starting_at(mut self, first: usize) -> Self {
        let start = first * self.tiling.channels;
        self.residual = match self.residual {
            Residual::None => Residual::None,
            Residual::Plain(residual) => Residual::Plain(&residual[start..]),
            Residual::Normalized(residual, affine) => {
                Residual::Normalized(&residual[start..], affine)
            }
        };
        self
    }
}

dispatch! {
    fn apart<I, G: Gate>(pass: &Pass<'_>, x: &[f32], y: &mut [f32]) {
        let mut buffers = [[0.0; TILE]; 4];
        let vectors = Vectors::new(pass, &mut buffers);
        for piece in pass.tiling.pieces(y.len()) {
            let Piece { at, len, .. } = piece;
            tile::<I, G>(piece, &vectors, pass.residual, &x[at..][..len], &mut y[at..][..len]);
        }
    }
}

dispatch! {
    fn in_place<I, G: Gate>(pass: &Pass<'_>, y: &mut [f32]) {
        let mut buffers = [[0.0; TILE]; 4];
        let vectors = Vectors::new(pass, &mut buffers);
        let mut copy = [0.0; TILE];
        for piece in pass.tiling.pieces(y.len()) {
            let Piece { at, len, .. } = piece;
            let y = &mut y[at..][..len];
            // Through the nearest cache, which costs next to nothing beside the way to memory.
            copy[..len].copy_from_slice(y);
            tile::<I, G>(piece, &vectors, pass.residual, &copy[..len], y);
        }
    }
}

/// Scales and shifts of a wide row.
struct Vectors<'a> {
    own: [&'a [f32]; 2],
    residual: [&'a [f32]; 2],
}

impl<'a> Vectors<'a> {
    #[inline(always)]
    fn new(pass: &Pass<'a>, buffers: &'a mut [Buffer; 4]) -> Self {
        let tiling = pass.tiling;
        let other = match pass.residual {
            Residual::Normalized(_, affine) => affine,
            _ => pass.affine,
        };
        let [a, b, c, d] = buffers;
        Self {
            own: [
                tiling.repeat(pass.affine.scale, a),
                tiling.repeat(pass.affine.shift, b),
            ],
            residual: [tiling.repeat(other.scale, c), tiling.repeat(other.shift, d)],
        }
    }
}

#[inline(always)]
fn tile<I: Isa, G: Gate>(
    piece: Piece,
    vectors: &Vectors<'_>,
    residual: Residual<'_>,
    x: &[f32],
    y: &mut [f32],
) {
    let Piece { at, column, len } = piece;
    let [scale, shift] = vectors.own.map(|vector| &vector[column..][..len]);
    match residual {
        Residual::None => {
            for i in 0..len {
                y[i] = G::value(I::fma(x[i], scale[i], shift[i]));
            }
        }
        Residual::Plain(residual) => {
            let residual = &residual[at..][..len];
            for i in 0..len {
                y[i] = G::value(I::fma(x[i], scale[i], shift[i]) + residual[i]);
            }
        }
        Residual::Normalized(residual, _) => {
            let residual = &residual[at..][..len];
            let [scale2, shift2] = vectors.residual.map(|vector| &vector[column..][..len]);
            for i in 0..len {
                let other = I::fma(residual[i], scale2[i], shift2[i]);
                y[i] = G::value(I::fma(x[i], scale[i], shift[i]) + other);
            }
        }
    }
}
