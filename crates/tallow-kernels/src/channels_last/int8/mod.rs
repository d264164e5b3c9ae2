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

use super::micro::Micro;
use super::{conv, winograd};
use crate::conv::Conv2dGeometry;
use crate::error::{Error, Result, check_len};
#[cfg(target_arch = "x86_64")]
use crate::simd::{Level, has_vnni, level};
use crate::workspace::{Scratch, Workspace};

/// How a convolution is computed. Both ways give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// As it is defined.
    Direct,
    /// [`winograd`]'s F(2x2, 3x3) in whole numbers, for convolutions that [suit](winograd_suits) it: 16
    /// multiplications for 4 outputs instead of 36.
    Winograd,
    /// As [`Algorithm::Direct`], of `q` itself, which has 8 bits, four to a word, for convolutions that
    /// [suit](fours_suit) it. Fast where the CPU [has instructions](multiplies_fours) for it.
    Fours {
        /// That of the input; by another one's results are wrong.
        zero_point: u8,
    },
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

/// Most products in a sum of `q`, of which those of the zero point are taken as a float: floats hold whole numbers so large.
const MAX_SHIFTED_TERMS: usize = (1 << f32::MANTISSA_DIGITS) / (255 * 127);

/// Whether [`Algorithm::Fours`] can compute it: one group, and where the input's zero point isn't 0 sums of at most some 500
/// terms, as an image's.
pub fn fours_suit(geometry: &Conv2dGeometry, zero_point: u8) -> bool {
    let terms = geometry.in_channels * geometry.kernel[0] * geometry.kernel[1];
    suits(geometry) && geometry.groups == 1 && (zero_point == 0 || terms <= MAX_SHIFTED_TERMS)
}

/// Whether the SIMD level in force and the CPU multiply fours of 8-bit numbers by one instruction: AVX-512 VNNI.
pub fn multiplies_fours() -> bool {
    #[cfg(target_arch = "x86_64")]
    return level() >= Level::Avx512 && has_vnni();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Length of the slice that [`pack`] fills. It depends on the SIMD level.
pub fn packed_len(geometry: &Conv2dGeometry, algorithm: Algorithm) -> usize {
    let words = of_words(geometry, algorithm);
    match algorithm {
        Algorithm::Direct => conv::integers::packed_len(&words, Micro::integers()),
        Algorithm::Fours { zero_point } => {
            let shifts = if zero_point == 0 {
                0
            } else {
                geometry.out_channels
            };
            conv::integers::packed_len(&words, Micro::fours()) + shifts
        }
        Algorithm::Winograd => winograd::integers::packed_len(&words),
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
    let words = of_words(geometry, algorithm);
    let filters = word_filters(geometry, algorithm, w, workspace);
    match algorithm {
        Algorithm::Direct => conv::integers::pack(&words, Micro::integers(), &filters, packed),
        Algorithm::Fours { zero_point } => {
            let len = conv::integers::packed_len(&words, Micro::fours());
            let (packed, shifts) = packed.split_at_mut(len);
            conv::integers::pack(&words, Micro::fours(), &filters, packed);
            let filters = w.chunks_exact((channels * taps).max(1));
            for (shift, filter) in shifts.iter_mut().zip(filters) {
                let sum: i32 = filter.iter().map(|&w| i32::from(w)).sum();
                *shift = (-i32::from(zero_point) * sum) as f32;
            }
        }
        Algorithm::Winograd => winograd::integers::pack(&words, &filters, packed),
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
    let words = of_words(geometry, algorithm);
    match algorithm {
        Algorithm::Direct => {
            let (micro, sink) = (Micro::integers(), finish.sink(columns, 1.0, y));
            conv::integers::forward(&words, micro, x, packed, &sink, workspace);
        }
        Algorithm::Fours { zero_point } => {
            let len = conv::integers::packed_len(&words, Micro::fours());
            let (packed, shifts) = packed.split_at(len);
            // Padding is the zero point, so that each output's products of it are those of all weights.
            let words = match zero_point {
                0 => words,
                _ => with_padding_inside(&words),
            };
            let mut fours = workspace.take(words.batch * words::plane(&words) * words.in_channels);
            words::narrow(zero_point, geometry, x, &words, &mut fours);
            let mut sink = finish.sink(columns, 1.0, y);
            sink.shift_by(shifts);
            conv::integers::forward(&words, Micro::fours(), &fours, packed, &sink, workspace);
        }
        Algorithm::Winograd => {
            let sink = finish.sink(columns, winograd::integers::FACTOR, y);
            winograd::integers::forward(&words, x, packed, &sink, workspace);
        }
    }
    Ok(())
}

/// The same convolution of images that have their padding.
fn with_padding_inside(geometry: &Conv2dGeometry) -> Conv2dGeometry {
    let size = |axis: usize| geometry.in_size[axis] + 2 * geometry.padding[axis];
    Conv2dGeometry {
        in_size: [size(0), size(1)],
        padding: [0, 0],
        ..*geometry
    }
}

/// Channels of a word that an algorithm multiplies.
fn channels_of_word(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::Direct | Algorithm::Winograd => 2,
        Algorithm::Fours { .. } => 4,
    }
}

/// The convolution of words: their channels are one.
fn of_words(geometry: &Conv2dGeometry, algorithm: Algorithm) -> Conv2dGeometry {
    let channels = geometry.in_channels / geometry.groups.max(1);
    Conv2dGeometry {
        in_channels: geometry.groups * channels.div_ceil(channels_of_word(algorithm)),
        ..*geometry
    }
}

/// Filters of words, `[O, words, kh, kw]`.
fn word_filters<'w>(
    geometry: &Conv2dGeometry,
    algorithm: Algorithm,
    w: &[i8],
    workspace: &'w Workspace,
) -> Scratch<'w, f32> {
    let each = channels_of_word(algorithm);
    let channels = geometry.in_channels / geometry.groups;
    let taps = geometry.kernel[0] * geometry.kernel[1];
    let words = channels.div_ceil(each) * taps;
    let mut filters = workspace.take(geometry.out_channels * words);
    let filter = (channels * taps).max(1);
    let to = filters.chunks_exact_mut(words.max(1));
    for (to, from) in to.zip(w.chunks_exact(filter)) {
        for (to, from) in to.chunks_exact_mut(taps).zip(from.chunks(each * taps)) {
            for (tap, to) in to.iter_mut().enumerate() {
                let number = |channel: usize| from.get(channel * taps + tap).copied().unwrap_or(0);
                *to = match algorithm {
                    Algorithm::Fours { .. } => words::four([0, 1, 2, 3].map(number)),
                    _ => words::word(number(0).into(), number(1).into()),
                };
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
        Algorithm::Fours { zero_point } => (
            fours_suit(geometry, zero_point),
            format!(
                "{} groups, {} channels, kernel {:?} and zero point {zero_point}, but fours are for one group, and exact \
                 sums for at most {MAX_SHIFTED_TERMS} terms, {MAX_TERMS} if the zero point is 0; use `Algorithm::Direct`",
                geometry.groups, geometry.in_channels, geometry.kernel
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
