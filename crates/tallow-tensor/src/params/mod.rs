//! [`Params`]: the named parameters and buffers of a model, in the order in which it made them.
//!
//! A model gets them through candle's own [`VarBuilder`], so it needn't know this type. What candle's `VarMap` lacks is
//! here: an order, buffers, freezing, initial values that depend on the seed and the name alone, and files that
//! are checked before they change anything.
//!
//! | file | holds |
//! |---|---|
//! | `backend.rs` | creation through a `VarBuilder`, and [`buffer`] |
//! | `frozen.rs` | freezing, and batch norms whose statistics stay |
//! | `init.rs` | initial values |
//! | `load.rs` | loading with a report |
//! | `file.rs` | [`TensorFile`]: safetensors files, read with suspicion and written atomically |
//! | `torch/` | [`TorchFile`]: the `.pt` and `.pth` files of PyTorch |
//! | `names.rs` | [`NameMap`]: other names for the same parameters |
//! | `varmap.rs` | candle's `VarMap` in and out |

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::VarBuilder;
use indexmap::IndexMap;

use crate::{Result, rng};

mod atomic;
mod backend;
mod file;
mod frozen;
mod init;
mod load;
mod names;
mod torch;
mod varmap;

pub use atomic::{remove_unfinished, write_atomically};
pub use backend::buffer;
pub use file::{Metadata, TensorFile, write_tensors};
pub(crate) use frozen::is_frozen;
pub use load::{LoadReport, Mismatch, RESERVED_PREFIX, Strict};
pub use names::NameMap;
pub use torch::TorchFile;

/// What an entry of [`Params`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A parameter: the optimizer changes it, unless it is frozen.
    Trainable,
    /// State that the model itself changes: the running statistics of batch normalisation.
    Buffer,
}

/// One named value. A clone refers to the same [`Var`].
#[derive(Debug, Clone)]
pub struct Entry {
    /// The full name, such as `layer1.0.conv1.weight`.
    pub name: String,
    /// The value.
    pub var: Var,
    /// Parameter or buffer.
    pub kind: Kind,
    /// Whether the optimizer must leave it as it is; see [`Params::freeze`].
    pub frozen: bool,
}

/// The parameters and buffers of a model. Clones share them.
///
/// ```
/// use candle_core::{Device, DType};
/// use tallow_tensor::{Params, params};
///
/// let params = Params::new(42, DType::F32, &Device::Cpu);
/// let conv = params.builder().pp("conv1");
/// let weight = conv.get_with_hints((8, 3, 3, 3), "weight", candle_nn::init::DEFAULT_KAIMING_NORMAL)?;
/// let mean = params::buffer(&params.builder().pp("bn1"), 8, "running_mean", 0.0)?;
///
/// assert_eq!(weight.dims(), [8, 3, 3, 3]);
/// assert_eq!(params.names(), ["conv1.weight", "bn1.running_mean"]);
/// assert_eq!(params.count(), 8 * 3 * 3 * 3);
/// # let _ = mean;
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Params {
    shared: Arc<Shared>,
}

struct Shared {
    seed: u64,
    dtype: DType,
    device: Device,
    entries: Mutex<IndexMap<String, Entry>>,
}

impl std::fmt::Debug for Params {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Params")
            .field("seed", &self.shared.seed)
            .field("dtype", &self.shared.dtype)
            .field("entries", &self.len())
            .finish_non_exhaustive()
    }
}

impl Params {
    /// An empty set, whose initial values will follow from `seed`.
    pub fn new(seed: u64, dtype: DType, device: &Device) -> Self {
        Self {
            shared: Arc::new(Shared {
                seed,
                dtype,
                device: device.clone(),
                entries: Mutex::default(),
            }),
        }
    }

    /// An empty set of 32-bit floats on the CPU with seed 42.
    pub fn f32_cpu() -> Self {
        Self::new(rng::DEFAULT_SEED, DType::F32, &Device::Cpu)
    }

    /// A builder to construct a model with. A name that is asked for first is created with the initialiser that
    /// the layer hints at; asked for again with the same shape and type, it gives the same value.
    ///
    /// Initial values depend on the seed and the full name alone, not on the order of construction. Fan and gain are
    /// those of [`candle_nn::Init`].
    pub fn builder(&self) -> VarBuilder<'static> {
        VarBuilder::from_backend(
            Box::new(backend::Backend(self.clone())),
            self.shared.dtype,
            self.shared.device.clone(),
        )
    }

    /// The seed that initial values follow from.
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    /// The element type that [`Params::builder`] asks for.
    pub fn dtype(&self) -> DType {
        self.shared.dtype
    }

    /// The device that values are created on.
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// All entries in the order of creation.
    pub fn iter(&self) -> std::vec::IntoIter<Entry> {
        let entries: Vec<Entry> = self.lock().values().cloned().collect();
        entries.into_iter()
    }

    /// The entry of a name.
    pub fn get(&self, name: &str) -> Option<Entry> {
        self.lock().get(name).cloned()
    }

    /// All names in the order of creation.
    pub fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// The number of entries, buffers included.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// What an optimizer changes: parameters that aren't frozen, in the order of creation.
    pub fn trainable(&self) -> Vec<(String, Var)> {
        self.iter()
            .filter(|entry| entry.kind == Kind::Trainable && !entry.frozen)
            .map(|entry| (entry.name, entry.var))
            .collect()
    }

    /// The number of parameter elements, frozen ones included and buffers not, as PyTorch's
    /// `sum(p.numel() for p in model.parameters())` counts.
    pub fn count(&self) -> usize {
        self.lock()
            .values()
            .filter(|entry| entry.kind == Kind::Trainable)
            .map(|entry| entry.var.elem_count())
            .sum()
    }

    /// Copies of all values, in the order of creation; later training doesn't change them.
    ///
    /// # Errors
    /// Where candle can't copy.
    pub fn to_tensors(&self) -> Result<IndexMap<String, Tensor>> {
        self.iter()
            .map(|entry| {
                Ok((
                    entry.name,
                    entry.var.as_detached_tensor().force_contiguous()?,
                ))
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, IndexMap<String, Entry>> {
        // Entries are inserted whole, so a panic elsewhere leaves them in order.
        let entries = self.shared.entries.lock();
        entries.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let entries = self
            .entries
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        frozen::forget(entries.values());
    }
}

impl IntoIterator for &Params {
    type Item = Entry;
    type IntoIter = std::vec::IntoIter<Entry>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Whether `name` is `prefix` or lies under it, segment by segment.
fn is_under(name: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('.');
    match name.strip_prefix(prefix) {
        Some(rest) => prefix.is_empty() || rest.is_empty() || rest.starts_with('.'),
        None => false,
    }
}
