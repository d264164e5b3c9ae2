//! Gradients of several batches, as of one: [`GradientSum`].

use candle_core::Var;
use candle_core::backprop::GradStore;
use tallow_tensor::update;

use crate::Result;

/// The sum of the gradients of batches, each times its number of samples.
pub(super) struct GradientSum<'a> {
    parameters: &'a [(String, Var)],
    /// None for a parameter that had no gradient yet.
    sums: Vec<Option<Var>>,
    samples: usize,
}

impl<'a> GradientSum<'a> {
    pub(super) fn new(parameters: &'a [(String, Var)]) -> Self {
        Self {
            sums: parameters.iter().map(|_| None).collect(),
            parameters,
            samples: 0,
        }
    }

    /// Adds the gradients of the mean loss of `samples` samples. They are copied: a compiled step writes its next ones to the
    /// same memory.
    pub(super) fn add(&mut self, gradients: &mut GradStore, samples: usize) -> Result<()> {
        let weight = samples as f64;
        for ((_, var), sum) in self.parameters.iter().zip(&mut self.sums) {
            let Some(gradient) = gradients.remove(var) else {
                continue;
            };
            match sum {
                Some(sum) => update::add_scaled(sum, &gradient, weight)?,
                None => *sum = Some(Var::from_tensor(&(gradient * weight)?)?),
            }
        }
        self.samples += samples;
        Ok(())
    }

    /// The gradients of the mean loss of all samples.
    pub(super) fn mean(self, gradients: &mut GradStore) -> Result<()> {
        let share = 1.0 / self.samples.max(1) as f64;
        for ((_, var), sum) in self.parameters.iter().zip(self.sums) {
            if let Some(sum) = sum {
                gradients.insert(var, (sum.as_detached_tensor() * share)?);
            }
        }
        Ok(())
    }
}
