//! [`MixUp`] and [`CutMix`]: pictures of a batch mixed with one another, and their labels with them.

use candle_core::Tensor;
use tallow_tensor::rng::{self, Purpose, Stream};

use super::setting::check;
use crate::{Batch, Error, Result};

/// The labels of a mixed batch: sample `i` is `lambda` of class `labels[i]` and the rest of class `others[i]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixed {
    /// The labels of the batch, `[N]`.
    pub labels: Vec<u32>,
    /// The labels of what was mixed in, `[N]`.
    pub others: Vec<u32>,
    /// The share of the former, 0 to 1.
    pub lambda: f64,
}

impl Mixed {
    /// One probability a class, `[N, classes]` row by row: what torchvision's transforms give.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if a label isn't below `classes`.
    pub fn soft_labels(&self, classes: usize) -> Result<Vec<f32>> {
        let mut soft = vec![0.; self.labels.len() * classes];
        let pairs = self.labels.iter().zip(&self.others).enumerate();
        for (sample, (&label, &other)) in pairs {
            if label.max(other) as usize >= classes {
                return Err(Error::Setting {
                    what: "soft labels",
                    expected: format!("labels below {classes}, the number of classes"),
                    found: format!("{} at sample {sample}", label.max(other)),
                });
            }
            soft[sample * classes + label as usize] += self.lambda as f32;
            soft[sample * classes + other as usize] += (1. - self.lambda) as f32;
        }
        Ok(soft)
    }
}

/// torchvision's `MixUp` (Zhang et al., 2017): each picture of a batch is `lambda` of itself and the rest of the one before
/// it, where `lambda` follows the Beta(alpha, alpha) distribution.
///
/// ```
/// use tallow_data::transform::MixUp;
///
/// # fn main() -> tallow_data::Result<()> {
/// let (epoch, batch) = (0, 3);
/// let mut images = vec![0., 0., 1., 1.]; // [2, 1, 1, 2]
/// let mixed = MixUp { alpha: 0.2, seed: 42 }.apply(&mut images, [2, 1, 1, 2], &[5, 7], epoch, batch)?;
/// assert_eq!(mixed.others, [7, 5]);
/// assert_eq!(images[2], mixed.lambda as f32);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MixUp {
    /// Above 0; small numbers mix little. 0.2 is usual.
    pub alpha: f64,
    /// The seed.
    pub seed: u64,
}

/// torchvision's `CutMix` (Yun et al., 2019): a rectangle of each picture comes from the one before it in the batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CutMix {
    /// Above 0; 1 makes all sizes of rectangle equally likely.
    pub alpha: f64,
    /// The seed.
    pub seed: u64,
}

impl MixUp {
    /// Mixes a batch `[N, C, H, W]` in place, keyed by (seed, epoch, batch).
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if `alpha` isn't above 0, or images and labels don't fit the shape.
    pub fn apply(
        &self,
        images: &mut [f32],
        shape: [usize; 4],
        labels: &[u32],
        epoch: u64,
        batch: u64,
    ) -> Result<Mixed> {
        check_batch("MixUp", self.alpha, images, shape, labels)?;
        let lambda = beta(self.alpha, &mut stream(self.seed, epoch, batch));
        let share = lambda as f32;
        with_previous(images, shape, |image, previous| {
            for (value, other) in image.iter_mut().zip(previous) {
                *value = share * *value + (1. - share) * other;
            }
        });
        Ok(mixed(labels, lambda))
    }

    /// Mixes a batch with one label an image, keyed by (seed, epoch, number of the batch): the trainer's losses take both
    /// labels by their shares. [`Loader::mixup`](crate::Loader::mixup) does it for every batch of a loader.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply); [`Error::Setting`] if the batch is mixed already.
    pub fn mix(&self, batch: Batch, epoch: u64, number: u64) -> Result<Batch> {
        mixed_batch(batch, |images, shape, labels| {
            self.apply(images, shape, labels, epoch, number)
        })
    }
}

impl CutMix {
    /// Mixes a batch `[N, C, H, W]` in place, keyed by (seed, epoch, batch).
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if `alpha` isn't above 0, or images and labels don't fit the shape.
    pub fn apply(
        &self,
        images: &mut [f32],
        shape: [usize; 4],
        labels: &[u32],
        epoch: u64,
        batch: u64,
    ) -> Result<Mixed> {
        check_batch("CutMix", self.alpha, images, shape, labels)?;
        let [_, _, height, width] = shape;
        let mut draw = stream(self.seed, epoch, batch);
        let half = 0.5 * (1. - beta(self.alpha, &mut draw)).sqrt();
        let mut range = |side: usize| {
            let middle = draw.below(side as u64) as usize;
            let reach = (half * side as f64) as usize;
            middle.saturating_sub(reach)..(middle + reach).min(side)
        };
        let (columns, rows) = (range(width), range(height));
        let cut = (columns.len() * rows.len()) as f64;
        with_previous(images, shape, |image, previous| {
            let planes = image
                .chunks_exact_mut(height * width)
                .zip(previous.chunks_exact(height * width));
            for (plane, previous) in planes {
                for row in rows.clone() {
                    let place = row * width + columns.start..row * width + columns.end;
                    plane[place.clone()].copy_from_slice(&previous[place]);
                }
            }
        });
        Ok(mixed(labels, 1. - cut / (height * width) as f64))
    }

