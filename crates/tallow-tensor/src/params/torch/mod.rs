//! [`TorchFile`]: the state dicts that `torch.save` writes, `.pt` and `.pth`, without Python.
//!
//! Two containers hold the same pickle: since PyTorch 1.6 a zip archive with the elements of each storage in an entry of its own,
//! before that a row of pickles with the elements behind them. Files are not trusted: `pickle` runs no code, and elements are
//! read when they are asked for, after all that is said about them was checked against the length of the file.

mod object;
mod pickle;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Device, Tensor};
use indexmap::IndexMap;
use zip::ZipArchive;

use crate::{Error, Result};
use object::{Form, Object, Outcome, Storage, View, describe};
use pickle::Pickle;

/// How a file of the old container begins: a pickle of the number `0x1950a86a20f9469cfc6c`.
const LEGACY_MAGIC: [u8; 14] = *b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19";
const ZIP_MAGIC: [u8; 4] = *b"PK\x03\x04";
/// Where whole training checkpoints keep the model.
const STATE_KEYS: [&str; 4] = ["state_dict", "model_state_dict", "model", "net"];
const REMEDY: &str =
    "save the model's `state_dict()` again with torch.save, or fetch the file again";

/// A file of `torch.save` that holds a state dict, opened and checked; elements are read on demand.
///
/// The state dict may be the whole of the file, or the entry `state_dict`, `model_state_dict`, `model` or `net` of it.
/// Entries that are no tensors are passed over. Code in the file is never run: a pickled model, rather than its state
/// dict, is an error.
#[derive(Debug)]
pub struct TorchFile {
    path: PathBuf,
    tensors: IndexMap<String, View>,
    container: Container,
}

#[derive(Debug)]
enum Container {
    Zip {
        archive: Mutex<ZipArchive<BufReader<File>>>,
        /// What the names of entries begin with.
        prefix: String,
    },
    Legacy {
        file: File,
        /// Where the elements of each storage begin, and their number of bytes.
        storages: HashMap<Arc<str>, (u64, u64)>,
    },
}

impl TorchFile {
    /// Whether a file begins as those of `torch.save` do.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn is_one(path: impl AsRef<Path>) -> Result<bool> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
        let mut head = Vec::new();
        let read = file.take(LEGACY_MAGIC.len() as u64).read_to_end(&mut head);
        read.map_err(|error| Error::io("read", path, error))?;
        // The header of a safetensors file begins after eight bytes of length, which could be these by chance.
        let is_safetensors = head.get(8) == Some(&b'{');
        Ok(head.starts_with(&LEGACY_MAGIC) || (head.starts_with(&ZIP_MAGIC) && !is_safetensors))
    }

    /// Opens a file of either container and reads all of it but the elements.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Corrupt`] for a file that is damaged, of another format, or holds no state dict.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let open = || File::open(path).map_err(|error| Error::io("open", path, error));
        let mut head = Vec::new();
        let read = open()?.take(4).read_to_end(&mut head);
        read.map_err(|error| Error::io("read", path, error))?;
        let opened = if head == ZIP_MAGIC {
            open_zip(open()?)
        } else {
            open_legacy(open()?)
        };
        let checked = opened.and_then(|(tensors, container)| {
            let file = Self {
                path: path.to_path_buf(),
                tensors,
                container,
            };
            for (name, view) in &file.tensors {
                check(view).map_err(|problem| format!("tensor `{name}`: {problem}"))?;
            }
            Ok(file)
        });
        checked.map_err(|problem| corrupt(path, problem))
    }

    /// The path it was opened from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the tensors, in the order of the state dict.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The shape of a tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|view| view.shape.as_slice())
    }

    /// The element type of a tensor as it is read; PyTorch's bool and uint8 are u8, its int8 is i64.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        self.tensors.get(name).map(|view| view.storage.kind.dtype)
    }

    /// Reads one tensor onto the CPU.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a name that the file doesn't have and for elements that aren't all there.
    pub fn read(&self, name: &str) -> Result<Tensor> {
        let Some(view) = self.tensors.get(name) else {
            return Err(corrupt(&self.path, format!("no tensor `{name}`")));
        };
        let bytes = self.elements(view);
        let bytes =
            bytes.map_err(|problem| corrupt(&self.path, format!("tensor `{name}`: {problem}")))?;
        let kind = view.storage.kind;
        if kind.form == Form::I8 {
            let values = bytes.iter().map(|&byte| i64::from(byte as i8));
            let values: Vec<i64> = values.collect();
            return Ok(Tensor::from_vec(
                values,
                view.shape.as_slice(),
                &Device::Cpu,
            )?);
        }
        Ok(Tensor::from_raw_buffer(
            &bytes,
            kind.dtype,
            &view.shape,
            &Device::Cpu,
        )?)
    }

    /// Reads all tensors, in the order of the state dict.
    ///
    /// # Errors
    /// As [`TorchFile::read`].
    pub fn read_all(&self) -> Result<IndexMap<String, Tensor>> {
        let names = self.tensors.keys();
        names
            .map(|name| Ok((name.clone(), self.read(name)?)))
            .collect()
    }

    /// The elements of a tensor, row-major.
    fn elements(&self, view: &View) -> Outcome<Vec<u8>> {
        let size = view.storage.kind.size;
        let (first, count) = (view.storage.start + view.offset, span(view)?);
        let bytes = self.range(
            &view.storage,
            first as u64 * size as u64,
            count as u64 * size as u64,
        )?;
        if is_contiguous(view) {
            return Ok(bytes);
        }
        let mut elements = Vec::with_capacity(bytes.len());
        let mut index = vec![0; view.shape.len()];
        for _ in 0..view.shape.iter().product::<usize>() {
            let place: usize = index
                .iter()
                .zip(&view.strides)
                .map(|(i, stride)| i * stride)
                .sum();
            elements.extend_from_slice(&bytes[place * size..(place + 1) * size]);
            for (i, &length) in index.iter_mut().zip(&view.shape).rev() {
                *i += 1;
                if *i < length {
                    break;
                }
                *i = 0;
            }
        }
        Ok(elements)
    }

    /// `length` bytes of a storage.
    fn range(&self, storage: &Storage, start: u64, length: u64) -> Outcome<Vec<u8>> {
        let missing = |found: u64| {
            format!(
                "it ends {} bytes into its storage, which has {found}",
                start.saturating_add(length)
            )
        };
        let unreadable = |error: io::Error| format!("its elements can't be read ({error})");
        let mut bytes = Vec::new();
        match &self.container {
            Container::Zip { archive, prefix } => {
                let mut archive = archive.lock().unwrap_or_else(PoisonError::into_inner);
                let entry = archive.by_name(&format!("{prefix}data/{}", storage.key));
                let mut entry =
                    entry.map_err(|error| format!("its storage is not there ({error})"))?;
                let found = entry.size();
                if start.saturating_add(length) > found {
                    return Err(missing(found));
                }
                let skipped = io::copy(&mut entry.by_ref().take(start), &mut io::sink());
                skipped.map_err(unreadable)?;
                entry
                    .take(length)
                    .read_to_end(&mut bytes)
                    .map_err(unreadable)?;
            }
            Container::Legacy { file, storages } => {
                let place = storages.get(&storage.key);
                let &(at, found) = place.ok_or("its storage is not there")?;
                if start.saturating_add(length) > found {
                    return Err(missing(found));
                }
                let mut file = file;
                file.seek(SeekFrom::Start(at + start)).map_err(unreadable)?;
                file.take(length)
                    .read_to_end(&mut bytes)
                    .map_err(unreadable)?;
            }
        }
        if bytes.len() as u64 != length {
            return Err("the file ends before its elements".to_string());
        }
        Ok(bytes)
    }
}

