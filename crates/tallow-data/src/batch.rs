//! What a training loop reads: [`Batch`], with [`Mix`] for images of more than one class, and [`BatchSource`], anything that can
//! hand out the batches of an epoch.
//!
//! How batches come about is the business of [`ImageDataset::loader`](crate::ImageDataset::loader) and of
//! [`pipe`](crate::pipe); how they are used is the trainer's.

use candle_core::{DType, Device, Tensor};

use crate::{Error, LoaderStats, Result};

/// The images and labels of one step.
#[derive(Debug, Clone)]
pub struct Batch {
    /// `[N, C, H, W]`, f32, as the model wants them (normalised).
    pub images: Tensor,
    /// `[N]`, u32: the class index of each image; of a mixed image, that of its larger part.
    pub labels: Tensor,
    /// What the labels leave out, for batches of mixed images.
    pub mix: Option<Mix>,
}

/// The targets of images that belong to more than one class.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Mix {
    /// Two classes an image, as MixUp (Zhang et al. 2018) and CutMix (Yun et al. 2019) make them: the batch's label counts
    /// `lambda`, the second one `1 - lambda`.
    Pair {
        /// `[N]`, u32: the second class of each image.
        labels: Tensor,
        /// `[N]`, f32, from 0 to 1: how much the first class counts.
        lambda: Tensor,
    },
    /// `[N, classes]`, f32: the probability of each class.
    Soft(Tensor),
}

impl Batch {
    /// A batch of `images` `[N, C, H, W]` with one label each, `[N]` u32.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the ranks or the number of samples don't fit, or the labels are not u32.
    pub fn new(images: Tensor, labels: Tensor) -> Result<Self> {
        let fits = images.rank() == 4
            && labels.rank() == 1
            && labels.dtype() == DType::U32
            && images.dims()[0] == labels.dims()[0];
        if !fits {
            return Err(Error::Setting {
                what: "a batch",
                expected: "images [N, C, H, W] and u32 labels [N]".into(),
                found: format!(
                    "images {:?} {} and labels {:?} {}",
                    images.dims(),
                    images.dtype().as_str(),
                    labels.dims(),
                    labels.dtype().as_str(),
                ),
            });
        }
        Ok(Self {
            images,
            labels,
            mix: None,
        })
    }

    /// The same batch with a second class for each image: the label it has counts `lambda`, `labels` count `1 - lambda`, both
    /// `[N]`, u32 and f32.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if shapes or types don't fit, or a lambda lies outside 0 to 1; [`Error::Tensor`] if it can't be read.
    pub fn with_pair(mut self, labels: Tensor, lambda: Tensor) -> Result<Self> {
        let fits = labels.dims() == self.labels.dims()
            && lambda.dims() == self.labels.dims()
            && labels.dtype() == DType::U32
            && lambda.dtype() == DType::F32;
        if !fits {
            return Err(Error::Setting {
                what: "the second class of a batch",
                expected: format!("u32 labels [{0}] and f32 lambda [{0}]", self.len()),
                found: format!(
                    "labels {:?} {} and lambda {:?} {}",
                    labels.dims(),
                    labels.dtype().as_str(),
                    lambda.dims(),
                    lambda.dtype().as_str(),
                ),
            });
        }
        let shares = lambda.to_vec1::<f32>()?;
        if let Some(share) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
            return Err(Error::Setting {
                what: "lambda of a batch",
                expected: "from 0 to 1".into(),
                found: share.to_string(),
            });
        }
        self.mix = Some(Mix::Pair { labels, lambda });
        Ok(self)
    }

    /// A batch of `images` `[N, C, H, W]` with a probability for each class, `[N, classes]` f32. The labels, which metrics look
    /// at, are the most probable classes.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the shapes or types don't fit; [`Error::Tensor`] if the probabilities can't be read.
    pub fn soft(images: Tensor, probabilities: Tensor) -> Result<Self> {
        let fits = probabilities.rank() == 2
            && probabilities.dtype() == DType::F32
            && probabilities.dims()[1] > 0;
        if !fits {
            return Err(Error::Setting {
                what: "the soft labels of a batch",
                expected: "f32 probabilities [N, classes]".into(),
                found: format!(
                    "{:?} {}",
                    probabilities.dims(),
                    probabilities.dtype().as_str()
                ),
            });
        }
        let mut batch = Self::new(images, probabilities.argmax(1)?)?;
        batch.mix = Some(Mix::Soft(probabilities));
        Ok(batch)
    }

    /// The number of samples, N.
    pub fn len(&self) -> usize {
        self.labels.elem_count()
    }

    /// True for a batch without samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same batch on another device; a batch that is there already is shared, not copied.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] if the copy fails.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        let mix = self.mix.as_ref().map(|mix| mix.to_device(device));
        Ok(Self {
            images: self.images.to_device(device)?,
            labels: self.labels.to_device(device)?,
            mix: mix.transpose()?,
        })
    }
}

