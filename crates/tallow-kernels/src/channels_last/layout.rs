//! Changing the order of an image's axes: `[N, C, H, W]` to `[N, H, W, C]` and back.
//!
//! Both are transpositions of a matrix a sample. A leaf writes whole rows of the result, at least 16 at a time,
//! so that each cache line that it reads is used up before it is dropped.

use crate::error::{Result, check_len};
use crate::parallel::{for_each, grain, rows};
use crate::shape::ChannelShape;
use crate::simd::{Isa, dispatch};

/// `y[n, s, c] = x[n, c, s]`: from channels first to channels last.
///
/// `x` is `[N, C, S]` and `y` is `[N, S, C]`, where `S` is `H·W`.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) for a slice of another length.
///
/// ```
/// use tallow_kernels::ChannelShape;
/// use tallow_kernels::channels_last::layout;
///
/// let planes = [1.0, 2.0, 3.0, 10.0, 20.0, 30.0];
/// let mut pixels = [0.0; 6];
/// layout::to_channels_last(&ChannelShape::new(1, 2, 3), &planes, &mut pixels)?;
/// assert_eq!(pixels, [1.0, 10.0, 2.0, 20.0, 3.0, 30.0]);
/// # Ok::<(), tallow_kernels::Error>(())
/// ```
pub fn to_channels_last(shape: &ChannelShape, x: &[f32], y: &mut [f32]) -> Result<()> {
    let sizes = [shape.batch, shape.channels, shape.spatial];
    check("to_channels_last", shape, x, y)?;
    transpose(sizes, x, y);
    Ok(())
}

/// `y[n, c, s] = x[n, s, c]`: from channels last to channels first, the inverse of [`to_channels_last`].
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) for a slice of another length.
pub fn to_channels_first(shape: &ChannelShape, x: &[f32], y: &mut [f32]) -> Result<()> {
    let sizes = [shape.batch, shape.spatial, shape.channels];
    check("to_channels_first", shape, x, y)?;
    transpose(sizes, x, y);
    Ok(())
}

fn check(kernel: &'static str, shape: &ChannelShape, x: &[f32], y: &[f32]) -> Result<()> {
    let len = shape.len(kernel)?;
    check_len(kernel, "x", x, len)?;
    check_len(kernel, "y", y, len)
}

/// `[N, height, width]` to `[N, width, height]`.
fn transpose([batch, height, width]: [usize; 3], x: &[f32], y: &mut [f32]) {
    let len = height * width;
    if batch * len == 0 {
        return;
    }
    if height == 1 || width == 1 {
        for_each(x.len(), grain(1), (x, y), |_, (x, y)| y.copy_from_slice(x));
        return;
    }
    if width <= 4 {
        let data = (rows(x, len), rows(y, len));
        for_each(batch, grain(len), data, |_, (x, y)| {
            let leaf = match width {
                2 => separate::<Two>,
                3 => separate::<Three>,
                _ => separate::<Four>,
            };
            leaf(height, x.data, y.data);
        });
        return;
    }
    // Whole blocks of rows, so that a leaf seldom ends within one.
    let leaf_rows = grain(height).next_multiple_of(block_rows(height));
    for_each(batch * width, leaf_rows, rows(y, height), |first, y| {
        let leaf = match height {
            2 => interleave::<Two>,
            3 => interleave::<Three>,
            4 => interleave::<Four>,
            _ => rows_leaf,
        };
        // A leaf may begin and end within a sample.
        let (mut first, mut y) = (first, y.data);
        while !y.is_empty() {
            let (sample, row) = (first / width, first % width);
            let count = (width - row).min(y.len() / height);
            let (head, tail) = y.split_at_mut(count * height);
            leaf([height, width], &x[sample * len..][..len], row, head);
            (first, y) = (first + count, tail);
        }
    });
}

/// A small number of planes, as a type.
trait Planes {
    const COUNT: usize;
}

