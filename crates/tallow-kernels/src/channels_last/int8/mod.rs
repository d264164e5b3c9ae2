//! Convolutions of 8-bit weights and activations, summed exactly: what a quantized network runs.
//!
//! A value is `scale * (q - zero_point)` of a whole number `q` from 0 to 255, as of ONNX's `QuantizeLinear` and PyTorch's
//! `quint8`; weights are from -127 to 127 with a scale for each output channel. Between convolutions activations are kept as
//! the 16-bit numbers `q - zero_point`, of which two neighbouring channels lie in the place of a float, a *word*: zero is
//! zero, so that padding needs no correction, and an instruction multiplies two of them.
//!
//! Sums of products are 32-bit whole numbers. They are exact, so that neither the algorithm nor the SIMD level nor the
//! number of threads changes a bit, as long as a sum has at most [`MAX_TERMS`] terms.
//!
//! ```
//! use tallow_kernels::channels_last::int8::{self, Algorithm, Finish, Quantization, Target};
//! use tallow_kernels::conv::Conv2dGeometry;
//! use tallow_kernels::workspace::Workspace;
//!
//! let geometry = Conv2dGeometry::new(1, 2, [1, 2], 1, [1, 1], [1, 1], [0, 0], [1, 1], 1)?;
//! let input = Quantization { scale: 0.5, zero_point: 128 };
//! let mut x = [0.0; 2];
//! int8::quantize(input, 2, &[1.0, -2.0, 3.0, 0.25], &mut x)?;
//! let mut packed = vec![0.0; int8::packed_len(&geometry, Algorithm::Direct)];
//! int8::pack(&geometry, Algorithm::Direct, &[10, 20], &mut packed, Workspace::global())?;
//! // The scale of the input times that of the weights.
//! let finish = Finish { bias: Some(&[1.0]), ..Finish::new(&[0.5 * 0.1]) };
//! let mut y = [0.0; 2];
//! int8::forward(&geometry, Algorithm::Direct, &x, &packed, &finish, Target::Floats(&mut y), Workspace::global())?;
//! assert_eq!(y, [-2.0, 4.0]);
//! # Ok::<(), tallow_kernels::Error>(())
//! ```

mod finish;
mod words;

pub use finish::{Finish, Residual, Target};
pub(crate) use finish::{Sink, Sums};
pub use words::{Quantization, dequantize, quantize, words};

use super::{conv, winograd};
use crate::conv::Conv2dGeometry;
use crate::error::{Error, Result, check_len};
use crate::workspace::{Scratch, Workspace};

/// How a convolution is computed. Both ways give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// As it is defined.
    Direct,
    /// [`winograd`]'s F(2x2, 3x3) in whole numbers, for convolutions that [suit](winograd_suits) it: 16
    /// multiplications for 4 outputs instead of 36.
    Winograd,
}

/// Most products in a sum that can't overflow: channels of a group times pixels of a kernel.
pub const MAX_TERMS: usize = (i32::MAX / (255 * 127)) as usize;

/// Most channels of [`Algorithm::Winograd`]: points are up to 4 times as large as pixels, and 9 times as large as weights.
const MAX_WINOGRAD_CHANNELS: usize = (i32::MAX / (4 * 255 * 9 * 127)) as usize;

/// Whether the convolution can be computed in whole numbers: sums of at most [`MAX_TERMS`] terms, and where there are
/// groups, an even number of channels in each.
pub fn suits(geometry: &Conv2dGeometry) -> bool {
    let channels = geometry.in_channels / geometry.groups.max(1);
    let terms = channels * geometry.kernel[0] * geometry.kernel[1];
    (geometry.groups == 1 || channels.is_multiple_of(2))
        && terms <= MAX_TERMS
        && geometry.check().is_ok()
}

/// Whether [`Algorithm::Winograd`] can compute it: 3x3, stride 1, dilation 1, one group, padding of at most 2, and at most
/// some 1,800 channels.
pub fn winograd_suits(geometry: &Conv2dGeometry) -> bool {
    winograd::suits(geometry)
        && geometry.stride == [1, 1]
        && geometry.in_channels <= MAX_WINOGRAD_CHANNELS
}

/// Length of the slice that [`pack`] fills. It depends on the SIMD level.
pub fn packed_len(geometry: &Conv2dGeometry, algorithm: Algorithm) -> usize {
    let geometry = of_words(geometry);
    match algorithm {
        Algorithm::Direct => conv::integers::packed_len(&geometry),
        Algorithm::Winograd => winograd::integers::packed_len(&geometry),
    }
}

/// Packs `w: [O, C / groups, kh, kw]` for the algorithm and the SIMD level in force.
///
/// # Errors
/// [`Error::Geometry`] where the geometry doesn't [suit](suits) the algorithm, and [`Error::Length`] where a slice doesn't
/// fit it.
pub fn pack(
    geometry: &Conv2dGeometry,
    algorithm: Algorithm,
    w: &[i8],
    packed: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    const KERNEL: &str = "int8::pack";
    check_geometry(KERNEL, geometry, algorithm)?;
    let channels = geometry.in_channels / geometry.groups;
    let taps = geometry.kernel[0] * geometry.kernel[1];
    let len = geometry.out_channels * channels * taps;
    if w.len() != len {
        return Err(Error::Length {
            kernel: KERNEL,
            operand: "w",
            expected: len,
            found: w.len(),
        });
    }
    check_len(KERNEL, "packed", packed, packed_len(geometry, algorithm))?;
    let filters = word_filters(geometry, w, workspace);
    let geometry = of_words(geometry);
    match algorithm {
        Algorithm::Direct => conv::integers::pack(&geometry, &filters, packed),
        Algorithm::Winograd => winograd::integers::pack(&geometry, &filters, packed),
    }
    Ok(())
}

