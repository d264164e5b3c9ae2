//! How much of the data a training sees: [`Limits`], and [`Limited`], a source cut short.

use tallow_data::{BatchSource, Batches};

/// What the builder's limits ask for; all of the data by default.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    /// Batches of an epoch.
    pub(super) train: Option<usize>,
    /// Batches of an evaluation.
    pub(super) evaluation: Option<usize>,
    /// Batches of the rehearsal of an evaluation before the first step.
    pub(super) rehearsal: Option<usize>,
    /// The first batches of epoch 0 again and again, also as the evaluation.
    pub(super) overfit: Option<usize>,
}

impl Limits {
    /// What `fit` trains on.
    pub(super) fn training<'a>(&self, source: &'a dyn BatchSource) -> Limited<'a> {
        Limited {
            source,
            batches: self.overfit.or(self.train),
            always_first: self.overfit.is_some(),
        }
    }

    /// What `fit` evaluates on, if at all: the training source if its first batches are to be learned by heart.
    pub(super) fn evaluated<'a>(
        &self,
        train: &'a dyn BatchSource,
        evaluation: Option<&'a dyn BatchSource>,
    ) -> Option<&'a dyn BatchSource> {
        match self.overfit {
            Some(_) => evaluation.map(|_| train),
            None => evaluation,
        }
    }

    /// A source as an evaluation sees it.
    pub(super) fn evaluation<'a>(&self, source: &'a dyn BatchSource) -> Limited<'a> {
        Limited {
            source,
            batches: self.overfit.or(self.evaluation),
            always_first: false,
        }
    }

    pub(super) fn rehearses(&self) -> bool {
        self.rehearsal.is_some()
    }

    /// A source as the rehearsal of an evaluation sees it.
    pub(super) fn rehearsal<'a>(&self, source: &'a dyn BatchSource) -> Limited<'a> {
        Limited {
            source,
            batches: self.rehearsal,
            always_first: false,
        }
    }
}

/// The first batches of a source.
pub(super) struct Limited<'a> {
    source: &'a dyn BatchSource,
    /// None: all.
    batches: Option<usize>,
    /// Whether every epoch is epoch 0.
    always_first: bool,
}

impl BatchSource for Limited<'_> {
    fn epoch(&self, epoch: u64) -> tallow_data::Result<Batches<'_>> {
        let epoch = if self.always_first { 0 } else { epoch };
        let batches = self.source.epoch(epoch)?;
        Ok(match self.batches {
            Some(count) => Box::new(batches.take(count)),
            None => batches,
        })
    }

    fn len_hint(&self) -> Option<usize> {
        let found = self.source.len_hint()?;
        Some(self.batches.map_or(found, |limit| limit.min(found)))
    }
}
