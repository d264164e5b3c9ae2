//! Rounding to evenly spaced values, kept as floats: what quantization does to numbers, without whole numbers.

use crate::error::{Result, check_len};
use crate::parallel;
use crate::simd::dispatch;

/// The values `scale * (q - zero_point)`, for whole numbers `q` within bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// One scale for all, or one for each channel, above zero.
    pub scales: Vec<f32>,
    /// Elements of a channel that follow each other; channels come one after the other, again and again.
    pub inner: usize,
    /// The number that stands for zero.
    pub zero_point: i32,
    /// The least and the largest number.
    pub bounds: [i32; 2],
}

impl Grid {
    /// `y`: for each element of `x` the nearest value, that of the even number of two: PyTorch's
    /// `fake_quantize_per_tensor_affine`. NaN becomes the least value.
    ///
    /// # Errors
    /// [`Error::Length`](crate::Error::Length) where `x` isn't whole channels, or `y` longer or shorter than `x`.
    ///
    /// ```
    /// use tallow_kernels::quantize::Grid;
    ///
    /// let grid = Grid { scales: vec![0.5, 1.0], inner: 2, zero_point: 0, bounds: [-2, 2] };
    /// let mut y = [0.0; 4];
    /// grid.round(&[0.3, 9.0, 0.3, -0.8], &mut y)?;
    /// assert_eq!(y, [0.5, 1.0, 0.0, -1.0]);
    /// # Ok::<(), tallow_kernels::Error>(())
    /// ```
    pub fn round(&self, x: &[f32], y: &mut [f32]) -> Result<()> {
        let zero = self.zero_point as f32;
        let bounds = self.bounds.map(|bound| bound as f32 - zero);
        if let [scale] = *self.scales {
            check_len("fake_quantize", "y", y, x.len())?;
            parallel::for_each(x.len(), parallel::LEAF, (x, y), |_, (x, y)| {
                round(scale, bounds, x, y);
            });
            return Ok(());
        }
        let channels = x.len() / self.inner.max(1);
        check_len("fake_quantize", "x", x, channels * self.inner)?;
        check_len("fake_quantize", "y", y, x.len())?;
        let rows = (parallel::rows(x, self.inner), parallel::rows(y, self.inner));
        parallel::for_each(
            channels,
            parallel::grain(self.inner),
            rows,
            |first, (x, y)| {
                let y = y.data.chunks_exact_mut(self.inner.max(1));
                let rows = x.data.chunks_exact(self.inner.max(1)).zip(y);
                for (channel, (x, y)) in (first..).zip(rows) {
                    round(self.scales[channel % self.scales.len()], bounds, x, y);
                }
            },
        );
        Ok(())
    }
}

dispatch! {
    fn round<I>(scale: f32, bounds: [f32; 2], x: &[f32], y: &mut [f32]) -> () {
        let [low, high] = bounds;
        for (y, &x) in y.iter_mut().zip(x) {
            *y = scale * (x / scale).round_ties_even().max(low).min(high);
        }
    }
}
