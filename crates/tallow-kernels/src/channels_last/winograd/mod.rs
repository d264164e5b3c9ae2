//! Winograd's convolution for 3x3 kernels, with 1.4 to 4 times fewer multiplications than its definition.
//!
//! Activations are `[N, H, W, C]`, weights and their gradients `[O, C, 3, 3]`, all contiguous. A tile of the input is
//! transformed to 16 or 36 points, 25 or 81 with stride 2, at which the convolution is a product of matrices, tiles by
//! channels with channels by filters; the products are transformed back to a tile of the output. The data gradient is the
//! same with the filters turned and transposed; the weight gradient sums products of points over all tiles.
//!
//! | file | holds |
//! |---|---|
//! | `transform`, `strided` | the matrices of the algorithms for strides 1 and 2 |
//! | `tiles`, `weights` | transforms of a tile and of a filter |
//! | `products` | products at one point |
//! | `kernels` | all of these for every SIMD level |
//! | `tiling` | where tiles lie in the images |
//! | `pack`, `correlate`, `unpacked`, `weight_gradient` | the work cut into tasks |
//!
//! The errors of single outputs are larger than those of a direct convolution, since numbers are added that cancel: on
//! normally distributed data by a factor of about 1 for [`Tile::Two`] and for both tiles with stride 2, and of 2 to 3 for
//! [`Tile::Four`] with stride 1.
//!
//! Results don't depend on the number of threads, to the bit; between SIMD levels they may. Weights have to be packed
//! and used at the same level.

mod correlate;
pub(super) mod integers;
mod kernels;
mod pack;
mod products;
mod strided;
mod tiles;
mod tiling;
mod transform;
mod unpacked;
mod weight_gradient;
mod weights;

use crate::conv::Conv2dGeometry;
use crate::error::{Error, Result, check_len};
use crate::workspace::Workspace;
use correlate::Correlation;
use kernels::Kernels;
use pack::{Filters, Packing};
use tiling::Tiling;
use transform::Sizes;
use weight_gradient::WeightGradient;

pub use super::conv::{Direction, Finish};

/// Size of the output's tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tile {
    /// F(2x2, 3x3): 16 multiplications for 4 outputs instead of 36; 25 with stride 2.
    Two,
    /// F(4x4, 3x3): 36 multiplications for 16 outputs instead of 144; 81 with stride 2.
    Four,
}

impl Tile {
    /// Rows and columns of outputs.
    pub fn outputs(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
        }
    }
}

/// Whether the algorithm can compute a convolution: 3x3, stride 1 or 2 in both dimensions, dilation 1, one group, padding
/// of at most 2.
///
/// ```
/// use tallow_kernels::channels_last::winograd;
/// use tallow_kernels::conv::Conv2dGeometry;
///
/// let body = Conv2dGeometry::new(8, 64, [56, 56], 64, [3, 3], [1, 1], [1, 1], [1, 1], 1)?;
/// assert!(winograd::suits(&body));
/// assert!(winograd::suits(&Conv2dGeometry { stride: [2, 2], ..body }));
/// assert!(!winograd::suits(&Conv2dGeometry { stride: [1, 2], ..body }));
/// # Ok::<(), tallow_kernels::Error>(())
/// ```
pub fn suits(geometry: &Conv2dGeometry) -> bool {
    geometry.kernel == [3, 3]
        && matches!(geometry.stride, [1, 1] | [2, 2])
        && geometry.dilation == [1, 1]
        && geometry.groups == 1
        && geometry.padding.iter().all(|&padding| padding <= 2)
        && geometry.check().is_ok()
}

/// Floats of the packed weights, at the SIMD level in force.
pub fn packed_len(geometry: &Conv2dGeometry, direction: Direction, tile: Tile) -> usize {
    Packing::new(geometry, direction, tile).len()
}

/// Transforms the weights `w: [O, C, 3, 3]` to what [`forward`] or [`backward_input`] multiplies with.
///
/// `packed` holds [`packed_len`] floats, best on a cache line as a [`Workspace`]'s buffers are.
///
/// # Errors
/// [`Error::Geometry`] where the geometry doesn't [suit](suits), and [`Error::Length`] where a slice doesn't fit it.
pub fn pack(
    geometry: &Conv2dGeometry,
    direction: Direction,
    tile: Tile,
    w: &[f32],
    packed: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "winograd_pack";
    let packing = Packing::new(geometry, direction, tile);
    check_geometry(KERNEL, geometry)?;
    check_len(KERNEL, "w", w, weight_len(geometry))?;
    check_len(KERNEL, "packed", packed, packing.len())?;
    packing.pack(w, packed);
    Ok(())
}

