//! The two moments that Adam and its kin keep of every parameter.

use std::collections::{BTreeMap, HashMap};

use candle_core::Var;
use tallow_tensor::update::Item;

use super::groups::Grouping;
use super::{OptimizerState, ParameterState, Update};
use crate::Result;

const EXP_AVG: &str = "exp_avg";
const EXP_AVG_SQ: &str = "exp_avg_sq";

/// Updates done, and the moving averages of the gradient and of its square.
#[derive(Debug)]
pub(super) struct Moments {
    pub(super) step: u64,
    pub(super) exp_avg: Var,
    pub(super) exp_avg_sq: Var,
}

/// The moments of each parameter by name.
#[derive(Debug, Default)]
pub(super) struct AllMoments(HashMap<String, Moments>);

impl AllMoments {
    /// Updates all of these parameters with `pass`. What is passed for each comes from `settings`, which is given the learning rate
    /// and weight decay of the parameter's group (of the optimizer's own, `options`) and the number of the update, from 1.
    pub(super) fn apply<U>(
        &mut self,
        groups: &mut Grouping,
        updates: &[Update<'_>],
        options: (f64, f64),
        settings: impl Fn((f64, f64), u64) -> U,
        pass: impl FnOnce(&[Item<'_, U>]) -> candle_core::Result<()>,
    ) -> Result<()> {
        for each in updates {
            self.meet(each.name, each.parameter)?;
            groups.meet(each.name, each.parameter);
        }
        let (lr, weight_decay) = options;
        let items = updates.iter().filter_map(|each| {
            let moments = self.get(each.name)?;
            Some(Item {
                parameter: each.parameter,
                grad: &each.grad,
                state: vec![&moments.exp_avg, &moments.exp_avg_sq],
                update: settings(groups.of(each.name, lr, weight_decay), moments.step + 1),
            })
        });
        pass(&items.collect::<Vec<_>>())?;
        updates.iter().for_each(|each| self.advance(each.name));
        Ok(())
    }

    /// Makes moments for a parameter that has none.
    fn meet(&mut self, name: &str, parameter: &Var) -> Result<()> {
        if !self.0.contains_key(name) {
            let moments = Moments {
                step: 0,
                exp_avg: Var::from_tensor(&parameter.zeros_like()?)?,
                exp_avg_sq: Var::from_tensor(&parameter.zeros_like()?)?,
            };
            self.0.insert(name.to_string(), moments);
        }
        Ok(())
    }

    pub(super) fn get(&self, name: &str) -> Option<&Moments> {
        self.0.get(name)
    }

    /// Counts an update.
    fn advance(&mut self, name: &str) {
        if let Some(moments) = self.0.get_mut(name) {
            moments.step += 1;
        }
    }

    pub(super) fn state(&self) -> BTreeMap<String, ParameterState> {
        let parameters = self.0.iter().map(|(name, moments)| {
            let tensors = [
                (EXP_AVG.to_string(), moments.exp_avg.as_detached_tensor()),
                (
                    EXP_AVG_SQ.to_string(),
                    moments.exp_avg_sq.as_detached_tensor(),
                ),
            ];
            let state = ParameterState {
                step: moments.step,
                tensors: tensors.into(),
            };
            (name.clone(), state)
        });
        parameters.collect()
    }

    pub(super) fn load(state: &OptimizerState) -> Result<Self> {
        let read = |(name, state): (&String, &ParameterState)| {
            let moments = Moments {
                step: state.step,
                exp_avg: state.owned(name, EXP_AVG)?,
                exp_avg_sq: state.owned(name, EXP_AVG_SQ)?,
            };
            Ok((name.clone(), moments))
        };
        let moments = state.parameters.iter().map(read).collect::<Result<_>>()?;
        Ok(Self(moments))
    }
}
