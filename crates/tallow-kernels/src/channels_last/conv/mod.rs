//! Two-dimensional convolution on `[N, H, W, C]` slices: forward, and the gradients with respect to input, weight and
//! bias, for any kernel, stride, padding, dilation and groups.
//!
//! Weights stay in the order of the model, `[O, C / groups, kh, kw]`; [`pack`] brings them into the order that the
//! kernels read, once for inference and once a step in training.
//!
//! # How it is built
//!
//! Forward and data gradient are both correlations (`correlation`): rows of the source, read where they lie through
//! tables of pointers (`rows`), times packed weights (`pack`, `product`). The weight gradient sums over pixels instead
//! (`weight_gradient`). Images of few channels, and small images of large batches, are copied first (`padded`,
//! `interleaved`). What an algorithm reads instead of the operands is a copy as well (`operands`).
//!
//! Another algorithm is another [`Algorithm`], and a branch in each function of this file.
//!
//! # Promises
//!
//! Results don't depend on the number of threads, to the bit: work is cut by shape and SIMD level alone, and every sum
//! has a fixed order. Nothing is allocated apart from what the [`Workspace`] grows by. Threads are those of the calling
//! thread's rayon pool.

mod correlation;
pub(super) mod integers;
mod interleaved;
mod operands;
mod pack;
mod padded;
mod plan;
mod product;
mod rows;
mod store;
mod strips;
mod tiles;
mod transpose;
mod weight_gradient;

use super::micro::Micro;
use super::winograd::{self, Tile};
use crate::conv::Conv2dGeometry;
use crate::error::{Result, check_len};
use crate::reduce;
use crate::workspace::Workspace;
use correlation::Correlations;
use operands::Operands;
use product::Pass;
use strips::Strips;
use weight_gradient::Gradient;

/// How a convolution is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// As it is defined: every product is computed.
    Direct,
    /// [`winograd`], for geometries that [suit](winograd::suits) it.
    Winograd(Tile),
    /// As [`Algorithm::Winograd`], with weights that [`pack`] leaves as they are: for weights that are different in every
    /// call, where few pixels meet them. See [`winograd::forward_unpacked`].
    WinogradUnpacked(Tile),
    /// As [`Algorithm::Direct`], of operands that are [rounded](crate::bf16::round) to bfloat16; products are summed in
    /// `f32`, to which bias, residual and addends are added as they are, and results are `f32`: the convolution of
    /// `torch.autocast`, less the rounding of its result.
    ///
    /// Faster where the CPU has the instructions of [`Level::Avx512Bf16`](crate::simd::Level::Avx512Bf16). Elsewhere
    /// rounding costs time, and only the numbers are those of training in bfloat16. See [`bf16`](crate::bf16) for what
    /// differs between levels.
    Bf16,
}

impl Algorithm {
    /// Whether [`pack`] brings weights into another order; otherwise they can be given as they are.
    pub fn packs(self) -> bool {
        !matches!(self, Self::WinogradUnpacked(_))
    }

    /// What the kernels of this file read.
    fn operands(self, geometry: &Conv2dGeometry, direction: Direction) -> Operands {
        match self {
            Self::Bf16 => Operands::bf16(geometry, direction),
            _ => Operands::exact(geometry, direction),
        }
    }
}

/// What weights are packed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// For [`forward`].
    Forward,
    /// For [`backward_input`].
    BackwardInput,
}

/// What [`forward`] does to a sum before it is stored: `clamp(sum + bias + residual)`.
///
/// A relu is a clamp to `[0.0, f32::INFINITY]`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Finish<'a> {
    /// `[O]`: a number for each output channel.
    pub bias: Option<&'a [f32]>,
    /// Shaped as the output.
    pub residual: Option<&'a [f32]>,
    /// At least the first, at most the second.
    pub clamp: Option<[f32; 2]>,
}

/// Length of the slice that [`pack`] fills. It depends on the SIMD level.
pub fn packed_len(geometry: &Conv2dGeometry, direction: Direction, algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::Winograd(tile) => winograd::packed_len(geometry, direction, tile),
        Algorithm::WinogradUnpacked(_) => winograd::weight_len(geometry),
        Algorithm::Direct | Algorithm::Bf16 => {
            let operands = algorithm.operands(geometry, direction);
            Correlations::new(&operands.geometry, direction).packed_len(operands.micro.columns)
        }
    }
}