struct Two;
struct Three;
struct Four;

impl Planes for Two {
    const COUNT: usize = 2;
}
impl Planes for Three {
    const COUNT: usize = 3;
}
impl Planes for Four {
    const COUNT: usize = 4;
}

dispatch! {
    /// Pixels from `first` on, of few planes.
    fn interleave<I, P: Planes>(sizes: [usize; 2], x: &[f32], first: usize, y: &mut [f32]) {
        match P::COUNT {
            2 => interleave_planes::<2>(sizes[1], x, first, y),
            3 => interleave_planes::<3>(sizes[1], x, first, y),
            _ => interleave_planes::<4>(sizes[1], x, first, y),
        }
    }
}

#[inline(always)]
fn interleave_planes<const PLANES: usize>(width: usize, x: &[f32], first: usize, y: &mut [f32]) {
    let pixels = y.as_chunks_mut::<PLANES>().0;
    let count = pixels.len();
    let planes: [&[f32]; PLANES] =
        std::array::from_fn(|plane| &x[plane * width + first..][..count]);
    for (i, pixel) in pixels.iter_mut().enumerate() {
        for plane in 0..PLANES {
            pixel[plane] = planes[plane][i];
        }
    }
}

dispatch! {
    /// Samples of few channels, plane after plane.
    fn separate<I, P: Planes>(height: usize, x: &[f32], y: &mut [f32]) {
        let len = height * P::COUNT;
        for (x, y) in x.chunks_exact(len).zip(y.chunks_exact_mut(len)) {
            match P::COUNT {
                2 => separate_planes::<2>(x, y),
                3 => separate_planes::<3>(x, y),
                _ => separate_planes::<4>(x, y),
            }
        }
    }
}

#[inline(always)]
fn separate_planes<const PLANES: usize>(x: &[f32], y: &mut [f32]) {
    let pixels = x.as_chunks::<PLANES>().0;
    for (channel, plane) in y.chunks_exact_mut(pixels.len()).enumerate() {
        for (to, pixel) in plane.iter_mut().zip(pixels) {
            *to = pixel[channel];
        }
    }
}

/// Rows of the result that are written at a time: as many as the first-level cache holds, since runs of the operand
/// then are long; at least what one cache line of it goes into.
#[inline(always)]
fn block_rows(height: usize) -> usize {
    (4096 / height).clamp(16, 128).next_multiple_of(16)
}

dispatch! {
    /// Rows of the result, from `first` on, of one sample.
    fn rows_leaf<I>(sizes: [usize; 2], x: &[f32], first: usize, y: &mut [f32]) {
        let [height, width] = sizes;
        let rows = block_rows(height);
        for (block, y) in y.chunks_mut(rows * height).enumerate() {
            let first = first + block * rows;
            let count = y.len() / height;
            for row in (0..height).step_by(8) {
                let tall = (height - row).min(8);
                for column in (0..count).step_by(8) {
                    let wide = (count - column).min(8);
                    let from = &x[row * width + first + column..];
                    let to = &mut y[column * height + row..];
                    if tall == 8 && wide == 8 {
                        square::<I>(from, width, to, height);
                    } else {
                        for j in 0..wide {
                            for i in 0..tall {
                                to[j * height + i] = from[i * width + j];
                            }
                        }
                    }
                }
            }
        }
    }
}

/// `to[j][i] = from[i][j]` for 8 rows and columns.
#[inline(always)]
fn square<I: Isa>(from: &[f32], from_stride: usize, to: &mut [f32], to_stride: usize) {
    assert!(from.len() >= 7 * from_stride + 8 && to.len() >= 7 * to_stride + 8);
    // SAFETY: just checked that the last of the 8 rows lies in its slice; `to` is borrowed exclusively.
    unsafe { I::transpose_8x8(from.as_ptr(), from_stride, to.as_mut_ptr(), to_stride) }
}
