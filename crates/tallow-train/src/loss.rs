//! What is minimised: the [`Loss`] trait, met by cross entropy and by plain functions.
//!
//! The computation itself is [`tallow_tensor::ops::cross_entropy`].

use candle_core::Tensor;
use tallow_tensor::ops;
pub use tallow_tensor::ops::CrossEntropyConfig;

/// From a model's outputs and the labels to one number, the mean over the batch.
///
/// [`CrossEntropyConfig`] is a loss, and so is every function from outputs and labels to a scalar tensor:
///
/// ```
/// use candle_core::{Device, Tensor};
/// use tallow_train::Loss;
///
/// /// Half the cross entropy.
/// fn half(logits: &Tensor, labels: &Tensor) -> candle_core::Result<Tensor> {
///     candle_nn::loss::cross_entropy(logits, labels)? * 0.5
/// }
///
/// # fn main() -> candle_core::Result<()> {
/// let logits = Tensor::new(&[[0f32, 0.0]], &Device::Cpu)?;
/// let labels = Tensor::new(&[1u32], &Device::Cpu)?;
/// let loss = half.loss(&logits, &labels)?.to_scalar::<f32>()?;
/// assert!((loss - 0.5 * 2f32.ln()).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
pub trait Loss {
    /// The loss as a scalar that can be differentiated, for `outputs` of the model (`[N, classes]` for a classifier)
    /// and `labels`: `[N]` u32, or `[N, classes]` f32 probabilities where the batch has [mixed labels](tallow_data::Mix).
    ///
    /// # Errors
    ///
    /// What the computation gives.
    fn loss(&self, outputs: &Tensor, labels: &Tensor) -> candle_core::Result<Tensor>;

    /// The label whose samples don't count, in the loss and in the metrics.
    fn ignored_label(&self) -> Option<i64> {
        None
    }
}

impl Loss for CrossEntropyConfig {
    fn loss(&self, outputs: &Tensor, labels: &Tensor) -> candle_core::Result<Tensor> {
        ops::cross_entropy(outputs, labels, self)
    }

    fn ignored_label(&self) -> Option<i64> {
        self.ignore_index
    }
}

impl<F: Fn(&Tensor, &Tensor) -> candle_core::Result<Tensor>> Loss for F {
    fn loss(&self, outputs: &Tensor, labels: &Tensor) -> candle_core::Result<Tensor> {
        self(outputs, labels)
    }
}
