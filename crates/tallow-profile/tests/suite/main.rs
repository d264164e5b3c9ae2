//! The profiler through its public API. One profiler at a time can record in a process, so tests take turns.

mod bottlenecks;
mod compiled;
mod flops;
mod html;
mod memory;
mod recording;
mod tables;
mod trace;

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Tensor};
use tallow_profile::{Profile, Profiler, ProfilerBuilder};

static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    static MINE: Cell<bool> = const { Cell::new(false) };
}

/// No other test records, or runs what could be recorded, while this lives.
pub(crate) struct Turn(Option<MutexGuard<'static, ()>>);

impl Drop for Turn {
    fn drop(&mut self) {
        if self.0.is_some() {
            MINE.set(false);
        }
    }
}

/// Waits until no other test records. A test that has its turn may ask again.
pub(crate) fn turn() -> Turn {
    if MINE.get() {
        return Turn(None);
    }
    let guard = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    MINE.set(true);
    Turn(Some(guard))
}

/// A profiler that doesn't measure the machine.
pub(crate) fn builder() -> ProfilerBuilder {
    Profiler::builder().measure_machine(false)
}

/// What `run` does, recorded.
pub(crate) fn record(run: impl FnOnce()) -> Profile {
    let _turn = turn();
    let profiler = builder().start().unwrap();
    run();
    profiler.finish()
}

/// Images of noise, the same each time.
pub(crate) fn images(shape: (usize, usize, usize, usize)) -> Tensor {
    let mut stream = tallow_tensor::rng::Stream::new(7);
    let count = shape.0 * shape.1 * shape.2 * shape.3;
    let values: Vec<f32> = (0..count).map(|_| stream.normal() as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

pub(crate) fn labels(count: usize) -> Tensor {
    let labels: Vec<u32> = (0..count as u32).map(|index| index % 10).collect();
    Tensor::new(labels, &Device::Cpu).unwrap()
}

pub(crate) fn params() -> tallow_tensor::Params {
    tallow_tensor::Params::new(42, DType::F32, &Device::Cpu)
}
