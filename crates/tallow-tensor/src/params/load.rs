//! Loading and saving, with everything checked before the first value changes.

use std::fmt;
use std::path::Path;

use candle_core::{DType, Tensor, Var};
use indexmap::IndexMap;

use super::{Metadata, NameMap, Params, TensorFile, TorchFile, write_tensors};
use crate::{Error, Result, inplace};

/// Whether names and shapes must fit exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strict {
    /// Anything missing, unexpected or mismatched is an error, and nothing is loaded.
    Yes,
    /// What fits is loaded, the rest is reported.
    No,
}

/// What was loaded and what wasn't.
///
/// PyTorch's `num_batches_tracked` counters, which nothing here needs, and names with the [`RESERVED_PREFIX`] appear
/// nowhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadReport {
    /// Names whose values were loaded (in an error: would have been).
    pub loaded: Vec<String>,
    /// Names of the model that the source doesn't have.
    pub missing: Vec<String>,
    /// Names of the source that the model doesn't have.
    pub unexpected: Vec<String>,
    /// Names that both have, but not in a form that fits.
    pub mismatched: Vec<Mismatch>,
}

/// A name that model and source have in different forms.
#[derive(Debug, Clone, PartialEq)]
pub struct Mismatch {
    /// The name.
    pub name: String,
    /// The model's shape.
    pub expected: Vec<usize>,
    /// The source's shape.
    pub found: Vec<usize>,
    /// The model's element type, and the source's (`None`: one that candle doesn't have).
    pub dtypes: (DType, Option<DType>),
}

impl LoadReport {
    /// Whether every name of either side was loaded.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.mismatched.is_empty()
    }

    /// What is probably behind it: a model that isn't built yet, or a prefix that the names of one side have and those of
    /// the other don't.
    fn hint(&self) -> Option<String> {
        let nothing =
            self.loaded.is_empty() && self.missing.is_empty() && self.mismatched.is_empty();
        if nothing && !self.unexpected.is_empty() {
            return Some("the model has no parameters yet; build it before loading".to_string());
        }
        let (missing, unexpected) = (self.missing.first()?, self.unexpected.first()?);
        let suffix = |long: &str, short: &str| {
            let prefix = long.strip_suffix(short)?;
            prefix.ends_with('.').then(|| prefix.to_string())
        };
        if let Some(prefix) = self.unexpected.iter().find_map(|u| suffix(u, missing)) {
            return Some(format!(
                "names of the source begin with `{prefix}`, those of the model don't"
            ));
        }
        let prefix = self.missing.iter().find_map(|m| suffix(m, unexpected))?;
        Some(format!(
            "names of the model begin with `{prefix}`, those of the source don't"
        ))
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            expected,
            found,
            dtypes,
        } = self;
        write!(f, "{name}: model {:?} {expected:?}, source ", dtypes.0)?;
        match dtypes.1 {
            Some(dtype) => write!(f, "{dtype:?} {found:?}"),
            None => write!(f, "{found:?} of an unsupported type"),
        }
    }
}

/// Lists in messages are cut off after this many names; the report itself has all.
const SHOWN: usize = 20;

fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, title: &str, items: &[T]) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    write!(f, "\n{} {title}:", items.len())?;
    for item in items.iter().take(SHOWN) {
        write!(f, "\n  {item}")?;
    }
    match items.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => write!(f, "\n  and {more} more"),
        _ => Ok(()),
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} names fit", self.loaded.len())?;
        list(f, "missing (in the model only)", &self.missing)?;
        list(f, "unexpected (in the source only)", &self.unexpected)?;
        list(f, "mismatched", &self.mismatched)?;
        match self.hint() {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Whether a stored type can stand for the model's: floats for floats, integers for integers.
fn converts(found: Option<DType>, wanted: DType) -> bool {
    found.is_some_and(|found| found.is_float() == wanted.is_float())
}

/// How names begin that stand in a file beside a model's: what a trainer needs to go on, for example. Loading parameters
/// passes over them.
pub const RESERVED_PREFIX: &str = "__tallow__.";

/// PyTorch counts batches in every batch normalisation; with a fixed momentum nothing reads the count.
fn is_ignored(name: &str) -> bool {
    name.rsplit('.').next() == Some("num_batches_tracked") || name.starts_with(RESERVED_PREFIX)
}

impl Params {
    /// Saves all parameters and buffers to a safetensors file, atomically.
    ///
    /// # Errors
    /// [`Error::Io`]; an earlier file of that name is then untouched.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_with(path, &Metadata::new())
    }

    /// As [`Params::save`], with strings beside the tensors.
    ///
    /// # Errors
    /// As [`Params::save`].
    pub fn save_with(&self, path: impl AsRef<Path>, metadata: &Metadata) -> Result<()> {
        let entries: Vec<_> = self.iter().collect();
        let tensors = entries.iter().map(|e| (e.name.as_str(), e.var.as_tensor()));
        write_tensors(path, tensors, metadata)
    }

    /// Loads values by name from a safetensors file or from a `.pt` or `.pth` file of PyTorch (what it is, its first bytes
    /// say), converting between floating-point types. The model must have been constructed before: names that it doesn't
    /// have are not created.
    ///
    /// ```
    /// use tallow_tensor::{Params, params::Strict};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("model.safetensors");
    /// let params = Params::f32_cpu();
    /// let weight = params.builder().pp("fc").get((2, 3), "weight")?;
    /// params.save(&path)?;
    ///
    /// let report = params.load(&path, Strict::Yes)?;
    /// assert_eq!(report.loaded, ["fc.weight"]);
    /// # let _ = weight;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corrupt`] for the file, [`Error::Load`] if `strict` and anything doesn't fit. In each
    /// case no value was changed.
    pub fn load(&self, path: impl AsRef<Path>, strict: Strict) -> Result<LoadReport> {
        if TorchFile::is_one(&path)? {
            return self.load_torch(&TorchFile::open(path)?, &NameMap::new(), strict);
        }
        self.load_file(&TensorFile::open(path)?, strict)
    }

    /// As [`Params::load`], from a file with other names, which the report gives as `names` makes them.
    ///
    /// ```
    /// use tallow_tensor::{Params, params::{NameMap, Strict}};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("pretrained.safetensors");
    /// # let wrapped = Params::f32_cpu();
    /// # wrapped.builder().pp("module.stem").get((2, 3), "weight")?;
    /// # wrapped.builder().pp("module.fc").get((1000, 2), "weight")?;
    /// # wrapped.save(&path)?;
    /// let params = Params::f32_cpu();
    /// params.builder().pp("stem").get((2, 3), "weight")?;
    /// params.builder().pp("head").get((10, 2), "weight")?;
    ///
    /// let names = NameMap::new().strip_prefix("module").skip("fc");
    /// let report = params.load_renamed(&path, &names, Strict::No)?;
    /// assert_eq!(report.loaded, ["stem.weight"]);
    /// assert_eq!(report.missing, ["head.weight"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Params::load`], and [`Error::Parameter`] if two names become the same.
    pub fn load_renamed(
        &self,
        path: impl AsRef<Path>,
        names: &NameMap,
        strict: Strict,
    ) -> Result<LoadReport> {
        if TorchFile::is_one(&path)? {
            return self.load_torch(&TorchFile::open(path)?, names, strict);
        }
        let file = TensorFile::open(path)?;
        let sources = names.sources(file.names())?;
        let forms = sources.iter().map(|(name, source)| {
            let shape = file.shape(source).unwrap_or_default().to_vec();
            (name.clone(), (shape, file.dtype(source)))
        });
        let origin = file.path().display().to_string();
        let read = |name: &str| file.read(&sources[name]);
        self.load_from(forms.collect(), strict, &origin, read)
    }

    /// As [`Params::load_renamed`], from a file of PyTorch that is open already.
    ///
    /// # Errors
    /// As [`Params::load_renamed`].
    pub fn load_torch(
        &self,
        file: &TorchFile,
        names: &NameMap,
        strict: Strict,
    ) -> Result<LoadReport> {
        let sources = names.sources(file.names())?;
        let forms = sources.iter().map(|(name, source)| {
            let shape = file.shape(source).unwrap_or_default().to_vec();
            (name.clone(), (shape, file.dtype(source)))
        });
        let origin = file.path().display().to_string();
        let read = |name: &str| file.read(&sources[name]);
        self.load_from(forms.collect(), strict, &origin, read)
    }

    /// As [`Params::load`], from a file that is open already.
    ///
    /// # Errors
    /// As [`Params::load`].
    pub fn load_file(&self, file: &TensorFile, strict: Strict) -> Result<LoadReport> {
        let forms = file.names().map(|name| {
            let shape = file.shape(name).unwrap_or_default().to_vec();
            (name.to_string(), (shape, file.dtype(name)))
        });
        let origin = file.path().display().to_string();
        self.load_from(forms.collect(), strict, &origin, |name| file.read(name))
    }

    /// As [`Params::load`], from tensors in memory, such as those of [`Params::to_tensors`].
    ///
    /// # Errors
    /// [`Error::Load`] if `strict` and anything doesn't fit; no value was changed then.
    pub fn load_tensors(
        &self,
        tensors: &IndexMap<String, Tensor>,
        strict: Strict,
    ) -> Result<LoadReport> {
        let forms = tensors
            .iter()
            .map(|(name, t)| (name.clone(), (t.dims().to_vec(), Some(t.dtype()))));
        self.load_from(
            forms.collect(),
            strict,
            "the set of given tensors",
            |name| Ok(tensors[name].detach()),
        )
    }

    fn load_from(
        &self,
        forms: Forms,
        strict: Strict,
        origin: &str,
        read: impl Fn(&str) -> Result<Tensor>,
    ) -> Result<LoadReport> {
        let (report, targets) = self.compare(forms);
        if strict == Strict::Yes && !report.is_complete() {
            return Err(Error::Load {
                origin: origin.to_string(),
                report: Box::new(report),
            });
        }
        // Read and convert everything first: what can fail, fails before the first value changes.
        let mut values = Vec::with_capacity(targets.len());
        for (name, var) in targets {
            let mut value = read(&name)?
                .to_dtype(var.dtype())?
                .to_device(var.device())?;
            if shares_storage(&var, &value) {
                // candle refuses to set a variable from a view of itself.
                value = value.force_contiguous()?;
            }
            values.push((var, value));
        }
        for (var, value) in values {
            inplace::touch();
            var.set(&value)?;
        }
        Ok(report)
    }

    fn compare(&self, forms: Forms) -> (LoadReport, Vec<(String, Var)>) {
        let mut report = LoadReport::default();
        let mut targets = Vec::new();
        let entries = self.lock();
        for entry in entries.values() {
            let name = entry.name.clone();
            let Some((shape, dtype)) = forms.get(&name) else {
                if !is_ignored(&name) {
                    report.missing.push(name);
                }
                continue;
            };
            if shape == entry.var.dims() && converts(*dtype, entry.var.dtype()) {
                report.loaded.push(name.clone());
                targets.push((name, entry.var.clone()));
            } else {
                report.mismatched.push(Mismatch {
                    name,
                    expected: entry.var.dims().to_vec(),
                    found: shape.clone(),
                    dtypes: (entry.var.dtype(), *dtype),
                });
            }
        }
        let names = forms.into_keys();
        report.unexpected = names
            .filter(|name| !entries.contains_key(name) && !is_ignored(name))
            .collect();
        (report, targets)
    }
}

/// Names with their shapes and types; `None` for a type that candle doesn't have.
type Forms = IndexMap<String, (Vec<usize>, Option<DType>)>;

fn shares_storage(var: &Var, value: &Tensor) -> bool {
    let (a, _) = var.storage_and_layout();
    let (b, _) = value.storage_and_layout();
    std::ptr::eq(&*a, &*b)
}
