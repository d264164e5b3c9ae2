//! Plans by signature: made when a new one is met, up to a limit.

use std::fmt;

use tallow_graph::TensorType;

use crate::{Error, Metrics, Result};

/// What a plan is valid for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Signature {
    /// The types of the inputs.
    pub(crate) inputs: Vec<TensorType>,
    /// The parameters that don't learn.
    pub(crate) frozen: Vec<String>,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.inputs.iter().map(ToString::to_string).collect();
        write!(f, "({})", names.join(", "))?;
        match self.frozen.len() {
            0 => Ok(()),
            1 => write!(f, " with `{}` frozen", self.frozen[0]),
            count => write!(f, " with {count} parameters frozen"),
        }
    }
}

/// Plans, each for one signature.
pub(crate) struct Cache<P> {
    plans: Vec<(Signature, P)>,
    limit: usize,
}

impl<P> Cache<P> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            plans: Vec::new(),
            limit,
        }
    }

    /// The plan for a signature; `make` makes one that isn't there yet.
    pub(crate) fn get(
        &mut self,
        signature: &Signature,
        metrics: &mut Metrics,
        make: impl FnOnce(&mut Metrics) -> Result<P>,
    ) -> Result<&mut P> {
        let known = self.plans.iter().position(|(known, _)| known == signature);
        let index = match known {
            Some(index) => {
                metrics.cache_hits += 1;
                index
            }
            None => {
                self.check_room(signature)?;
                let _span = tracing::debug_span!(
                    target: "tallow",
                    "compile",
                    signature = signature.to_string().as_str(),
                    plans = self.plans.len(),
                )
                .entered();
                let start = std::time::Instant::now();
                let plan = make(metrics)?;
                metrics.compile_time += start.elapsed();
                metrics.recompiles += u64::from(!self.plans.is_empty());
                self.plans.push((signature.clone(), plan));
                self.plans.len() - 1
            }
        };
        Ok(&mut self.plans[index].1)
    }

    /// All plans, in the order in which they were made.
    pub(crate) fn plans(&self) -> impl Iterator<Item = &P> {
        self.plans.iter().map(|(_, plan)| plan)
    }

    fn check_room(&self, signature: &Signature) -> Result<()> {
        if self.plans.len() < self.limit {
            return Ok(());
        }
        Err(Error::CacheLimit {
            limit: self.limit,
            known: self
                .plans
                .iter()
                .map(|(known, _)| known.to_string())
                .collect(),
            found: signature.to_string(),
        })
    }
}
