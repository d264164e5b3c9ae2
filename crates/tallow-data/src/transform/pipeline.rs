//! [`Pipeline`]: transforms one after the other.

use std::sync::Arc;

use tallow_tensor::rng::Stream;

use super::{Fixed, Kind, Transform};
use crate::{Image, Result};

/// Begins a pipeline: pictures as they come.
pub fn pipeline() -> Pipeline<Start> {
    Pipeline {
        transform: Arc::new(Start),
    }
}

/// Transforms one after the other, beginning with an [`Image`]; cheap to clone.
///
/// The methods that lengthen it lie with the transforms, a file each.
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
        self.next.apply(self.first.apply(input, draw)?, draw)
    }
}
