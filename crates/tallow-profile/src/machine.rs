//! [`Machine`]: what this machine can do at best, measured, so that rates can be compared with it.

use std::sync::OnceLock;
use std::time::Instant;

use candle_core::{DType, Device, Tensor, Var};
use serde::Serialize;
use tallow_tensor::{no_grad, ops, update};

/// The best that this machine was seen to do on all threads of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Machine {
    /// Floating-point operations a second, of a large matrix product in `f32`.
    pub flops: f64,
    /// Bytes a second, of an update of a vector much larger than the caches, in place.
    pub bandwidth: f64,
}

/// Rows and columns of the product: 0.9 GFLOP.
const SIZE: usize = 768;
/// Floats of the vectors: 64 MiB each.
const FLOATS: usize = 16 << 20;
/// The best of so many runs.
const RUNS: usize = 6;

impl Machine {
    /// Measured when it is asked for the first time in this process, for a fifth of a second; zeros if that fails.
    pub fn measured() -> Self {
        static MACHINE: OnceLock<Machine> = OnceLock::new();
        *MACHINE.get_or_init(|| {
            let _guard = no_grad::enter();
            Self {
                flops: product().unwrap_or(0.0),
                bandwidth: stream().unwrap_or(0.0),
            }
        })
    }

    /// The shortest time, in seconds, in which so many operations on so many bytes can be done (the roofline of Williams et
    /// al., 2009); 0 where nothing was measured.
    pub fn limit(&self, flops: u64, bytes: u64) -> f64 {
        let time = |work: u64, rate: f64| match rate > 0.0 {
            true => work as f64 / rate,
            false => 0.0,
        };
        time(flops, self.flops).max(time(bytes, self.bandwidth))
    }
}

/// The rate of the fastest of several runs.
fn best(work: f64, mut run: impl FnMut() -> candle_core::Result<()>) -> candle_core::Result<f64> {
    let mut shortest = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        run()?;
        shortest = shortest.min(start.elapsed().as_secs_f64());
    }
    Ok(work / shortest)
}

fn product() -> candle_core::Result<f64> {
    let matrix = Tensor::ones((SIZE, SIZE), DType::F32, &Device::Cpu)?;
    let flops = 2.0 * (SIZE * SIZE * SIZE) as f64;
    best(flops, || ops::matmul(&matrix, &matrix).map(drop))
}

fn stream() -> candle_core::Result<f64> {
    let values = Tensor::ones(FLOATS, DType::F32, &Device::Cpu)?;
    let sum = Var::zeros(FLOATS, DType::F32, &Device::Cpu)?;
    // Two are read, one is written.
    let bytes = 12.0 * FLOATS as f64;
    best(bytes, || update::add_scaled(&sum, &values, 0.5))
}
