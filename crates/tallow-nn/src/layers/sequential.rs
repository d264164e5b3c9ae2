//! Layers one after the other.

use candle_core::{Result, Tensor};
use candle_nn::{ModuleT, VarBuilder};
use tallow_tensor::scope;

use super::Layer;

/// `nn.Sequential`: each layer takes the output of the one before.
///
/// The builder numbers the layers as PyTorch does, those without parameters included, so that `features.3.weight`
/// means the same on both sides:
///
/// ```
/// # use candle_core::{DType, Device, Tensor}; use candle_nn::{ModuleT, VarBuilder, VarMap};
/// use tallow_nn::{Activation, Conv2d, Conv2dConfig, MaxPool2d, Sequential};
/// # fn main() -> candle_core::Result<()> {
/// let vars = VarMap::new();
/// let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
/// let features = Sequential::builder(vb.pp("features"))
///     .layer(|vb| Conv2d::new(1, 4, 3, Conv2dConfig::default(), vb))?
///     .then(Activation::Relu)
///     .then(MaxPool2d::new(2))
///     .layer(|vb| Conv2d::new(4, 8, 3, Conv2dConfig::default(), vb))?
///     .build();
/// assert!(vars.data().lock().unwrap().contains_key("features.3.weight"));
/// let y = features.forward_t(&Tensor::zeros((1, 1, 12, 12), DType::F32, &Device::Cpu)?, false)?;
/// assert_eq!(y.dims(), [1, 8, 3, 3]);
/// # Ok(()) }
/// ```
pub struct Sequential {
    layers: Vec<Layer>,
    /// One a layer, where the builder gave them names.
    paths: Vec<String>,
}

impl Sequential {
    /// Of layers that exist already; none at all is the identity.
    pub fn new(layers: Vec<Layer>) -> Self {
        Self {
            layers,
            paths: Vec::new(),
        }
    }

    /// Builds layers under `vb`, named by their index.
    pub fn builder(vb: VarBuilder) -> SequentialBuilder {
        SequentialBuilder {
            layers: Vec::new(),
            vb,
        }
    }

    /// How many layers there are.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }
}

impl ModuleT for Sequential {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let mut xs = xs.clone();
        for (index, layer) in self.layers.iter().enumerate() {
            let _scope = self.paths.get(index).map(|path| scope::enter(path));
            xs = layer.forward_t(&xs, train)?;
        }
        Ok(xs)
    }
}

/// See [`Sequential::builder`].
pub struct SequentialBuilder<'a> {
    layers: Vec<Layer>,
    vb: VarBuilder<'a>,
}

impl<'a> SequentialBuilder<'a> {
    /// Adds the layer that `make` builds under the next index.
    pub fn layer<M>(mut self, make: impl FnOnce(VarBuilder<'a>) -> Result<M>) -> Result<Self>
    where
        M: ModuleT + Send + Sync + 'static,
    {
        let layer = make(self.vb.pp(self.layers.len()))?;
        self.layers.push(Layer::new(layer));
        Ok(self)
    }

    /// Adds a layer without parameters; it takes an index as well.
    pub fn then(mut self, layer: impl ModuleT + Send + Sync + 'static) -> Self {
        self.layers.push(Layer::new(layer));
        self
    }

    /// The finished chain.
    pub fn build(self) -> Sequential {
        let prefix = self.vb.prefix();
        let paths = (0..self.layers.len())
            .map(|index| numbered(&prefix, index))
            .collect();
        Sequential {
            layers: self.layers,
            paths,
        }
    }
}

/// The path of layer `index` of the chain at `prefix`.
fn numbered(prefix: &str, index: usize) -> String {
    if prefix.is_empty() {
        index.to_string()
    } else {
        format!("{prefix}.{index}")
    }
}
