//! [`ClassScores`]: how well each class is told from the others, after every evaluation.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::Tensor;

use crate::metrics::{Average, ConfusionMatrix};
use crate::{Error, Hook, HookContext, Result};

/// Fills a [`ConfusionMatrix`] in every evaluation, and records `precision_macro`, `recall_macro` and `f1_macro` of it in the
/// history, where [`EarlyStopping`](super::EarlyStopping) and logs find them.
///
/// ```
/// use tallow_train::hooks::ClassScores;
///
/// # fn main() -> tallow_train::Result<()> {
/// let scores = ClassScores::new(10)?.average(tallow_train::metrics::Average::Weighted);
/// let matrix = scores.matrix(); // to be read after fit or evaluate
/// let hook = Box::new(scores);
/// assert_eq!(matrix.get().samples(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ClassScores {
    /// Of the evaluation that is running.
    current: ConfusionMatrix,
    last: LastMatrix,
    average: Average,
    ignored: Option<i64>,
}

/// The matrix of the last evaluation that ended; shared with its hook.
#[derive(Debug, Clone)]
pub struct LastMatrix(Arc<Mutex<ConfusionMatrix>>);

impl LastMatrix {
    /// A copy of it; empty before the first evaluation.
    pub fn get(&self) -> ConfusionMatrix {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl ClassScores {
    /// For a model of this many classes.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for no class.
    pub fn new(classes: usize) -> Result<Self> {
        let empty = ConfusionMatrix::new(classes)?;
        Ok(Self {
            last: LastMatrix(Arc::new(Mutex::new(empty.clone()))),
            current: empty,
            average: Average::Macro,
            ignored: None,
        })
    }

    /// Records another average, as `precision_weighted` and so on.
    pub fn average(mut self, average: Average) -> Self {
        self.average = average;
        self
    }

    /// Leaves out samples with this label.
    pub fn ignored_label(mut self, label: i64) -> Self {
        self.ignored = Some(label);
        self
    }

    /// Where the matrix of the last evaluation can be read.
    pub fn matrix(&self) -> LastMatrix {
        self.last.clone()
    }

    fn clear(&mut self) -> Result<()> {
        self.current = ConfusionMatrix::new(self.current.classes())?;
        Ok(())
    }
}

impl Hook for ClassScores {
    fn on_evaluate_begin(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        self.clear()
    }

    fn on_evaluate_batch(
        &mut self,
        _context: &mut HookContext<'_>,
        outputs: &Tensor,
        labels: &Tensor,
    ) -> Result<()> {
        self.current.add_batch(outputs, labels, self.ignored)
    }

    fn on_evaluate_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        self.current.sum_over_ranks(context)?;
        let what = "an evaluation with scores by class";
        Error::require(
            self.current.samples() > 0,
            what,
            "at least 1 counted sample",
            &0,
        )?;
        if context.within_epoch() {
            let scores = self.current.average(self.average);
            let name = match self.average {
                Average::Macro => "macro",
                Average::Micro => "micro",
                Average::Weighted => "weighted",
            };
            context.record(&format!("precision_{name}"), scores.precision)?;
            context.record(&format!("recall_{name}"), scores.recall)?;
            context.record(&format!("f1_{name}"), scores.f1)?;
        }
        *self.last.0.lock().unwrap_or_else(PoisonError::into_inner) = self.current.clone();
        Ok(())
    }
}
