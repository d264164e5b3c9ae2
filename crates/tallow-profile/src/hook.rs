//! [`ProfilerHook`]: a profiler that follows a trainer.

use candle_core::Tensor;
use tallow_train::{Hook, HookContext, Result};

use crate::Profiler;

/// Ends a profiler's step with each step of a trainer, and tells it what parameters, gradients and the optimizer hold.
///
/// What runs between two steps (waiting for the next batch, an evaluation) belongs to the later one.
///
/// ```
/// use tallow_profile::{Profiler, Schedule};
/// # use candle_core::{Device, Tensor};
/// # use tallow_data::Batch;
/// # use tallow_tensor::Params;
/// use tallow_train::Trainer;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let images = Tensor::new(&[[0.9f32, 0.1], [0.2, 0.5]], &Device::Cpu)?.reshape((2, 1, 1, 2))?;
/// # let data = vec![Batch::new(images, Tensor::new(&[0u32, 1], &Device::Cpu)?)?; 5];
/// # let params = Params::f32_cpu();
/// # let head = candle_nn::linear(2, 2, params.builder().pp("head"))?;
/// # let model = candle_nn::func_t(move |xs, _| candle_nn::Module::forward(&head, &xs.flatten_from(1)?));
/// let profiler = Profiler::builder().schedule(Schedule::once(1, 1, 3)).start()?;
/// let mut trainer = Trainer::builder(model, params).hook(Box::new(profiler.hook())).build()?;
/// trainer.fit(&data, None)?;
/// assert_eq!(profiler.finish().steps.len(), 3);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ProfilerHook {
    profiler: Profiler,
}

impl ProfilerHook {
    pub(crate) fn new(profiler: Profiler) -> Self {
        Self { profiler }
    }
}

fn bytes(tensor: &Tensor) -> u64 {
    (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64
}

impl Hook for ProfilerHook {
    fn on_fit_begin(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        let parameters = context.params().iter().map(|entry| bytes(&entry.var));
        self.profiler.note_memory("parameters", parameters.sum());
        let trainable = context.params().trainable();
        let gradients = trainable.iter().map(|(_, var)| bytes(var));
        self.profiler.note_memory("gradients", gradients.sum());
        Ok(())
    }

    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        // What the optimizer remembers is there after its first update, and stays as large.
        if context.batch() == 1 {
            let state = context.optimizer().state();
            let tensors = state.parameters.values().flat_map(|of| of.tensors.values());
            let held = tensors.map(bytes).sum();
            self.profiler.note_memory("optimizer state", held);
        }
        self.profiler.step();
        Ok(())
    }
}
