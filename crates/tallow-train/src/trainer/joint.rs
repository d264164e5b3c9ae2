//! What the ranks of a training do together: one step out of what each has seen.

use std::sync::Arc;

use candle_core::backprop::GradStore;
use candle_nn::ModuleT;
use tallow_tensor::params::Kind;
use tallow_tensor::{inplace, sync};

use super::step::{Seen, mean_loss};
use super::{State, Trainer};
use crate::Result;
use crate::distributed::Part;
use crate::metrics::Tally;

/// The passes of one step on all ranks.
pub(super) struct JointStep {
    /// The mean loss of a sample.
    pub(super) loss: f64,
    pub(super) tally: Tally,
    /// This rank's part of the samples.
    share: f64,
}

impl<M: ModuleT> Trainer<M> {
    /// While it lives, batch norms take their statistics from all ranks, if that was asked for.
    pub(super) fn share_statistics(&self) -> Option<sync::SyncGuard> {
        let ranks = &self.state.ranks;
        let shared = self.sync_batch_norm && !ranks.are_alone();
        shared.then(|| sync::enter(Arc::new(ranks.clone())))
    }

    /// Whether a stop was requested, on any rank.
    pub(super) fn stops(&mut self) -> Result<bool> {
        let state = &mut self.state;
        state.stop = state.ranks.count(state.stop)? > 0;
        Ok(state.stop)
    }
}

impl State {
    /// What all ranks have seen in this step.
    pub(super) fn join_step(&self, seen: &[Seen]) -> Result<JointStep> {
        let mut tally = Tally::default();
        for batch in seen {
            tally.add(batch.loss, &batch.outputs, &batch.labels, self.measure)?;
        }
        let loss = mean_loss(seen);
        if self.ranks.are_alone() {
            return Ok(JointStep {
                loss,
                tally,
                share: 1.0,
            });
        }
        let samples: usize = seen.iter().map(Seen::samples).sum();
        let own = samples as f64;
        let [a, b, c, d] = tally.numbers();
        let mut sums = [a, b, c, d, own, own * loss];
        self.ranks.sum(&mut sums)?;
        let [a, b, c, d, total, weighed] = sums;
        Ok(JointStep {
            loss: weighed / total,
            tally: Tally::from_numbers([a, b, c, d]),
            share: own / total,
        })
    }

    /// The tally of all ranks.
    pub(super) fn join_tally(&self, tally: &Tally) -> Result<Tally> {
        let mut numbers = tally.numbers();
        self.ranks.sum(&mut numbers)?;
        Ok(Tally::from_numbers(numbers))
    }

    /// Makes gradients, and the buffers that the passes changed, those of all ranks' samples.
    pub(super) fn average(&self, gradients: &mut GradStore, step: &JointStep) -> Result<()> {
        if self.ranks.are_alone() {
            return Ok(());
        }
        let buffers = self.params.iter().filter(|entry| {
            entry.kind == Kind::Buffer && !entry.frozen && entry.var.dtype().is_float()
        });
        let mut parts: Vec<Part> = buffers
            .map(|entry| Part {
                value: Some(entry.var.as_detached_tensor()),
                var: entry.var,
            })
            .collect();
        let first_gradient = parts.len();
        parts.extend(self.params.trainable().into_iter().map(|(_, var)| Part {
            value: gradients.remove(&var),
            var,
        }));
        self.ranks.average(&mut parts, step.share)?;
        let gradients_of = parts.split_off(first_gradient);
        for Part { var, value } in parts {
            if let Some(value) = value {
                var.set(&value)?;
            }
        }
        inplace::touch();
        for Part { var, value } in gradients_of {
            if let Some(value) = value {
                gradients.insert(&var, value);
            }
        }
        Ok(())
    }
}
