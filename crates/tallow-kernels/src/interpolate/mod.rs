//! Resizing each plane of `[planes, H, W]`, where the planes are `N C`: PyTorch's `interpolate`
//! with a given output size, nearest or bilinear.
//!
//! The positions of the nearest pixels are computed in `f32` exactly as PyTorch does, since one that
//! is rounded otherwise picks another pixel.

mod bilinear;
mod nearest;

use crate::error::{Error, Result, check_len, checked_product};
use crate::parallel::{for_each, grain, rows};

/// How an output pixel is made of input pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The pixel at `floor(i in / out)`.
    Nearest,
    /// Weighted by the distance to the two nearest pixels along each axis.
    Bilinear {
        /// Whether the centres of the corner pixels fall together (`i (in - 1) / (out - 1)`), or
        /// the corners of the planes (`(i + 0.5) in / out - 0.5`, at least 0).
        align_corners: bool,
    },
}

/// Sizes and mode of a resizing; pairs are `[height, width]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interpolate2d {
    /// Planes, `N C`; 0 is allowed.
    pub planes: usize,
    /// Size of an input plane.
    pub in_size: [usize; 2],
    /// Size of an output plane.
    pub out_size: [usize; 2],
    /// How pixels are made.
    pub mode: Mode,
}

/// Sizes above this aren't exact in the `f32` arithmetic of positions.
const LARGEST: usize = 1 << 24;

impl Interpolate2d {
    /// Elements of an input plane and of an output plane.
    fn check(&self, kernel: &'static str) -> Result<[usize; 2]> {
        let lens = [self.in_size, self.out_size];
        if !lens
            .as_flattened()
            .iter()
            .all(|size| (1..=LARGEST).contains(size))
        {
            let problem = format!(
                "planes of {:?} can't be resized to {:?}; sizes have to be 1 to {LARGEST}",
                self.in_size, self.out_size
            );
            return Err(Error::Geometry { kernel, problem });
        }
        for [height, width] in lens {
            checked_product(kernel, &[self.planes.max(1), height, width])?;
        }
        Ok(lens.map(|[height, width]| height * width))
    }
}

/// Resizes `x` of `[planes, in_size]` to `y` of `[planes, out_size]`.
///
/// # Errors
/// [`Error::Geometry`] where a size is zero or above 2^24; [`Error::Length`] for a slice of another
/// length.
pub fn forward(geometry: &Interpolate2d, x: &[f32], y: &mut [f32]) -> Result<()> {
    const KERNEL: &str = "interpolate";
    let [in_len, out_len] = geometry.check(KERNEL)?;
    check_len(KERNEL, "x", x, geometry.planes * in_len)?;
    check_len(KERNEL, "y", y, geometry.planes * out_len)?;
    let data = (rows(x, in_len), rows(y, out_len));
    for_each(
        geometry.planes,
        grain(in_len + out_len),
        data,
        |_, (x, y)| {
            for (x, y) in x
                .data
                .chunks_exact(in_len)
                .zip(y.data.chunks_exact_mut(out_len))
            {
                match geometry.mode {
                    Mode::Nearest => nearest::forward(geometry, x, y),
                    Mode::Bilinear { align_corners } => {
                        bilinear::forward(geometry, align_corners, x, y)
                    }
                }
            }
        },
    );
    Ok(())
}

/// Gradient of [`forward`]: `dx` of `[planes, in_size]` from `dy` of `[planes, out_size]`.
///
/// # Errors
/// As [`forward`].
pub fn backward(geometry: &Interpolate2d, dy: &[f32], dx: &mut [f32]) -> Result<()> {
    const KERNEL: &str = "interpolate_backward";
    let [in_len, out_len] = geometry.check(KERNEL)?;
    check_len(KERNEL, "dy", dy, geometry.planes * out_len)?;
    check_len(KERNEL, "dx", dx, geometry.planes * in_len)?;
    let data = (rows(dy, out_len), rows(dx, in_len));
    for_each(
        geometry.planes,
        grain(in_len + out_len),
        data,
        |_, (dy, dx)| {
            dx.data.fill(0.0);
            for (dy, dx) in dy
                .data
                .chunks_exact(out_len)
                .zip(dx.data.chunks_exact_mut(in_len))
            {
                match geometry.mode {
                    Mode::Nearest => nearest::backward(geometry, dy, dx),
                    Mode::Bilinear { align_corners } => {
                        bilinear::backward(geometry, align_corners, dy, dx);
                    }
                }
            }
        },
    );
    Ok(())
}