fn corrupt(path: &Path, problem: String) -> Error {
    Error::Corrupt {
        path: path.to_path_buf(),
        problem,
        remedy: REMEDY,
    }
}

type Opened = (IndexMap<String, View>, Container);

fn open_zip(file: File) -> Outcome<Opened> {
    let unreadable =
        |error: zip::result::ZipError| format!("its zip archive can't be read ({error})");
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(unreadable)?;
    let mut prefix = None;
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(unreadable)?;
        if let Some(before) = entry.name().map_err(unreadable)?.strip_suffix("data.pkl") {
            prefix = Some(before.to_string());
            break;
        }
    }
    let prefix = prefix.ok_or("a zip archive without the entry data.pkl that torch.save writes")?;
    if let Ok(entry) = archive.by_name(&format!("{prefix}byteorder")) {
        let mut order = String::new();
        let read = entry.take(16).read_to_string(&mut order);
        if read.is_err() || order.trim() != "little" {
            return Err(format!(
                "its byte order is {order:?}, only \"little\" can be read"
            ));
        }
    }
    let pickle = {
        let entry = archive
            .by_name(&format!("{prefix}data.pkl"))
            .map_err(unreadable)?;
        Pickle::read(&mut BufReader::new(entry))?
    };
    let container = Container::Zip {
        archive: Mutex::new(archive),
        prefix,
    };
    Ok((state_dict(&pickle)?, container))
}