/// Packs `w: [O, C / groups, kh, kw]` for one direction and algorithm.
///
/// What is packed is meant for the SIMD level in force and holds for any batch and image size, as long as neither side of
/// the image is smaller than the stride. What [`Algorithm::Bf16`] needs on the way comes from [`Workspace::global`].
///
/// # Errors
/// [`Error::Geometry`](crate::Error::Geometry) where the geometry has no output, and
/// [`Error::Length`](crate::Error::Length) where a slice doesn't fit it.
pub fn pack(
    geometry: &Conv2dGeometry,
    direction: Direction,
    algorithm: Algorithm,
    w: &[f32],
    packed: &mut [f32],
) -> Result<()> {
    if let Algorithm::Winograd(tile) = algorithm {
        return winograd::pack(geometry, direction, tile, w, packed);
    }
    const KERNEL: &str = "channels_last::conv2d_pack";
    let sizes = Sizes::new(geometry)?;
    check_len(KERNEL, "w", w, sizes.weight)?;
    check_len(
        KERNEL,
        "packed",
        packed,
        packed_len(geometry, direction, algorithm),
    )?;
    if let Algorithm::WinogradUnpacked(_) = algorithm {
        packed.copy_from_slice(w);
        return Ok(());
    }
    let operands = algorithm.operands(geometry, direction);
    let copy = operands.weights(w, Workspace::global())?;
    let correlations = Correlations::new(&operands.geometry, direction);
    let panel = operands.micro.columns;
    pack::pack(&correlations, panel, copy.as_deref().unwrap_or(w), packed);
    Ok(())
}

/// `y = clamp(conv2d(x, w) + bias + residual)`, as `torch.nn.functional.conv2d` on tensors of the memory format
/// `channels_last`.
///
/// `x: [N, H, W, C]`, `packed`: the weights, packed for [`Direction::Forward`] and the same algorithm,
/// `y: [N, H', W', O]`, which is overwritten.
///
/// # Errors
/// As [`pack`].
///
/// ```
/// use tallow_kernels::channels_last::conv::{self, Algorithm, Direction, Finish};
/// use tallow_kernels::conv::Conv2dGeometry;
/// use tallow_kernels::workspace::Workspace;
///
/// let geometry = Conv2dGeometry::new(1, 1, [3, 3], 1, [2, 2], [1, 1], [0, 0], [1, 1], 1)?;
/// let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
/// let w = [1.0, 0.0, 0.0, 1.0];
/// let mut packed = vec![0.0; conv::packed_len(&geometry, Direction::Forward, Algorithm::Direct)];
/// conv::pack(&geometry, Direction::Forward, Algorithm::Direct, &w, &mut packed)?;
/// let mut y = [0.0; 4];
/// let finish = Finish { bias: Some(&[0.5]), ..Finish::default() };
/// conv::forward(&geometry, Algorithm::Direct, &x, &packed, &finish, &mut y, Workspace::global())?;
/// assert_eq!(y, [6.5, 8.5, 12.5, 14.5]);
/// # Ok::<(), tallow_kernels::Error>(())
/// ```
pub fn forward(
    geometry: &Conv2dGeometry,
    algorithm: Algorithm,
    x: &[f32],
    packed: &[f32],
    finish: &Finish<'_>,
    y: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    match algorithm {
        Algorithm::Winograd(tile) => {
            return winograd::forward(geometry, tile, x, packed, finish, y, workspace);
        }
        Algorithm::WinogradUnpacked(tile) => {
            return winograd::forward_unpacked(geometry, tile, x, packed, finish, y, workspace);
        }
        Algorithm::Direct | Algorithm::Bf16 => {}
    }
    const KERNEL: &str = "channels_last::conv2d";
    let sizes = Sizes::new(geometry)?;
    check_len(KERNEL, "x", x, sizes.input)?;
    check_len(
        KERNEL,
        "packed",
        packed,
        packed_len(geometry, Direction::Forward, algorithm),
    )?;
    check_len(KERNEL, "y", y, sizes.output)?;
    if let Some(bias) = finish.bias {
        check_len(KERNEL, "bias", bias, geometry.out_channels)?;
    }
    if let Some(residual) = finish.residual {
        check_len(KERNEL, "residual", residual, sizes.output)?;
    }
    if algorithm == Algorithm::Direct && padded::suits(geometry) {
        let rows = padded::pad(geometry, x, workspace);
        let strips = Strips {
            correlations: Correlations::new(geometry, Direction::Forward).merge_row(),
            micro: Micro::current(),
            source: &rows,
            row: padded::row(geometry),
            pixel: geometry.in_channels,
            packed,
            finish: *finish,
        };
        strips::run(&strips, y);
        return Ok(());
    }
    let operands = algorithm.operands(geometry, Direction::Forward);
    let copy = operands.pixels(x, workspace)?;
    let x = copy.as_deref().unwrap_or(x);
    padded::with_rows(&operands.geometry, x, workspace, |correlations, source| {
        let pass = Pass {
            correlations,
            micro: operands.micro,
            source,
            packed,
            finish: *finish,
        };
        product::run(&pass, y, workspace);
    });
    Ok(())
}

