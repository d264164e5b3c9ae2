//! Initial values, drawn from a stream that is keyed by the seed and the parameter's name.
//!
//! What is drawn (bounds, fan, gain) is exactly what [`candle_nn::Init`] says; only the source of the random numbers is
//! another one, since candle's CPU generator can't be seeded.

use candle_core::{DType, Device, Result, Shape, Tensor, Var};
use candle_nn::Init;
use candle_nn::init::NormalOrUniform;
use tallow_kernels::rng as kernels;

use crate::rng;

/// How elements are distributed, once fan and gain are known.
enum Distribution {
    Constant(f64),
    Uniform { low: f64, high: f64 },
    Normal { mean: f64, std: f64 },
}

impl Distribution {
    fn of(init: Init, shape: &Shape) -> Self {
        match init {
            Init::Const(value) => Self::Constant(value),
            Init::Uniform { lo, up } => Self::Uniform { low: lo, high: up },
            Init::Randn { mean, stdev } => Self::Normal { mean, std: stdev },
            Init::Kaiming {
                dist,
                fan,
                non_linearity,
            } => {
                let std = non_linearity.gain() / (fan.for_shape(shape) as f64).sqrt();
                match dist {
                    NormalOrUniform::Normal => Self::Normal { mean: 0.0, std },
                    NormalOrUniform::Uniform => Self::Uniform {
                        low: -3f64.sqrt() * std,
                        high: 3f64.sqrt() * std,
                    },
                }
            }
        }
    }

    fn fill(&self, key: u64, values: &mut [f32]) {
        match *self {
            Self::Constant(value) => values.fill(value as f32),
            Self::Uniform { low, high } => {
                kernels::fill_uniform(key, 0, low as f32, high as f32, values);
            }
            Self::Normal { mean, std } => {
                kernels::fill_normal(key, 0, mean as f32, std as f32, values);
            }
        }
    }
}

/// A new variable. The same numbers are drawn for every type and device, then converted.
pub(super) fn create(
    init: Init,
    shape: &Shape,
    dtype: DType,
    device: &Device,
    seed: u64,
    name: &str,
) -> Result<Var> {
    let mut values = vec![0f32; shape.elem_count()];
    Distribution::of(init, shape).fill(rng::init_key(seed, name), &mut values);
    if dtype == DType::F32 {
        return Var::from_vec(values, shape.clone(), device);
    }
    let tensor = Tensor::from_vec(values, shape.clone(), &Device::Cpu)?;
    Var::from_tensor(&tensor.to_dtype(dtype)?.to_device(device)?)
}