fn open_legacy(file: File) -> Outcome<Opened> {
    let unreadable = |error: io::Error| format!("it can't be read ({error})");
    let length = file.metadata().map_err(unreadable)?.len();
    let mut source = BufReader::new(file);
    let mut magic = [0; LEGACY_MAGIC.len() + 1];
    let read = source.read_exact(&mut magic);
    if read.is_err() || !magic.starts_with(&LEGACY_MAGIC) {
        return Err("it is no file of torch.save".to_string());
    }
    // The version of the container, and of the machine that wrote it.
    Pickle::read(&mut source)?;
    let machine = Pickle::read(&mut source)?;
    if machine.entry(machine.root(), "little_endian") == Some(&Object::Bool(false)) {
        return Err("it was written on a machine of the other byte order".to_string());
    }
    let pickle = Pickle::read(&mut source)?;
    let keys = Pickle::read(&mut source)?;
    let Object::List(keys_in_order) = keys.root() else {
        return Err("its list of storages is not there".to_string());
    };
    let sizes = element_sizes(&pickle);
    let mut storages = HashMap::new();
    let mut at = source.stream_position().map_err(unreadable)?;
    for &key in keys_in_order {
        let Object::Text(key) = keys.get(key) else {
            return Err(format!(
                "the name of a storage is {}",
                describe(keys.get(key))
            ));
        };
        let mut count = [0; 8];
        source
            .read_exact(&mut count)
            .map_err(|_| "it ends before its elements".to_string())?;
        let size = sizes
            .get(&**key)
            .ok_or_else(|| format!("no tensor uses the storage `{key}`"))?;
        let bytes = u64::from_le_bytes(count).checked_mul(*size as u64);
        at += 8;
        let bytes = bytes.filter(|bytes| *bytes <= length - at);
        let bytes = bytes.ok_or("it ends before its elements")?;
        storages.insert(key.clone(), (at, bytes));
        at += bytes;
        source.seek(SeekFrom::Start(at)).map_err(unreadable)?;
    }
    if at != length {
        return Err(format!("it has {} bytes too many", length - at));
    }
    let container = Container::Legacy {
        file: source.into_inner(),
        storages,
    };
    Ok((state_dict(&pickle)?, container))
}

/// The bytes of an element of each storage.
fn element_sizes(pickle: &Pickle) -> HashMap<&str, usize> {
    let storages = pickle.objects().iter().filter_map(|object| match object {
        Object::Storage(storage) => Some((&*storage.key, storage.kind.size)),
        _ => None,
    });
    storages.collect()
}

/// The tensors of a state dict by name.
fn state_dict(pickle: &Pickle) -> Outcome<IndexMap<String, View>> {
    let root = pickle.root();
    let inner = STATE_KEYS.iter().find_map(|key| {
        let inner = pickle.entry(root, key)?;
        matches!(inner, Object::Dict(_)).then_some(inner)
    });
    let Object::Dict(entries) = inner.unwrap_or(root) else {
        return Err(format!("it holds {} and no state dict", describe(root)));
    };
    let mut tensors = IndexMap::new();
    let mut others = Vec::new();
    for &(key, value) in entries {
        let Object::Text(name) = pickle.get(key) else {
            continue;
        };
        match pickle.get(value) {
            Object::Tensor(view) => drop(tensors.insert(name.to_string(), view.clone())),
            other if others.len() < 10 => others.push(format!("`{name}` ({})", describe(other))),
            _ => {}
        }
    }
    if tensors.is_empty() && !others.is_empty() {
        return Err(format!(
            "it holds no tensor by name but {}",
            others.join(", ")
        ));
    }
    Ok(tensors)
}

/// What the file says about a tensor must fit together before anything is reserved for it.
fn check(view: &View) -> Outcome<()> {
    let View {
        storage,
        offset,
        shape,
        strides,
    } = view;
    if shape.len() != strides.len() {
        return Err(format!(
            "it has the shape {shape:?} and the strides {strides:?}"
        ));
    }
    // As for safetensors: strides multiply the sizes even where one of them is zero.
    let spread = shape.iter().fold(8u128, |product, &size| {
        product.saturating_mul(size.max(1) as u128)
    });
    if spread > isize::MAX as u128 {
        return Err(format!("it claims the shape {shape:?}"));
    }
    let end = span(view)?.checked_add(*offset);
    if end.is_none_or(|end| end > storage.elements)
        || storage.start.checked_add(storage.elements).is_none()
    {
        return Err(format!(
            "shape {shape:?}, strides {strides:?} and offset {offset} reach beyond its {} stored elements",
            storage.elements
        ));
    }
    if shape.iter().product::<usize>() > storage.elements {
        return Err(format!(
            "its shape {shape:?} repeats {} stored elements; save a contiguous copy",
            storage.elements
        ));
    }
    Ok(())
}

/// The elements from a tensor's first to its last.
fn span(view: &View) -> Outcome<usize> {
    if view.shape.contains(&0) {
        return Ok(0);
    }
    let steps = view.shape.iter().zip(&view.strides);
    let mut last = steps.map(|(size, stride)| (size - 1).checked_mul(*stride));
    let last = last.try_fold(0usize, |sum, step| sum.checked_add(step?));
    last.and_then(|last| last.checked_add(1))
        .ok_or_else(|| "its strides overflow".to_string())
}

fn is_contiguous(view: &View) -> bool {
    let mut expected = 1;
    for (&size, &stride) in view.shape.iter().zip(&view.strides).rev() {
        if size != 1 && stride != expected {
            return view.shape.contains(&0);
        }
        expected *= size;
    }
    true
}
