//! candle's `VarMap` in and out. The variables themselves are shared, not copied.

use std::sync::PoisonError;

use candle_core::{DType, Device};
use candle_nn::VarMap;

use super::{Entry, Kind, Params};
use crate::rng;

impl Params {
    /// The variables of a candle `VarMap`, shared with it, in the order of their names (a `VarMap` has none).
    ///
    /// A `VarMap` doesn't say what is a buffer either: names that end in `running_mean`, `running_var` or
    /// `num_batches_tracked` become buffers. Element type and device for parameters to come are those of the first
    /// variable.
    pub fn from_varmap(map: &VarMap) -> Self {
        let data = map.data().lock().unwrap_or_else(PoisonError::into_inner);
        let mut sorted: Vec<_> = data.iter().collect();
        sorted.sort_by_key(|(name, _)| *name);
        let (dtype, device) = match sorted.first() {
            Some((_, var)) => (var.dtype(), var.device().clone()),
            None => (DType::F32, Device::Cpu),
        };
        let params = Self::new(rng::DEFAULT_SEED, dtype, &device);
        let entries = sorted.into_iter().map(|(name, var)| {
            let entry = Entry {
                name: name.clone(),
                var: var.clone(),
                kind: kind_of(name),
                frozen: false,
            };
            (name.clone(), entry)
        });
        params.lock().extend(entries);
        params
    }

    /// A candle `VarMap` of all parameters and buffers, sharing them.
    pub fn to_varmap(&self) -> VarMap {
        let map = VarMap::new();
        let entries = self.iter().map(|entry| (entry.name, entry.var));
        map.data()
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(entries);
        map
    }
}

fn kind_of(name: &str) -> Kind {
    match name.rsplit('.').next() {
        Some("running_mean" | "running_var" | "num_batches_tracked") => Kind::Buffer,
        _ => Kind::Trainable,
    }
}
