//! A branch and its shortcut.

use candle_core::{Result, Tensor};
use candle_nn::ModuleT;
use tallow_tensor::ops;

use super::{DropPath, Layer};

/// `y = x + body(x)`, or `shortcut(x) + drop_path(body(x))` (He et al. 2016): both sides must have the same shape.
///
/// ```
/// # use candle_core::{Device, Tensor}; use candle_nn::ModuleT;
/// use tallow_nn::{Activation, Residual};
/// # fn main() -> candle_core::Result<()> {
/// let twice_if_positive = Residual::new(Activation::Relu);
/// let y = twice_if_positive.forward_t(&Tensor::new(&[-1f32, 2.], &Device::Cpu)?, false)?;
/// assert_eq!(y.to_vec1::<f32>()?, [-1., 4.]);
/// # Ok(()) }
/// ```
pub struct Residual {
    body: Layer,
    shortcut: Option<Layer>,
    drop_path: Option<DropPath>,
}

impl Residual {
    /// With the input itself as the shortcut.
    pub fn new(body: impl ModuleT + Send + Sync + 'static) -> Self {
        Self {
            body: Layer::new(body),
            shortcut: None,
            drop_path: None,
        }
    }

    /// With a projection on the shortcut, where the branch changes the shape.
    pub fn shortcut(mut self, shortcut: impl ModuleT + Send + Sync + 'static) -> Self {
        self.shortcut = Some(Layer::new(shortcut));
        self
    }

    /// With stochastic depth on the branch.
    pub fn drop_path(mut self, drop_path: DropPath) -> Self {
        self.drop_path = Some(drop_path);
        self
    }
}

impl ModuleT for Residual {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let mut ys = self.body.forward_t(xs, train)?;
        if let Some(drop_path) = &self.drop_path {
            ys = drop_path.forward_t(&ys, train)?;
        }
        match &self.shortcut {
            Some(shortcut) => ops::add(&shortcut.forward_t(xs, train)?, &ys),
            None => ops::add(xs, &ys),
        }
    }
}
