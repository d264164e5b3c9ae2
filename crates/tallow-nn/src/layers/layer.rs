//! Any layer, as containers hold it.

use candle_core::{Result, Tensor};
use candle_nn::ModuleT;

/// Any layer or model behind a pointer: where the type is only known at run time, or several stand side by side.
///
/// ```
/// # use candle_core::{Device, Tensor}; use candle_nn::ModuleT;
/// use tallow_nn::{Activation, Flatten, Layer};
/// # fn main() -> candle_core::Result<()> {
/// let layers = [Layer::new(Activation::Relu), Layer::new(Flatten), Layer::new(|xs: &Tensor| xs * 2.0)];
/// let mut xs = Tensor::new(&[[[-1f32], [3.]]], &Device::Cpu)?;
/// for layer in &layers {
///     xs = layer.forward_t(&xs, false)?;
/// }
/// assert_eq!(xs.to_vec2::<f32>()?, [[0., 6.]]);
/// # Ok(()) }
/// ```
pub struct Layer(Box<dyn ModuleT + Send + Sync>);

impl Layer {
    /// Hides the type of `layer`.
    pub fn new(layer: impl ModuleT + Send + Sync + 'static) -> Self {
        Self(Box::new(layer))
    }
}

impl ModuleT for Layer {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        self.0.forward_t(xs, train)
    }
}