    /// Mixes a batch with one label an image, keyed by (seed, epoch, number of the batch): the trainer's losses take both
    /// labels by their shares. [`Loader::cutmix`](crate::Loader::cutmix) does it for every batch of a loader.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply); [`Error::Setting`] if the batch is mixed already.
    pub fn mix(&self, batch: Batch, epoch: u64, number: u64) -> Result<Batch> {
        mixed_batch(batch, |images, shape, labels| {
            self.apply(images, shape, labels, epoch, number)
        })
    }
}

/// Makes of one label an image two, the one of the larger part first.
fn mixed_batch(
    batch: Batch,
    mix: impl FnOnce(&mut [f32], [usize; 4], &[u32]) -> Result<Mixed>,
) -> Result<Batch> {
    if batch.mix.is_some() {
        return Err(Error::Setting {
            what: "a batch to be mixed",
            expected: "one label an image".into(),
            found: "images that are mixed already".into(),
        });
    }
    let (n, c, h, w) = batch.images.dims4()?;
    let device = batch.images.device().clone();
    let mut images = batch.images.flatten_all()?.to_vec1::<f32>()?;
    let labels = batch.labels.to_vec1::<u32>()?;
    let mixed = mix(&mut images, [n, c, h, w], &labels)?;
    let (first, second, lambda) = match mixed.lambda >= 0.5 {
        true => (mixed.labels, mixed.others, mixed.lambda),
        false => (mixed.others, mixed.labels, 1. - mixed.lambda),
    };
    let images = Tensor::from_vec(images, (n, c, h, w), &device)?;
    let lambda = Tensor::full(lambda as f32, n, &device)?;
    Batch::new(images, Tensor::from_vec(first, n, &device)?)?
        .with_pair(Tensor::from_vec(second, n, &device)?, lambda)
}

/// Of a batch. The epochs' samples count from 0 under the same purpose, its batches from the other end.
fn stream(seed: u64, epoch: u64, batch: u64) -> Stream {
    Stream::new(rng::key(seed, Purpose::Augment, epoch, u64::MAX - batch))
}

fn mixed(labels: &[u32], lambda: f64) -> Mixed {
    let mut others = labels.to_vec();
    others.rotate_right(1);
    Mixed {
        labels: labels.to_vec(),
        others,
        lambda,
    }
}

pub(crate) fn check_alpha(what: &'static str, alpha: f64) -> Result<()> {
    check(
        what,
        alpha.is_finite() && alpha > 0.,
        "an alpha above 0",
        || alpha.to_string(),
    )
}

fn check_batch(
    what: &'static str,
    alpha: f64,
    images: &[f32],
    shape: [usize; 4],
    labels: &[u32],
) -> Result<()> {
    check_alpha(what, alpha)?;
    let values = shape
        .iter()
        .try_fold(1usize, |size, &side| size.checked_mul(side));
    check(
        what,
        values.is_some_and(|n| n > 0 && n == images.len()) && labels.len() == shape[0],
        "a batch [N, C, H, W] with a value for each place and N labels",
        || {
            format!(
                "{} values and {} labels for {shape:?}",
                images.len(),
                labels.len()
            )
        },
    )
}

/// Changes each picture with the one before it (the last one before the first), as both were at the start.
fn with_previous(
    images: &mut [f32],
    shape: [usize; 4],
    mut change: impl FnMut(&mut [f32], &[f32]),
) {
    let size = images.len() / shape[0];
    // From the back, so that only the last picture has to be kept.
    let last = images[images.len() - size..].to_vec();
    for sample in (1..shape[0]).rev() {
        let (before, from) = images.split_at_mut(sample * size);
        change(&mut from[..size], &before[(sample - 1) * size..]);
    }
    change(&mut images[..size], &last);
}

/// A number that follows Beta(alpha, alpha).
fn beta(alpha: f64, draw: &mut Stream) -> f64 {
    let (a, b) = (log_gamma(alpha, draw), log_gamma(alpha, draw));
    // In logarithms, since for a small alpha both numbers may be too small for a float.
    1. / (1. + (b - a).exp())
}

/// The logarithm of a number that follows Gamma(alpha, 1) (Marsaglia and Tsang, 2000).
fn log_gamma(alpha: f64, draw: &mut Stream) -> f64 {
    if alpha < 1. {
        let uniform = 1. - draw.uniform();
        return log_gamma(alpha + 1., draw) + uniform.ln() / alpha;
    }
    let d = alpha - 1. / 3.;
    let c = 1. / (9. * d).sqrt();
    loop {
        let x = draw.normal();
        let v = (1. + c * x).powi(3);
        if v > 0. && (1. - draw.uniform()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d.ln() + v.ln();
        }
    }
}
