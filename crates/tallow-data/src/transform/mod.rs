//! Changes to pictures on their way into a batch, typed: a pipeline in a wrong order doesn't compile.
//!
//! A [`Pipeline`] begins with an [`Image`] (bytes, `[H, W, C]`), becomes a [`FloatImage`] (`[C, H, W]`, 0 to 1) by
//! `to_tensor` and a [`NormalizedImage`] by `normalize`. Each form has only the methods that make sense for it. Whether
//! a pipeline draws random numbers is part of its type as well ([`Fixed`], [`Random`]): evaluation takes only fixed ones.
//!
//! Names, parameters and meaning are those of `torchvision.transforms.v2`. What a transform draws comes from a
//! [`Stream`] that is keyed by (seed, epoch, sample): never from a thread or a worker.

mod affine;
mod auto_augment;
mod center_crop;
mod color_jitter;
mod flip;
mod forms;
pub mod functional;
mod grayscale;
mod lambda;
mod mix;
mod normalize;
mod pipeline;
mod rand_augment;
mod random_affine;
mod random_crop;
mod random_erasing;
mod random_resized_crop;
mod resample;
mod resize;
mod rotation;
mod setting;
mod to_tensor;
mod trivial_augment;
mod warp;

use tallow_tensor::rng::Stream;

use crate::{Image, Result};

pub use affine::Affine;
pub use center_crop::CenterCrop;
pub use color_jitter::ColorJitter;
pub use flip::{RandomHorizontalFlip, RandomVerticalFlip};
pub use forms::{FloatImage, NormalizedImage};
pub use grayscale::RandomGrayscale;
pub use lambda::{Lambda, RandomLambda};
pub(crate) use mix::check_alpha;
pub use mix::{CutMix, MixUp, Mixed};
pub use pipeline::{Chain, FixedPipeline, Pipeline, Start, pipeline};
pub use rand_augment::RandAugment;
pub use random_affine::RandomAffine;
pub use random_crop::{PaddingMode, RandomCrop};
pub use random_erasing::{Erase, RandomErasing};
pub use random_resized_crop::RandomResizedCrop;
pub use resample::Interpolation;
pub use resize::{Resize, ResizeTo};
pub use rotation::{RandomRotation, Rotation};
pub use setting::Size;
pub use to_tensor::ToTensor;
pub use trivial_augment::TrivialAugmentWide;

/// A step from one form of a sample to another.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't follow here: the pipeline gives `{Input}` at this point, which it does not take",
    label = "not for `{Input}`",
    note = "the order is: pictures (`Image`: resize, crop, flip, colour), then `.to_tensor()` (`FloatImage`), then `.normalize(..)` (`NormalizedImage`)"
)]
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

    /// What is left to do when all but a last resizing is done: who cuts a part out of the result needs only that part.
    #[doc(hidden)]
    fn before_resize(&self, input: Input, draw: &mut Stream) -> Result<Staged<Self::Output>> {
        self.apply(input, draw).map(Staged::Done)
    }

    /// Applies `first`, then this one.
    #[doc(hidden)]
    fn apply_after<I, F>(&self, first: &F, input: I, draw: &mut Stream) -> Result<Self::Output>
    where
        F: Transform<I, Output = Input>,
        Self: Sized,
    {
        self.apply(first.apply(input, draw)?, draw)
    }

    /// Whether its settings make sense, before any sample is there; [`apply`](Self::apply) says the same.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`](crate::Error::Setting) naming the transform and the setting.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// The result of a transform, or the picture that it ends in resizing.
#[doc(hidden)]
#[derive(Debug)]
pub enum Staged<O> {
    /// The result.
    Done(O),
    /// The picture before its last change, which is this one.
    Resize(Image, Resize),
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

/// A kind that may be used in evaluation: [`Fixed`] alone.
#[diagnostic::on_unimplemented(
    message = "this pipeline draws random numbers, and evaluation takes only pipelines that give the same every time",
    label = "a random pipeline",
    note = "leave out the random transforms: `resize` and `center_crop` instead of `random_resized_crop`, no flips, no colour jitter"
)]
pub trait Repeatable: Kind {}

impl Repeatable for Fixed {}

impl Kind for Fixed {
    type Then<Next: Kind> = Next;
}

impl Kind for Random {
    type Then<Next: Kind> = Random;
}
