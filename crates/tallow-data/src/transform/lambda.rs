//! [`Lambda`] and [`RandomLambda`]: functions of the user's own.

use std::fmt;

use tallow_tensor::rng::Stream;

use super::{Chain, Fixed, Pipeline, Random, Transform};
use crate::{Image, Result};

/// torchvision's `Lambda`: a function that gives the same for the same sample.
#[derive(Clone, Copy)]
pub struct Lambda<F>(pub F);

/// A function that draws from the sample's stream.
#[derive(Clone, Copy)]
pub struct RandomLambda<F>(pub F);

impl<I, O, F: Fn(I) -> Result<O> + Send + Sync> Transform<I> for Lambda<F> {
    type Output = O;
    type Kind = Fixed;

    fn apply(&self, input: I, _draw: &mut Stream) -> Result<O> {
        (self.0)(input)
    }
}

impl<I, O, F: Fn(I, &mut Stream) -> Result<O> + Send + Sync> Transform<I> for RandomLambda<F> {
    type Output = O;
    type Kind = Random;

    fn apply(&self, input: I, draw: &mut Stream) -> Result<O> {
        (self.0)(input, draw)
    }
}

impl<F> fmt::Debug for Lambda<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lambda")
    }
}

impl<F> fmt::Debug for RandomLambda<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RandomLambda")
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Applies a function of your own to whatever form the pipeline gives at this point (torchvision's `Lambda`). It must
    /// give the same for the same sample; one that draws belongs into [`random_lambda`](Self::random_lambda).
    ///
    /// ```
    /// use tallow_data::Image;
    /// use tallow_data::transform::{FixedPipeline, FloatImage, pipeline};
    ///
    /// # fn main() -> tallow_data::Result<()> {
    /// let inverted = pipeline().to_tensor().lambda(|mut image: FloatImage| {
    ///     image.values_mut().iter_mut().for_each(|value| *value = 1. - *value);
    ///     Ok(image)
    /// });
    /// let image = inverted.apply_fixed(Image::new(vec![0, 255], [1, 2], 1)?)?;
    /// assert_eq!(image.values(), [1., 0.]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lambda<F>(self, function: F) -> Pipeline<Chain<T, Lambda<F>>>
    where
        F: Fn(T::Output) -> Result<T::Output> + Send + Sync,
    {
        self.then(Lambda(function))
    }

    /// Applies a function of your own that draws from the stream it is given, and from nothing else.
    pub fn random_lambda<F>(self, function: F) -> Pipeline<Chain<T, RandomLambda<F>>>
    where
        F: Fn(T::Output, &mut Stream) -> Result<T::Output> + Send + Sync,
    {
        self.then(RandomLambda(function))
    }
}
