//! How samples become batches: [`Rows`], images to a tensor; [`Values`], samples of any kind to what a function makes
//! of them.

use candle_core::{Device, Tensor};

use super::samples::Collect;
use crate::transform::{FloatImage, NormalizedImage};
use crate::{Batch, Error, Result};

/// A picture that can be a row of a batch: what a pipeline for a [`Loader`](super::Loader) ends in.
pub trait Row: Send + 'static {
    /// All values, `[C, H, W]`.
    fn values(&self) -> &[f32];

    /// `[C, H, W]`.
    fn shape(&self) -> [usize; 3];

    /// Writes all values to `target`, which has a place for each value that the shape promises.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`](crate::Error::Setting) if there are others.
    fn write(&self, target: &mut [f32]) -> Result<()> {
        let values = self.values();
        if values.len() != target.len() {
            return Err(Error::Setting {
                what: "a row of a batch",
                expected: format!("{} values, as its shape says", target.len()),
                found: values.len().to_string(),
            });
        }
        target.copy_from_slice(values);
        Ok(())
    }
}

impl Row for FloatImage {
    fn values(&self) -> &[f32] {
        self.values()
    }

    fn shape(&self) -> [usize; 3] {
        self.shape()
    }

    fn write(&self, target: &mut [f32]) -> Result<()> {
        self.write(target);
        Ok(())
    }
}

impl Row for NormalizedImage {
    fn values(&self) -> &[f32] {
        self.values()
    }

    fn shape(&self) -> [usize; 3] {
        self.shape()
    }

    fn write(&self, target: &mut [f32]) -> Result<()> {
        self.write(target);
        Ok(())
    }
}

/// Images of one shape, to the memory that will be the batch's tensor.
pub(super) struct Rows;

#[derive(Default)]
pub(super) struct Filled {
    size: usize,
    shape: [usize; 3],
    values: Vec<f32>,
    labels: Vec<u32>,
}

impl<R: Row> Collect<(R, u32)> for Rows {
    type Part = Filled;
    type Batch = Batch;

    fn begin(&self, size: usize) -> Filled {
        Filled {
            size,
            ..Filled::default()
        }
    }

    fn add(&self, part: &mut Filled, (row, label): (R, u32)) -> Result<()> {
        let size: usize = row.shape().iter().product();
        if part.labels.is_empty() {
            part.shape = row.shape();
            part.values.reserve_exact(part.size * size);
            part.labels.reserve_exact(part.size);
        }
        if row.shape() != part.shape {
            return Err(Error::Setting {
                what: "a batch",
                expected: format!(
                    "images of one shape, {:?} [C, H, W] as its first; resize or crop them in the pipeline",
                    part.shape
                ),
                found: format!("{:?}", row.shape()),
            });
        }
        let start = part.values.len();
        part.values.resize(start + size, 0.);
        if let Err(error) = row.write(&mut part.values[start..]) {
            part.values.truncate(start);
            return Err(error);
        }
        part.labels.push(label);
        Ok(())
    }

    fn finish(&self, part: Filled) -> Result<Batch> {
        let count = part.labels.len();
        let [channels, height, width] = part.shape;
        let shape = (count, channels, height, width);
        Ok(Batch {
            images: Tensor::from_vec(part.values, shape, &Device::Cpu)?,
            labels: Tensor::from_vec(part.labels, count, &Device::Cpu)?,
            mix: None,
        })
    }
}

/// Samples in a list, and what a function makes of it.
pub(super) struct Values<C>(pub(super) C);

impl<T, B, C> Collect<T> for Values<C>
where
    C: Fn(Vec<T>) -> Result<B> + Send + Sync + 'static,
{
    type Part = Vec<T>;
    type Batch = B;

    fn begin(&self, size: usize) -> Vec<T> {
        Vec::with_capacity(size)
    }

    fn add(&self, part: &mut Vec<T>, sample: T) -> Result<()> {
        part.push(sample);
        Ok(())
    }

    fn finish(&self, part: Vec<T>) -> Result<B> {
        (self.0)(part)
    }
}
