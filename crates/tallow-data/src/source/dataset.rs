//! [`Dataset`]: samples by number; and the data sets that need no file of their own.

use std::sync::Arc;

use crate::{Error, Image, ImageDataset, Result};

/// Samples that are reached by number, PyTorch's map-style data set.
///
/// ```
/// use tallow_data::{Dataset, Image, Result};
///
/// /// Grey squares; their class is whether they are bright.
/// struct Squares;
///
/// impl Dataset for Squares {
///     type Sample = (Image, u32);
///
///     fn len(&self) -> usize {
///         256
///     }
///
///     fn get(&self, index: usize) -> Result<(Image, u32)> {
///         let image = Image::new(vec![index as u8; 16], [4, 4], 1)?;
///         Ok((image, u32::from(index >= 128)))
///     }
/// }
///
/// assert_eq!(Squares.get(200)?.1, 1);
/// assert_eq!(Squares.describe(200), "sample 200");
/// # Ok::<(), tallow_data::Error>(())
/// ```
pub trait Dataset: Send + Sync {
    /// What a sample is; `(Image, u32)`, an image and its class, where a [`Pipeline`](crate::transform::Pipeline) follows.
    type Sample;

    /// How many samples there are. A loader relies on it not changing.
    fn len(&self) -> usize;

    /// True for a data set without samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sample of that number; called by several threads at once.
    ///
    /// # Errors
    ///
    /// Why there is none; the loader adds what [`describe`](Self::describe) says.
    fn get(&self, index: usize) -> Result<Self::Sample>;

    /// The sample in words, for messages: its file, if it has one.
    fn describe(&self, index: usize) -> String {
        format!("sample {index}")
    }
}

/// A data set of values that lie in memory; a sample is a clone of one.
///
/// ```
/// use tallow_data::{Dataset, source};
///
/// let words = source::list(["one", "two"]);
/// assert_eq!(words.get(1)?, "two");
/// # Ok::<(), tallow_data::Error>(())
/// ```
pub fn list<T: Clone + Send + Sync>(values: impl IntoIterator<Item = T>) -> List<T> {
    List {
        values: values.into_iter().collect(),
    }
}

/// The data set that [`list`] makes.
#[derive(Debug, Clone)]
pub struct List<T> {
    values: Arc<[T]>,
}

impl<T: Clone + Send + Sync> Dataset for List<T> {
    type Sample = T;

    fn len(&self) -> usize {
        self.values.len()
    }

    fn get(&self, index: usize) -> Result<T> {
        let sample = self.values.get(index).cloned();
        sample.ok_or_else(|| beyond(index, self.values.len()))
    }
}

impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    type Sample = D::Sample;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn get(&self, index: usize) -> Result<D::Sample> {
        (**self).get(index)
    }

    fn describe(&self, index: usize) -> String {
        (**self).describe(index)
    }
}

impl<D: Dataset + ?Sized> Dataset for Box<D> {
    type Sample = D::Sample;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn get(&self, index: usize) -> Result<D::Sample> {
        (**self).get(index)
    }

    fn describe(&self, index: usize) -> String {
        (**self).describe(index)
    }
}

/// Images `[C, H, W]` as [`Image`]s `[H, W, C]`; those of another number of channels than 1 and 3 are errors.
impl Dataset for ImageDataset {
    type Sample = (Image, u32);

    fn len(&self) -> usize {
        self.len()
    }

    fn get(&self, index: usize) -> Result<(Image, u32)> {
        let pixels = self.image(index);
        let (Some(planes), Some(&label)) = (pixels, self.labels().get(index)) else {
            return Err(beyond(index, self.len()));
        };
        let [channels, height, width] = self.image_shape();
        let values = match channels {
            3 => interleave(planes, height * width),
            _ => planes.to_vec(),
        };
        Ok((Image::new(values, [height, width], channels)?, label))
    }
}

/// Three planes to pixels of three values.
fn interleave(planes: &[u8], plane: usize) -> Vec<u8> {
    let (red, rest) = planes.split_at(plane);
    let (green, blue) = rest.split_at(plane);
    let mut values = vec![0; planes.len()];
    let (pixels, _) = values.as_chunks_mut::<3>();
    for (((pixel, &red), &green), &blue) in pixels.iter_mut().zip(red).zip(green).zip(blue) {
        *pixel = [red, green, blue];
    }
    values
}

pub(super) fn beyond(index: usize, len: usize) -> Error {
    Error::Setting {
        what: "the number of a sample",
        expected: format!("one below {len}, the number of samples"),
        found: index.to_string(),
    }
}
