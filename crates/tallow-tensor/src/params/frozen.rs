//! Freezing: parameters that the optimizer leaves as they are, and batch norms that keep their running statistics.
//!
//! A layer holds its running statistics as variables and knows nothing of [`Params`], so which of them are frozen stands in one
//! table for the process, where [`batch_norm`](crate::ops::batch_norm) looks.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, PoisonError, RwLock};

use candle_core::{Tensor, TensorId};

use super::{Entry, Kind, Params, is_under};

/// The frozen buffers of all models.
static FROZEN: LazyLock<RwLock<HashSet<TensorId>>> = LazyLock::new(RwLock::default);
/// How many there are: nearly always none, which is then known without a lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether `buffer` must stay as it is.
pub(crate) fn is_frozen(buffer: &Tensor) -> bool {
    COUNT.load(Ordering::Acquire) > 0
        && FROZEN
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&buffer.id())
}

fn mark(buffer: &Tensor, frozen: bool) {
    let mut table = FROZEN.write().unwrap_or_else(PoisonError::into_inner);
    if frozen {
        table.insert(buffer.id());
    } else {
        table.remove(&buffer.id());
    }
    COUNT.store(table.len(), Ordering::Release);
}

/// Takes the buffers of a model that is gone out of the table.
pub(super) fn forget<'a>(entries: impl Iterator<Item = &'a Entry>) {
    for entry in entries.filter(|entry| entry.frozen && entry.kind == Kind::Buffer) {
        mark(&entry.var, false);
    }
}

impl Params {
    /// Freezes the parameter or module at `prefix` and gives how many parameters that covers; 0 means that there
    /// is nothing at that path. `layer1` covers `layer1.0.weight` but not `layer10.weight`; the empty prefix covers
    /// everything. Frozen parameters are left out of [`Params::trainable`]; buffers still follow the model, unless
    /// [`Params::freeze_batch_norm`] says otherwise.
    ///
    /// ```
    /// # use tallow_tensor::Params;
    /// # let params = Params::f32_cpu();
    /// # for layer in ["layer1", "layer10"] {
    /// #     params.builder().pp(layer).get(4, "weight")?;
    /// # }
    /// assert_eq!(params.freeze("layer1"), 1);
    /// assert_eq!(params.trainable().len(), 1);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn freeze(&self, prefix: &str) -> usize {
        self.set_frozen(prefix, true)
    }

    /// Undoes [`Params::freeze`] for the parameters at `prefix` and gives how many that covers.
    pub fn unfreeze(&self, prefix: &str) -> usize {
        self.set_frozen(prefix, false)
    }

    fn set_frozen(&self, prefix: &str, frozen: bool) -> usize {
        let mut count = 0;
        for entry in self.lock().values_mut() {
            if entry.kind == Kind::Trainable && is_under(&entry.name, prefix) {
                entry.frozen = frozen;
                count += 1;
            }
        }
        count
    }

    /// Freezes the batch norms at `prefix` for good, and gives how many there are: weight and bias as [`Params::freeze`] does,
    /// and the running statistics, which are neither moved nor replaced by the batch's in training: the layer computes what it
    /// computes in evaluation. That is torchvision's `FrozenBatchNorm2d`, for fine-tuning with few samples a batch.
    ///
    /// Other layers under the prefix stay as they are; a checkpoint keeps what is frozen. A layer built over anything but the
    /// builder of these `Params` isn't reached.
    ///
    /// ```
    /// # use tallow_tensor::{Params, params};
    /// # let params = Params::f32_cpu();
    /// # for layer in ["layer1.bn", "layer2.bn"] {
    /// #     params.builder().pp(layer).get(4, "weight")?;
    /// #     params::buffer(&params.builder().pp(layer), 4, "running_mean", 0.0)?;
    /// # }
    /// assert_eq!(params.freeze_batch_norm("layer1"), 1);
    /// let frozen = params.iter().filter(|entry| entry.frozen).map(|entry| entry.name);
    /// assert_eq!(frozen.collect::<Vec<_>>(), ["layer1.bn.weight", "layer1.bn.running_mean"]);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn freeze_batch_norm(&self, prefix: &str) -> usize {
        self.set_batch_norms_frozen(prefix, true)
    }

    /// Undoes [`Params::freeze_batch_norm`] for the batch norms at `prefix` and gives how many there are.
    pub fn unfreeze_batch_norm(&self, prefix: &str) -> usize {
        self.set_batch_norms_frozen(prefix, false)
    }

    fn set_batch_norms_frozen(&self, prefix: &str, frozen: bool) -> usize {
        let mut entries = self.lock();
        let buffers = entries.values().filter(|entry| entry.kind == Kind::Buffer);
        let norms: HashSet<String> = buffers
            .map(|entry| module(&entry.name).to_string())
            .filter(|path| is_under(path, prefix))
            .collect();
        for entry in entries.values_mut() {
            if norms.contains(module(&entry.name)) {
                set(entry, frozen);
            }
        }
        norms.len()
    }

    /// Freezes the entries of these names, buffers included, and no others: what a checkpoint keeps, put back.
    pub fn freeze_exactly(&self, names: &[String]) {
        let names: HashSet<&str> = names.iter().map(String::as_str).collect();
        for entry in self.lock().values_mut() {
            set(entry, names.contains(entry.name.as_str()));
        }
    }
}

fn set(entry: &mut Entry, frozen: bool) {
    if entry.kind == Kind::Buffer && entry.frozen != frozen {
        mark(&entry.var, frozen);
    }
    entry.frozen = frozen;
}

/// The path of the module that an entry belongs to.
fn module(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(path, _)| path)
}