/// `y = clamp(scale * sum + bias + residual)`, of the sums of the convolution of `x` with the [packed](pack) weights.
///
/// `x: [N, H, W, words(C)]`, `y: [N, H', W', O]` floats or `[N, H', W', words(O)]` words.
///
/// # Errors
/// As [`pack`].
pub fn forward(
    geometry: &Conv2dGeometry,
    algorithm: Algorithm,
    x: &[f32],
    packed: &[f32],
    finish: &Finish<'_>,
    y: Target<'_>,
    workspace: &Workspace,
) -> Result<()> {
    const KERNEL: &str = "int8::forward";
    check_geometry(KERNEL, geometry, algorithm)?;
    let [height, width] = geometry.in_size;
    let pixels = geometry.batch * height * width;
    check_len(KERNEL, "x", x, pixels * words(geometry.in_channels))?;
    check_len(KERNEL, "packed", packed, packed_len(geometry, algorithm))?;
    let [height, width] = geometry.out_size();
    let (pixels, columns) = (geometry.batch * height * width, geometry.out_channels);
    finish.check(KERNEL, pixels, columns, &y)?;
    if pixels == 0 {
        return Ok(());
    }
    let shared_words = geometry.groups > 1 && !(columns / geometry.groups).is_multiple_of(2);
    let y = match y {
        Target::Words(words, quantization) if shared_words => {
            // A word would hold channels of two groups, which different tasks sum up.
            let mut floats = workspace.take(pixels * columns);
            let target = Target::Floats(&mut floats);
            forward(geometry, algorithm, x, packed, finish, target, workspace)?;
            return quantize(quantization, columns, &floats, words);
        }
        y => y,
    };
    let geometry = of_words(geometry);
    match algorithm {
        Algorithm::Direct => {
            let sink = finish.sink(columns, 1.0, y);
            conv::integers::forward(&geometry, x, packed, &sink, workspace);
        }
        Algorithm::Winograd => {
            let sink = finish.sink(columns, winograd::integers::FACTOR, y);
            winograd::integers::forward(&geometry, x, packed, &sink, workspace);
        }
    }
    Ok(())
}

/// The convolution of words: pairs of channels are one.
fn of_words(geometry: &Conv2dGeometry) -> Conv2dGeometry {
    let channels = geometry.in_channels / geometry.groups.max(1);
    Conv2dGeometry {
        in_channels: geometry.groups * words(channels),
        ..*geometry
    }
}

/// Filters of pairs, `[O, words(C / groups), kh, kw]`.
fn word_filters<'w>(
    geometry: &Conv2dGeometry,
    w: &[i8],
    workspace: &'w Workspace,
) -> Scratch<'w, f32> {
    let channels = geometry.in_channels / geometry.groups;
    let taps = geometry.kernel[0] * geometry.kernel[1];
    let mut filters = workspace.take(geometry.out_channels * words(channels) * taps);
    let filter = (channels * taps).max(1);
    let to = filters.chunks_exact_mut((words(channels) * taps).max(1));
    for (to, from) in to.zip(w.chunks_exact(filter)) {
        for (to, pair) in to.chunks_exact_mut(taps).zip(from.chunks(2 * taps)) {
            let (first, second) = pair.split_at(taps);
            for (tap, to) in to.iter_mut().enumerate() {
                let second = second.get(tap).copied().unwrap_or(0);
                *to = words::word(first[tap].into(), second.into());
            }
        }
    }
    filters
}

fn check_geometry(
    kernel: &'static str,
    geometry: &Conv2dGeometry,
    algorithm: Algorithm,
) -> Result<()> {
    geometry.check()?;
    let (suits, problem) = match algorithm {
        Algorithm::Direct => (
            suits(geometry),
            format!(
                "{} channels in {} groups and kernel {:?}, but pairs of channels need an even number in each group, and \
                 exact sums at most {MAX_TERMS} terms; compute it in floats",
                geometry.in_channels, geometry.groups, geometry.kernel
            ),
        ),
        Algorithm::Winograd => (
            winograd_suits(geometry),
            format!(
                "{} channels in {} groups, kernel {:?}, stride {:?}, dilation {:?} and padding {:?}, but Winograd's \
                 algorithm in whole numbers is for at most {MAX_WINOGRAD_CHANNELS} channels in one group, kernel [3, 3], \
                 stride and dilation [1, 1] and padding of at most 2; use `Algorithm::Direct`",
                geometry.in_channels,
                geometry.groups,
                geometry.kernel,
                geometry.stride,
                geometry.dilation,
                geometry.padding
            ),
        ),
    };
    if suits {
        return Ok(());
    }
    Err(Error::Geometry { kernel, problem })
}
