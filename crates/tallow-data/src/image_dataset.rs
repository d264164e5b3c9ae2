//! [`ImageDataset`]: labelled images in memory, as bytes, and what can be asked of them.
//!
//! Reading them from files is left to [`datasets`](crate::datasets), turning them into batches to
//! [`Loader`](crate::Loader).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{Error, Normalize, Result};

/// Labelled images of one size in memory, one byte a value.
///
/// Cloning and splitting share the pixels.
///
/// ```
/// use tallow_data::ImageDataset;
///
/// # fn main() -> tallow_data::Result<()> {
/// // Four grey images of 1 x 2 pixels.
/// let pixels = vec![0, 255, 10, 20, 30, 40, 50, 60];
/// let data = ImageDataset::new(pixels, [1, 1, 2], vec![0, 1, 1, 0], ["cat", "dog"])?;
///
/// let (train, validation) = data.split_at(3)?;
/// assert_eq!(train.class_counts(), [1, 2]);
/// assert_eq!(validation.image(0), Some(&[50, 60][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ImageDataset {
    samples: Arc<Samples>,
    /// The part of the samples that this data set shows.
    range: Range<usize>,
}

struct Samples {
    /// `[N, C, H, W]`, row by row.
    pixels: Vec<u8>,
    labels: Vec<u32>,
    /// `[C, H, W]`.
    shape: [usize; 3],
    class_names: Vec<String>,
}

impl ImageDataset {
    /// A data set of `pixels` `[N, C, H, W]` with one label an image; `image_shape` is `[C, H, W]`.
    ///
    /// Label `i` stands for the `i`-th of `class_names`.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the image shape is empty, the pixels are not one image for each label, or
    /// a label has no class name.
    pub fn new<S: Into<String>>(
        pixels: Vec<u8>,
        image_shape: [usize; 3],
        labels: Vec<u32>,
        class_names: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        let class_names: Vec<String> = class_names.into_iter().map(Into::into).collect();
        let setting = |expected: String, found: String| Error::Setting {
            what: "an image data set",
            expected,
            found,
        };
        let size = image_shape
            .iter()
            .try_fold(1usize, |size, &dim| size.checked_mul(dim));
        if size.is_none_or(|size| size == 0 || labels.len().checked_mul(size) != Some(pixels.len()))
        {
            return Err(setting(
                "one image [C, H, W] for each label".into(),
                format!(
                    "{} bytes for {} labels and images {image_shape:?}",
                    pixels.len(),
                    labels.len()
                ),
            ));
        }
        let classes = class_names.len();
        if let Some((index, label)) = labels
            .iter()
            .enumerate()
            .find(|&(_, &label)| label as usize >= classes)
        {
            return Err(setting(
                format!("labels below {classes}, the number of class names"),
                format!("label {label} at sample {index}"),
            ));
        }
        let range = 0..labels.len();
        let samples = Samples {
            pixels,
            labels,
            shape: image_shape,
            class_names,
        };
        Ok(Self {
            samples: Arc::new(samples),
            range,
        })
    }

    /// The number of samples, N.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// True for a data set without samples.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The shape of every image, `[C, H, W]`.
    pub fn image_shape(&self) -> [usize; 3] {
        self.samples.shape
    }

    /// All pixels, `[N, C, H, W]`, row by row.
    pub fn pixels(&self) -> &[u8] {
        let size = self.image_size();
        &self.samples.pixels[self.range.start * size..self.range.end * size]
    }

    /// The pixels of one image, `[C, H, W]`, row by row; `None` beyond the last one.
    pub fn image(&self, index: usize) -> Option<&[u8]> {
        self.pixels().chunks_exact(self.image_size()).nth(index)
    }

    /// The class of each sample, `[N]`.
    pub fn labels(&self) -> &[u32] {
        &self.samples.labels[self.range.clone()]
    }

    /// The names of the classes, in the order of their labels.
    pub fn class_names(&self) -> &[String] {
        &self.samples.class_names
    }

    /// How many samples each class has, in the order of the labels.
    pub fn class_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.samples.class_names.len()];
        for &label in self.labels() {
            counts[label as usize] += 1;
        }
        counts
    }

    /// The first `n` samples, or all of them if there are fewer.
    #[must_use]
    pub fn take(&self, n: usize) -> Self {
        let end = self.range.start + n.min(self.len());
        Self {
            samples: self.samples.clone(),
            range: self.range.start..end,
        }
    }

    /// The first `n` samples, and the others.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if there are fewer than `n`.
    pub fn split_at(&self, n: usize) -> Result<(Self, Self)> {
        if n > self.len() {
            return Err(Error::Setting {
                what: "a split",
                expected: format!("at most {} samples in its first part", self.len()),
                found: n.to_string(),
            });
        }
        let middle = self.range.start + n;
        let rest = Self {
            samples: self.samples.clone(),
            range: middle..self.range.end,
        };
        Ok((self.take(n), rest))
    }

    /// Mean and standard deviation of each channel, of values scaled to 0..1: what to normalise with.
    ///
    /// The standard deviation is that of all pixels together (biased), as in the figures one finds published.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if there are no samples.
    pub fn channel_stats(&self) -> Result<Normalize> {
        if self.is_empty() {
            return Err(Error::Setting {
                what: "the mean of a data set",
                expected: "at least one sample".into(),
                found: "none".into(),
            });
        }
        let [channels, height, width] = self.image_shape();
        let mut counts = vec![[0u64; 256]; channels];
        for (plane, pixels) in self.pixels().chunks_exact(height * width).enumerate() {
            let counts = &mut counts[plane % channels];
            for &pixel in pixels {
                counts[usize::from(pixel)] += 1;
            }
        }
        let (mean, std) = counts.iter().map(mean_and_std).unzip();
        Ok(Normalize { mean, std })
    }

    fn image_size(&self) -> usize {
        self.samples.shape.iter().product()
    }
}

/// Of byte values, given how often each occurs; scaled to 0..1.
fn mean_and_std(counts: &[u64; 256]) -> (f32, f32) {
    let total: u64 = counts.iter().sum();
    let average = |f: &dyn Fn(f64) -> f64| {
        let sum: f64 = counts
            .iter()
            .enumerate()
            .map(|(value, &count)| f(value as f64 / 255.) * count as f64)
            .sum();
        sum / total as f64
    };
    let mean = average(&|x| x);
    let variance = average(&|x| (x - mean) * (x - mean));
    (mean as f32, variance.sqrt() as f32)
}

impl fmt::Debug for ImageDataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageDataset")
            .field("len", &self.len())
            .field("image_shape", &self.image_shape())
            .field("class_names", &self.class_names())
            .finish_non_exhaustive()
    }
}