impl Mix {
    fn to_device(&self, device: &Device) -> Result<Self> {
        Ok(match self {
            Self::Pair { labels, lambda } => Self::Pair {
                labels: labels.to_device(device)?,
                lambda: lambda.to_device(device)?,
            },
            Self::Soft(probabilities) => Self::Soft(probabilities.to_device(device)?),
        })
    }
}

/// The batches of one epoch, in order.
///
/// An `Err` is one failed batch; whether to go on after it is the reader's choice.
pub type Batches<'a> = Box<dyn Iterator<Item = Result<Batch>> + Send + 'a>;

/// Anything that can hand out the batches of an epoch.
///
/// The contract that makes training repeatable: the batches of an epoch depend on the source and on the number of
/// the epoch alone, not on which epochs were read before, how far, or by how many threads.
///
/// `[Batch]` and `Vec<Batch>` are sources that give the same batches in every epoch:
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use tallow_data::{Batch, BatchSource};
///
/// # fn main() -> tallow_data::Result<()> {
/// let images = Tensor::zeros((2, 1, 28, 28), DType::F32, &Device::Cpu)?;
/// let labels = Tensor::new(&[3u32, 7], &Device::Cpu)?;
/// let source = vec![Batch::new(images, labels)?];
///
/// for batch in source.epoch(0)? {
///     assert_eq!(batch?.len(), 2);
/// }
/// # Ok(())
/// # }
/// ```
pub trait BatchSource {
    /// The batches of epoch number `epoch`, counted from 0.
    ///
    /// # Errors
    ///
    /// What keeps the epoch from starting. What goes wrong later comes as an item.
    fn epoch(&self, epoch: u64) -> Result<Batches<'_>>;

    /// The batches of an epoch after the first `done`, to go on with it.
    ///
    /// As it stands, it reads the others and drops them; sources that know better do it better.
    ///
    /// # Errors
    ///
    /// As [`epoch`](Self::epoch), and what goes wrong in a batch that is passed over. [`Error::Setting`], here or as an
    /// item, if the epoch has fewer batches.
    fn epoch_from(&self, epoch: u64, done: u64) -> Result<Batches<'_>> {
        let mut batches = self.epoch(epoch)?;
        for found in 0..done {
            let batch = batches.next().ok_or_else(|| ended_before(done, found))?;
            drop(batch?);
        }
        Ok(batches)
    }

    /// What has been handed out so far, and what readers waited for, if the source counts it.
    fn stats(&self) -> Option<LoaderStats> {
        None
    }

    /// How many batches an epoch has, if that is known beforehand (progress bars and learning-rate schedules ask).
    fn len_hint(&self) -> Option<usize> {
        None
    }
}

/// There are only `found` batches, and `done` were to be passed over.
pub(crate) fn ended_before(done: u64, found: u64) -> Error {
    Error::Setting {
        what: "the source of batches, to go on in the middle of an epoch,",
        expected: format!("the one that was read before, of at least {done} batches an epoch"),
        found: format!("{found} batches"),
    }
}

impl BatchSource for [Batch] {
    fn epoch(&self, epoch: u64) -> Result<Batches<'_>> {
        self.epoch_from(epoch, 0)
    }

    fn epoch_from(&self, _epoch: u64, done: u64) -> Result<Batches<'_>> {
        let left = usize::try_from(done).ok().and_then(|done| self.get(done..));
        let left = left.ok_or_else(|| ended_before(done, self.len() as u64))?;
        Ok(Box::new(left.iter().cloned().map(Ok)))
    }

    fn len_hint(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl BatchSource for Vec<Batch> {
    fn epoch(&self, epoch: u64) -> Result<Batches<'_>> {
        self.as_slice().epoch(epoch)
    }

    fn epoch_from(&self, epoch: u64, done: u64) -> Result<Batches<'_>> {
        self.as_slice().epoch_from(epoch, done)
    }

    fn len_hint(&self) -> Option<usize> {
        self.as_slice().len_hint()
    }
}

impl<S: BatchSource + ?Sized> BatchSource for &S {
    fn epoch(&self, epoch: u64) -> Result<Batches<'_>> {
        (**self).epoch(epoch)
    }

    fn epoch_from(&self, epoch: u64, done: u64) -> Result<Batches<'_>> {
        (**self).epoch_from(epoch, done)
    }

    fn stats(&self) -> Option<LoaderStats> {
        (**self).stats()
    }

    fn len_hint(&self) -> Option<usize> {
        (**self).len_hint()
    }
}

impl<S: BatchSource + ?Sized> BatchSource for Box<S> {
    fn epoch(&self, epoch: u64) -> Result<Batches<'_>> {
        (**self).epoch(epoch)
    }

    fn epoch_from(&self, epoch: u64, done: u64) -> Result<Batches<'_>> {
        (**self).epoch_from(epoch, done)
    }

    fn stats(&self) -> Option<LoaderStats> {
        (**self).stats()
    }

    fn len_hint(&self) -> Option<usize> {
        (**self).len_hint()
    }
}