/// `y = clamp(conv2d(x, w) + bias + residual)`, as `torch.nn.functional.conv2d`, with the weights [packed](pack) for
/// [`Direction::Forward`].
///
/// `x: [N, H, W, C]`, `y: [N, H', W', O]`.
///
/// # Errors
/// As for [`pack`].
///
/// ```
/// use tallow_kernels::channels_last::winograd::{self, Direction, Finish, Tile};
/// use tallow_kernels::conv::Conv2dGeometry;
/// use tallow_kernels::workspace::Workspace;
///
/// let geometry = Conv2dGeometry::new(1, 1, [4, 4], 1, [3, 3], [1, 1], [0, 0], [1, 1], 1)?;
/// let mut w = [0.0; 9];
/// w[4] = 2.0;
/// let mut packed = vec![0.0; winograd::packed_len(&geometry, Direction::Forward, Tile::Two)];
/// winograd::pack(&geometry, Direction::Forward, Tile::Two, &w, &mut packed)?;
/// let x: Vec<f32> = (0..16).map(|i| i as f32).collect();
/// let mut y = [0.0; 4];
/// let finish = Finish { bias: Some(&[1.0]), ..Finish::default() };
/// winograd::forward(&geometry, Tile::Two, &x, &packed, &finish, &mut y, Workspace::global())?;
/// assert_eq!(y, [11.0, 13.0, 19.0, 21.0]);
/// # Ok::<(), tallow_kernels::Error>(())
/// ```
pub fn forward(
    geometry: &Conv2dGeometry,
    tile: Tile,
    x: &[f32],
    packed: &[f32],
    finish: &Finish,
    y: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    forward_by(
        geometry,
        tile,
        x,
        Filters::Packed(packed),
        finish,
        y,
        workspace,
    )
}

/// As [`forward`] with the weights as they are, `w: [O, C, 3, 3]`: each is transformed by the task that multiplies with
/// it. For weights that are different in every call, where few tiles meet them: what is packed would lie in memory, and
/// be waited for.
///
/// # Errors
/// As for [`pack`].
pub fn forward_unpacked(
    geometry: &Conv2dGeometry,
    tile: Tile,
    x: &[f32],
    w: &[f32],
    finish: &Finish,
    y: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    forward_by(geometry, tile, x, Filters::Raw(w), finish, y, workspace)
}

fn forward_by(
    geometry: &Conv2dGeometry,
    tile: Tile,
    x: &[f32],
    filters: Filters<'_>,
    finish: &Finish,
    y: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    const KERNEL: &str = "winograd_forward";
    let packing = Packing::new(geometry, Direction::Forward, tile);
    check_geometry(KERNEL, geometry)?;
    check_len(KERNEL, "x", x, input_len(geometry))?;
    filters.check(KERNEL, geometry, &packing)?;
    check_len(KERNEL, "y", y, output_len(geometry))?;
    if let Some(bias) = finish.bias {
        check_len(KERNEL, "bias", bias, geometry.out_channels)?;
    }
    if let Some(residual) = finish.residual {
        check_len(KERNEL, "residual", residual, y.len())?;
    }
    let [inputs, outputs] = forward_tilings(geometry, &packing.algorithm.sizes);
    let correlation = Correlation {
        packing,
        inputs,
        outputs,
        source: x,
        filters,
        finish: *finish,
    };
    correlation.run(y, workspace);
    Ok(())
}

/// `dx = gradient + add`: the gradient with respect to the input of [`forward`], from `dy`, that with respect to its
/// sums, with the weights [packed](pack) for [`Direction::BackwardInput`].
///
/// `dy: [N, H', W', O]`, `add` and `dx: [N, H, W, C]`.
///
/// # Errors
/// As for [`pack`].
pub fn backward_input(
    geometry: &Conv2dGeometry,
    tile: Tile,
    packed: &[f32],
    dy: &[f32],
    add: Option<&[f32]>,
    dx: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    backward_input_by(
        geometry,
        tile,
        Filters::Packed(packed),
        dy,
        add,
        dx,
        workspace,
    )
}

/// As [`backward_input`] with the weights as they are; see [`forward_unpacked`].
///
/// # Errors
/// As for [`pack`].
pub fn backward_input_unpacked(
    geometry: &Conv2dGeometry,
    tile: Tile,
    w: &[f32],
    dy: &[f32],
    add: Option<&[f32]>,
    dx: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    backward_input_by(geometry, tile, Filters::Raw(w), dy, add, dx, workspace)
}

