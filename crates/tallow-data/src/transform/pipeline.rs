//! [`Pipeline`]: transforms one after the other.

use std::sync::Arc;

use tallow_tensor::rng::Stream;

use super::{Fixed, Kind, Repeatable, Staged, Transform};
use crate::{Image, Result, trace};

/// Begins a pipeline: pictures as they come.
pub fn pipeline() -> Pipeline<Start> {
    Pipeline {
        transform: Arc::new(Start),
    }
}

/// Transforms one after the other, beginning with an [`Image`]; cheap to clone.
///
/// The methods that lengthen it lie with the transforms, a file each.
///
/// ```
/// use tallow_data::transform::pipeline;
/// use tallow_data::{Image, Normalize};
/// use tallow_tensor::rng::{self, Purpose, Stream};
///
/// # fn main() -> tallow_data::Result<()> {
/// let train = pipeline()
///     .random_crop(32, 4)
///     .random_horizontal_flip(0.5)
///     .to_tensor()
///     .normalize(Normalize::all(0.5, 0.25));
///
/// let image = Image::new(vec![128; 32 * 32 * 3], [32, 32], 3)?;
/// let (seed, epoch, sample) = (42, 0, 7);
/// let key = rng::key(seed, Purpose::Augment, epoch, sample);
/// let once = train.apply(image.clone(), &mut Stream::new(key))?;
/// assert_eq!(once.shape(), [3, 32, 32]);
/// assert_eq!(once, train.apply(image, &mut Stream::new(key))?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pipeline<T> {
    transform: Arc<T>,
}

impl<T> Clone for Pipeline<T> {
    fn clone(&self) -> Self {
        Self {
            transform: Arc::clone(&self.transform),
        }
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Lengthens the pipeline by any transform that takes what it gives so far.
    pub fn then<U: Transform<T::Output>>(self, next: U) -> Pipeline<Chain<T, U>> {
        Pipeline {
            transform: Arc::new(Chain {
                first: self.transform,
                next,
            }),
        }
    }

    /// Changes one picture; random numbers come from `draw`.
    ///
    /// # Errors
    ///
    /// What a transform can't do to this picture.
    pub fn apply(&self, image: Image, draw: &mut Stream) -> Result<T::Output> {
        self.transform.apply(image, draw)
    }

    /// Whether the settings of all transforms make sense, before any picture is there.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`](crate::Error::Setting) naming the transform and the setting.
    pub fn check(&self) -> Result<()> {
        self.transform.check()
    }
}

/// A pipeline that gives the same for the same picture every time: what evaluation takes.
///
/// Implemented for every [`Pipeline`] without random transforms; a random one does not compile where this is asked for.
pub trait FixedPipeline: Send + Sync {
    /// The form that the pipeline gives.
    type Output;

    /// Changes one picture; nothing is drawn.
    ///
    /// # Errors
    ///
    /// What a transform can't do to this picture.
    fn apply_fixed(&self, image: Image) -> Result<Self::Output>;
}

impl<T: Transform<Image>> FixedPipeline for Pipeline<T>
where
    T::Kind: Repeatable,
{
    type Output = T::Output;

    fn apply_fixed(&self, image: Image) -> Result<T::Output> {
        self.transform.apply(image, &mut Stream::new(0))
    }
}

/// The beginning of a pipeline.
#[derive(Debug, Clone, Copy)]
pub struct Start;

impl Transform<Image> for Start {
    type Output = Image;
    type Kind = Fixed;

    fn apply(&self, image: Image, _draw: &mut Stream) -> Result<Image> {
        Ok(image)
    }
}

/// A pipeline and the transform behind it.
#[derive(Debug)]
pub struct Chain<T, U> {
    first: Arc<T>,
    next: U,
}

impl<I, T: Transform<I>, U: Transform<T::Output>> Transform<I> for Chain<T, U> {
    type Output = U::Output;
    type Kind = <T::Kind as Kind>::Then<U::Kind>;

    fn apply(&self, input: I, draw: &mut Stream) -> Result<U::Output> {
        trace::stage_of::<U, _>(|| self.next.apply_after(&*self.first, input, draw))
    }

    fn before_resize(&self, input: I, draw: &mut Stream) -> Result<Staged<U::Output>> {
        self.next
            .before_resize(self.first.apply(input, draw)?, draw)
    }

    fn check(&self) -> Result<()> {
        self.first.check()?;
        self.next.check()
    }
}
