//! The state of an optimizer as plain named numbers and tensors, for checkpoints and for reading.

use std::collections::BTreeMap;

use candle_core::{Tensor, Var};

use crate::{Error, Result};

/// All that the next updates of an optimizer depend on.
#[derive(Debug, Clone, Default)]
pub struct OptimizerState {
    /// The update rule, such as "adamw".
    pub algorithm: String,
    /// Its settings by PyTorch's names, such as "lr" and "weight_decay"; yes is 1 and no is 0.
    pub settings: BTreeMap<String, f64>,
    /// What it remembers of each parameter that was ever updated, by the parameter's name.
    pub parameters: BTreeMap<String, ParameterState>,
}

/// What an optimizer remembers of one parameter.
#[derive(Debug, Clone, Default)]
pub struct ParameterState {
    /// How many updates the parameter has had.
    pub step: u64,
    /// Tensors by PyTorch's names, such as "exp_avg", of the parameter's shape.
    pub tensors: BTreeMap<String, Tensor>,
}

impl OptimizerState {
    /// A state without settings and parameters.
    pub fn new(algorithm: &str) -> Self {
        Self {
            algorithm: algorithm.to_string(),
            ..Self::default()
        }
    }

    /// A state with these settings, and no parameters yet.
    pub(crate) fn with_settings<const N: usize>(
        algorithm: &str,
        settings: [(&str, f64); N],
    ) -> Self {
        let settings = settings.map(|(name, value)| (name.to_string(), value));
        Self {
            algorithm: algorithm.to_string(),
            settings: settings.into(),
            parameters: BTreeMap::new(),
        }
    }

    /// Checks that this is a state of `algorithm`.
    ///
    /// # Errors
    ///
    /// [`Error::OptimizerState`] names both algorithms.
    pub fn expect(&self, algorithm: &str) -> Result<()> {
        if self.algorithm == algorithm {
            return Ok(());
        }
        Err(Error::OptimizerState(format!(
            "a state of the optimizer `{}` for the optimizer `{algorithm}`; train on with `{}`, or load the parameters alone",
            self.algorithm, self.algorithm
        )))
    }

    /// A setting by name.
    ///
    /// # Errors
    ///
    /// [`Error::OptimizerState`] if there is none of that name.
    pub fn setting(&self, name: &str) -> Result<f64> {
        self.settings.get(name).copied().ok_or_else(|| {
            Error::OptimizerState(format!(
                "the state of the optimizer `{}` lacks the setting `{name}`",
                self.algorithm
            ))
        })
    }

    /// The same state with tensors of its own, which later updates don't change.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] if a copy fails.
    pub fn deep_copy(&self) -> Result<Self> {
        let mut copy = self.clone();
        for state in copy.parameters.values_mut() {
            for tensor in state.tensors.values_mut() {
                *tensor = tensor.copy()?.detach();
            }
        }
        Ok(copy)
    }
}

impl ParameterState {
    /// A copy of the tensor `slot` that an optimizer may change; `name` is the parameter's, for the error.
    pub(crate) fn owned(&self, name: &str, slot: &str) -> Result<Var> {
        let tensor = self.tensors.get(slot).ok_or_else(|| {
            Error::OptimizerState(format!("`{slot}` of parameter `{name}` is missing"))
        })?;
        Ok(Var::from_tensor(&tensor.copy()?.detach())?)
    }
}
