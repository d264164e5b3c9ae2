//! The learning-rate range test on a trainer: [`Trainer::find_lr`].

use candle_core::Tensor;
use candle_nn::ModuleT;
use indexmap::IndexMap;
use tallow_data::{Batch, BatchSource};
use tallow_tensor::{inplace, rng};

use super::Trainer;
use super::step::mean_loss;
use crate::lr_finder::{LrCurve, LrFinder};
use crate::{Error, OptimizerState, Result};

impl<M: ModuleT> Trainer<M> {
    /// Trains with a rate that rises from step to step, and gives the curve of the loss over the rate (Smith 2015): its
    /// [`valley`](LrCurve::valley) is a good rate to begin with.
    ///
    /// Parameters, buffers, optimizer and random state are put back to the bit, hooks aren't called, and the averaged weights
    /// stay. The test ends early when the loss diverges.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a range without sense and for several [ranks](crate::distributed), [`Error::NoBatches`] for an empty source, and whatever a step gives but
    /// a loss or gradients that are not finite.
    pub fn find_lr(&mut self, source: &dyn BatchSource, finder: &LrFinder) -> Result<LrCurve> {
        finder.check()?;
        let ranks = self.state.ranks.size();
        let what = "the number of ranks of a learning-rate range test";
        Error::require(
            ranks == 1,
            what,
            "1; run it before, in a program without `distributed`",
            &ranks,
        )?;
        let before = Snapshot::take(self)?;
        let curve = self.range_test(source, finder);
        before.put_back(self)?;
        curve
    }

    fn range_test(&mut self, source: &dyn BatchSource, finder: &LrFinder) -> Result<LrCurve> {
        let mut curve = LrCurve::default();
        let mut batches = Endless::new(source);
        for step in 0..finder.steps {
            let Some(first) = batches.next() else {
                return Err(Error::NoBatches {
                    role: "range test's",
                    epoch: batches.epoch.saturating_sub(1),
                });
            };
            let lr = finder.rate(step);
            match self.trial(&first?, &mut batches, lr, step) {
                Ok(loss) => curve.push(lr, loss, finder),
                Err(Error::NonFinite { .. } | Error::NonFiniteGradient { .. }) => break,
                Err(error) => return Err(error),
            }
            if curve.diverges(finder) {
                break;
            }
        }
        Ok(curve)
    }

    /// A step that nobody hears of; its loss.
    fn trial(
        &mut self,
        first: &Batch,
        rest: &mut dyn Iterator<Item = tallow_data::Result<Batch>>,
        lr: f64,
        step: u64,
    ) -> Result<f64> {
        self.state.optimizer.set_lr(lr);
        let updates = self.state.position.updates;
        let (seen, mut gradients) = self.group(first, rest, updates.accumulate, step)?;
        let parameters = self.state.params.trainable();
        if let Some(clip) = updates.clip {
            clip.apply(&parameters, &mut gradients)?;
        }
        self.state.optimizer.step(&parameters, &mut gradients)?;
        Ok(mean_loss(&seen))
    }
}

/// One epoch after the other.
struct Endless<'a> {
    source: &'a dyn BatchSource,
    epoch: u64,
    batches: Option<tallow_data::Batches<'a>>,
}

impl<'a> Endless<'a> {
    fn new(source: &'a dyn BatchSource) -> Self {
        Self {
            source,
            epoch: 0,
            batches: None,
        }
    }
}

impl Iterator for Endless<'_> {
    type Item = tallow_data::Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(batch) = self.batches.as_mut().and_then(Iterator::next) {
            return Some(batch);
        }
        let next = self.source.epoch(self.epoch);
        self.epoch += 1;
        match next {
            // An epoch without a batch ends it all: there may be none for ever.
            Ok(batches) => self.batches.insert(batches).next(),
            Err(error) => Some(Err(error)),
        }
    }
}

/// What a range test changes.
struct Snapshot {
    values: IndexMap<String, Tensor>,
    optimizer: OptimizerState,
    draws: rng::State,
}

impl Snapshot {
    fn take<M: ModuleT>(trainer: &Trainer<M>) -> Result<Self> {
        Ok(Self {
            values: trainer.state.params.to_tensors()?,
            optimizer: trainer.state.optimizer.state().deep_copy()?,
            draws: rng::state(),
        })
    }

    fn put_back<M: ModuleT>(self, trainer: &mut Trainer<M>) -> Result<()> {
        for entry in &trainer.state.params {
            if let Some(value) = self.values.get(&entry.name) {
                entry.var.set(value)?;
            }
        }
        inplace::touch();
        rng::restore(self.draws);
        trainer.state.optimizer.load_state(&self.optimizer)
    }
}