/// `dx`, the gradient with respect to the input of [`forward`], from `dy`, that with respect to its sums.
///
/// `packed`: the weights, packed for [`Direction::BackwardInput`] and the same algorithm. `dx` is overwritten with the
/// gradient plus `add`, which is shaped as `dx`.
///
/// # Errors
/// As [`pack`].
pub fn backward_input(
    geometry: &Conv2dGeometry,
    algorithm: Algorithm,
    packed: &[f32],
    dy: &[f32],
    add: Option<&[f32]>,
    dx: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    match algorithm {
        Algorithm::Winograd(tile) => {
            return winograd::backward_input(geometry, tile, packed, dy, add, dx, workspace);
        }
        Algorithm::WinogradUnpacked(tile) => {
            return winograd::backward_input_unpacked(
                geometry, tile, packed, dy, add, dx, workspace,
            );
        }
        Algorithm::Direct | Algorithm::Bf16 => {}
    }
    const KERNEL: &str = "channels_last::conv2d_backward_input";
    let sizes = Sizes::new(geometry)?;
    check_len(
        KERNEL,
        "packed",
        packed,
        packed_len(geometry, Direction::BackwardInput, algorithm),
    )?;
    check_len(KERNEL, "dy", dy, sizes.output)?;
    check_len(KERNEL, "dx", dx, sizes.input)?;
    if let Some(add) = add {
        check_len(KERNEL, "add", add, sizes.input)?;
    }
    let operands = algorithm.operands(geometry, Direction::BackwardInput);
    let copy = operands.pixels(dy, workspace)?;
    let dy = copy.as_deref().unwrap_or(dy);
    let correlations = Correlations::new(&operands.geometry, Direction::BackwardInput);
    interleaved::with_rows(
        &correlations,
        dy,
        geometry.out_size(),
        workspace,
        |source| {
            let pass = Pass {
                correlations,
                micro: operands.micro,
                source,
                packed,
                finish: Finish {
                    residual: add,
                    ..Finish::default()
                },
            };
            product::run(&pass, dx, workspace);
        },
    );
    Ok(())
}

/// `dw: [O, C / groups, kh, kw]`, the gradient with respect to the weight, summed over the batch.
///
/// `dw` is overwritten.
///
/// # Errors
/// As [`pack`].
pub fn backward_weight(
    geometry: &Conv2dGeometry,
    algorithm: Algorithm,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    if let Algorithm::Winograd(tile) | Algorithm::WinogradUnpacked(tile) = algorithm {
        return winograd::backward_weight(geometry, tile, x, dy, dw, workspace);
    }
    const KERNEL: &str = "channels_last::conv2d_backward_weight";
    let sizes = Sizes::new(geometry)?;
    check_len(KERNEL, "x", x, sizes.input)?;
    check_len(KERNEL, "dy", dy, sizes.output)?;
    check_len(KERNEL, "dw", dw, sizes.weight)?;
    if geometry.batch == 0 {
        dw.fill(0.0);
        return Ok(());
    }
    let operands = algorithm.operands(geometry, Direction::Forward);
    let pixels = operands.pixels(x, workspace)?;
    let gradient = operands.gradient(dy, workspace)?;
    let x = pixels.as_deref().unwrap_or(x);
    padded::with_rows(&operands.geometry, x, workspace, |correlations, source| {
        let gradient = Gradient {
            correlations: &correlations,
            source: &source,
            dy: gradient.as_deref().unwrap_or(dy),
            micro: operands.micro,
            channels: geometry.in_channels / geometry.groups,
        };
        weight_gradient::run(gradient, dw, workspace);
    });
    Ok(())
}

/// `db: [O]`, the gradient with respect to the bias: `dy: [N, H', W', O]` summed over batch and pixels.
///
/// # Errors
/// As [`pack`].
pub fn backward_bias(geometry: &Conv2dGeometry, dy: &[f32], db: &mut [f32]) -> Result<()> {
    const KERNEL: &str = "channels_last::conv2d_backward_bias";
    let sizes = Sizes::new(geometry)?;
    check_len(KERNEL, "dy", dy, sizes.output)?;
    check_len(KERNEL, "db", db, geometry.out_channels)?;
    let pixels = dy.len() / geometry.out_channels;
    reduce::sum_axis([1, pixels, geometry.out_channels], dy, 1.0, db)
}

/// Elements of a convolution's operands.
struct Sizes {
    input: usize,
    weight: usize,
    output: usize,
}

impl Sizes {
    /// Sizes of a geometry that has an output.
    fn new(geometry: &Conv2dGeometry) -> Result<Self> {
        geometry.check()?;
        let [height, width] = geometry.in_size;
        let [out_height, out_width] = geometry.out_size();
        let filter =
            geometry.in_channels / geometry.groups * geometry.kernel[0] * geometry.kernel[1];
        Ok(Self {
            input: geometry.batch * height * width * geometry.in_channels,
            weight: geometry.out_channels * filter,
            output: geometry.batch * out_height * out_width * geometry.out_channels,
        })
    }
}
