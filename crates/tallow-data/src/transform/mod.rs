//! Changes to pictures on their way into a batch, typed: a pipeline in a wrong order doesn't compile.
//!
//! A [`Pipeline`] begins with an [`Image`](crate::Image) (bytes, `[H, W, C]`), becomes a [`FloatImage`] (`[C, H, W]`, 0 to 1) by
//! `to_tensor` and a [`NormalizedImage`] by `normalize`. Each form has only the methods that make sense for it. Whether
//! a pipeline draws random numbers is part of its type as well ([`Fixed`], [`Random`]): evaluation takes only fixed ones.
//!
//! Names, parameters and meaning are those of `torchvision.transforms.v2`. What a transform draws comes from a
//! [`Stream`] that is keyed by (seed, epoch, sample): never from a thread or a worker.

mod forms;
mod pipeline;

use tallow_tensor::rng::Stream;

use crate::Result;

pub use forms::{FloatImage, NormalizedImage};
pub use pipeline::{Chain, Pipeline, Start, pipeline};

/// A step from one form of a sample to another.
pub trait Transform<Input>: Send + Sync {
    /// The form that it gives.
    type Output;
    /// Whether it draws: [`Fixed`] or [`Random`].
    type Kind: Kind;

    /// Changes one sample; random numbers come from `draw`.
    ///
    /// # Errors
    ///
    /// What the transform can't do to this sample, naming the sizes that don't fit.
    fn apply(&self, input: Input, draw: &mut Stream) -> Result<Self::Output>;
}

/// A transform that gives the same for the same sample.
#[derive(Debug, Clone, Copy)]
pub enum Fixed {}

/// A transform that draws.
#[derive(Debug, Clone, Copy)]
pub enum Random {}

/// [`Fixed`] or [`Random`].
pub trait Kind: 'static {
    /// The kind of a pipeline of this kind that is lengthened by a transform of kind `Next`.
    type Then<Next: Kind>: Kind;
}

impl Kind for Fixed {
    type Then<Next: Kind> = Next;
}

impl Kind for Random {
    type Then<Next: Kind> = Random;
}