fn backward_input_by(
    geometry: &Conv2dGeometry,
    tile: Tile,
    filters: Filters<'_>,
    dy: &[f32],
    add: Option<&[f32]>,
    dx: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    const KERNEL: &str = "winograd_backward_input";
    let packing = Packing::new(geometry, Direction::BackwardInput, tile);
    check_geometry(KERNEL, geometry)?;
    filters.check(KERNEL, geometry, &packing)?;
    check_len(KERNEL, "dy", dy, output_len(geometry))?;
    check_len(KERNEL, "dx", dx, input_len(geometry))?;
    if let Some(add) = add {
        check_len(KERNEL, "add", add, dx.len())?;
    }
    let [inputs, outputs] = backward_tilings(geometry, &packing.algorithm.sizes);
    let correlation = Correlation {
        packing,
        inputs,
        outputs,
        source: dy,
        filters,
        finish: Finish {
            residual: add,
            ..Finish::default()
        },
    };
    correlation.run(dx, workspace);
    Ok(())
}

/// `dw: [O, C, 3, 3]`, the gradient with respect to the weight of [`forward`], summed over the batch.
///
/// `x: [N, H, W, C]`, `dy: [N, H', W', O]`.
///
/// # Errors
/// As for [`pack`].
pub fn backward_weight(
    geometry: &Conv2dGeometry,
    tile: Tile,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    const KERNEL: &str = "winograd_backward_weight";
    check_geometry(KERNEL, geometry)?;
    check_len(KERNEL, "x", x, input_len(geometry))?;
    check_len(KERNEL, "dy", dy, output_len(geometry))?;
    check_len(KERNEL, "dw", dw, weight_len(geometry))?;
    let algorithm = Kernels::current().weight_gradients(geometry, tile);
    let [inputs, outputs] = forward_tilings(geometry, &algorithm.sizes);
    let gradient = WeightGradient {
        algorithm,
        inputs,
        outputs,
        x,
        dy,
        channels: geometry.in_channels,
        filters: geometry.out_channels,
    };
    gradient.run(dw, workspace);
    Ok(())
}

/// The tiles of a convolution's input and output.
fn forward_tilings(geometry: &Conv2dGeometry, sizes: &Sizes) -> [Tiling; 2] {
    let (batch, out_size) = (geometry.batch, geometry.out_size());
    let tiles = out_size.map(|size| size.div_ceil(sizes.outputs));
    let step = geometry.stride[0] * sizes.outputs;
    [
        Tiling::new(batch, geometry.in_size, tiles, step, geometry.padding),
        Tiling::new(batch, out_size, tiles, sizes.outputs, [0, 0]),
    ]
}

/// The tiles of a convolution's output and input, read and written for the gradient.
fn backward_tilings(geometry: &Conv2dGeometry, sizes: &Sizes) -> [Tiling; 2] {
    let stride = geometry.stride[0];
    // With stride 2, tiles start at odd pixels of the padded image.
    let written_before = geometry.padding.map(|padding| match stride {
        1 => 0,
        _ => (padding + 1) % 2,
    });
    let read_before = geometry.padding.map(|padding| match stride {
        1 => 2 - padding,
        _ => usize::from(padding == 0),
    });
    let tiles =
        [0, 1].map(|axis| (geometry.in_size[axis] + written_before[axis]).div_ceil(sizes.outputs));
    let (batch, step) = (geometry.batch, sizes.outputs / stride);
    [
        Tiling::new(batch, geometry.out_size(), tiles, step, read_before),
        Tiling::new(
            batch,
            geometry.in_size,
            tiles,
            sizes.outputs,
            written_before,
        ),
    ]
}

fn input_len(geometry: &Conv2dGeometry) -> usize {
    let [height, width] = geometry.in_size;
    geometry.batch * height * width * geometry.in_channels
}

fn output_len(geometry: &Conv2dGeometry) -> usize {
    let [height, width] = geometry.out_size();
    geometry.batch * height * width * geometry.out_channels
}

pub(super) fn weight_len(geometry: &Conv2dGeometry) -> usize {
    geometry.out_channels * geometry.in_channels * weights::TAPS
}

fn check_geometry(kernel: &'static str, geometry: &Conv2dGeometry) -> Result<()> {
    geometry.check()?;
    if suits(geometry) {
        return Ok(());
    }
    Err(Error::Geometry {
        kernel,
        problem: format!(
            "kernel {:?}, stride {:?}, dilation {:?}, padding {:?} and {} groups, but Winograd's algorithm is for \
             kernel [3, 3], stride [1, 1] or [2, 2], dilation [1, 1], padding of at most 2 and one group; use the direct \
             convolution",
            geometry.kernel, geometry.stride, geometry.dilation, geometry.padding, geometry.groups
        ),
    })
}
