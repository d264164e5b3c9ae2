//! Safetensors files: written atomically, and read with suspicion.
//!
//! The format is <https://github.com/huggingface/safetensors>: eight bytes of header length, a JSON header with the type,
//! shape and place of every tensor and a map of strings, then the elements. The header is written here, in the
//! order of the tensors given, so that equal content gives equal bytes; the metadata map of the `safetensors` crate is
//! hashed, and its reader trusts sums that a hostile header can make overflow.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use indexmap::IndexMap;
use safetensors::tensor::{Dtype as FileType, Metadata as Header, TensorInfo, View};

use super::write_atomically;
use crate::{Error, Result};

/// The strings that a file carries beside its tensors.
pub type Metadata = BTreeMap<String, String>;

/// Headers above this size are refused, as by every reader of the format.
const MAX_HEADER: u64 = 100_000_000;
/// The key under which the header holds the strings.
const METADATA: &str = "__metadata__";

/// Writes tensors and strings to a safetensors file, atomically.
///
/// Elements are stored in groups of falling element size, as the format asks for alignment, and in the order given
/// inside a group.
///
/// # Errors
/// [`Error::Io`]; [`Error::Parameter`] for a name that is given twice or reserved. `path` is then as it was.
pub fn write_tensors<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    metadata: &Metadata,
) -> Result<()> {
    let mut sorted: Vec<(&str, &Tensor)> = tensors.into_iter().collect();
    sorted.sort_by_key(|(_, tensor)| Reverse(file_type(tensor)));
    let header = header(&sorted, metadata)?;
    let mut contents = Vec::with_capacity(sorted.len());
    for (_, tensor) in sorted {
        contents.push(tensor.detach().to_device(&Device::Cpu)?.contiguous()?);
    }
    write_atomically(path, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        contents.iter().try_for_each(|t| file.write_all(&t.data()))
    })
}

/// The name of a tensor's element type in the format.
fn file_type(tensor: &Tensor) -> FileType {
    View::dtype(tensor)
}

/// The JSON header, filled with blanks so that the elements begin at a multiple of eight bytes.
fn header(tensors: &[(&str, &Tensor)], metadata: &Metadata) -> Result<Vec<u8>> {
    let mut fields = serde_json::Map::new();
    if !metadata.is_empty() {
        fields.insert(METADATA.to_string(), serde_json::json!(metadata));
    }
    let mut start = 0;
    for &(name, tensor) in tensors {
        let end = start + View::data_len(&tensor);
        let info = serde_json::json!({
            "dtype": file_type(tensor),
            "shape": tensor.dims(),
            "data_offsets": [start, end],
        });
        if name == METADATA || fields.insert(name.to_string(), info).is_some() {
            return Err(Error::Parameter {
                name: name.to_string(),
                problem: "the name is given twice, or reserved by the file format".to_string(),
                remedy: "give each tensor a name of its own",
            });
        }
        start = end;
    }
    let mut bytes = serde_json::Value::Object(fields).to_string().into_bytes();
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    Ok(bytes)
}

/// A safetensors file, opened and checked; elements are read on demand.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: File,
    /// Where the elements begin.
    start: u64,
    tensors: IndexMap<String, TensorInfo>,
    metadata: Metadata,
}

impl TensorFile {
    /// Opens a file and checks its whole header: every tensor's type, shape and place, and the length of the file.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Corrupt`] for a file that is truncated, damaged, or of another format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let mut file = File::open(&path).map_err(|e| Error::io("open", &path, e))?;
        let length = file
            .metadata()
            .map_err(|e| Error::io("read", &path, e))?
            .len();
        let header = read_header(&mut file, length).map_err(|fault| fault.at(&path))?;
        let start = 8 + header.length;
        let tensors = check_header(&header.parsed, length - start).map_err(|f| f.at(&path))?;
        let metadata = header.parsed.metadata().clone().unwrap_or_default();
        Ok(Self {
            path,
            file,
            start,
            tensors,
            metadata: metadata.into_iter().collect(),
        })
    }

    /// The path it was opened from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the tensors, in the order in which they are stored.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The shape of a tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|info| info.shape.as_slice())
    }

    /// The element type of a tensor; `None` for an unknown name and for types that candle doesn't have.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        let info = self.tensors.get(name)?;
        DType::try_from(info.dtype).ok()
    }

    /// The strings beside the tensors.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Where the elements of a tensor lie in the file, in bytes from its beginning.
    pub fn range(&self, name: &str) -> Option<Range<u64>> {
        let (start, end) = self.tensors.get(name)?.data_offsets;
        Some(self.start + start as u64..self.start + end as u64)
    }

    /// The open file, to be mapped into memory.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Reads one tensor onto the CPU, in the type in which it is stored.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a name that the file doesn't have or a type that candle doesn't; [`Error::Io`].
    pub fn read(&self, name: &str) -> Result<Tensor> {
        let (Some(info), Some(dtype)) = (self.tensors.get(name), self.dtype(name)) else {
            return Err(Fault(
                format!("no tensor `{name}` of a type that can be read"),
                "check the names and types in the file",
            )
            .at(&self.path));
        };
        let (start, end) = info.data_offsets;
        let mut bytes = vec![0; end - start];
        // Reading moves the file's one position, hence from a shared reference: no two readers at once are meant.
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.start + start as u64))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(|e| Error::io("read", &self.path, e))?;
        Ok(Tensor::from_raw_buffer(
            &bytes,
            dtype,
            &info.shape,
            &Device::Cpu,
        )?)
    }

    /// Reads all tensors, in the order in which they are stored.
    ///
    /// # Errors
    /// As [`TensorFile::read`].
    pub fn read_all(&self) -> Result<IndexMap<String, Tensor>> {
        let names = self.tensors.keys();
        names
            .map(|name| Ok((name.clone(), self.read(name)?)))
            .collect()
    }
}

/// What is wrong with a file and what to do, before it is known which file.
struct Fault(String, &'static str);

impl Fault {
    fn at(self, path: &Path) -> Error {
        Error::Corrupt {
            path: path.to_path_buf(),
            problem: self.0,
            remedy: self.1,
        }
    }
}

const FETCH_AGAIN: &str = "it was cut off or damaged: fetch or save it again";
const NOT_SAFETENSORS: &str = "check that it is a .safetensors file, or fetch it again";

struct ParsedHeader {
    length: u64,
    parsed: Header,
}

fn read_header(file: &mut File, file_length: u64) -> std::result::Result<ParsedHeader, Fault> {
    let unreadable = |e: io::Error| Fault(format!("it can't be read: {e}"), FETCH_AGAIN);
    if file_length < 8 {
        let problem =
            format!("it has {file_length} bytes, fewer than the 8 that every file begins with");
        return Err(Fault(problem, FETCH_AGAIN));
    }
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(unreadable)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER {
        let problem = format!("its header would have {length} bytes, more than any real one");
        return Err(Fault(problem, NOT_SAFETENSORS));
    }
    if length > file_length - 8 {
        let problem =
            format!("its header has {length} bytes, but the file ends after {file_length}");
        return Err(Fault(problem, FETCH_AGAIN));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text).map_err(unreadable)?;
    let parsed = serde_json::from_slice(&text)
        .map_err(|e| Fault(format!("its header is damaged ({e})"), NOT_SAFETENSORS))?;
    Ok(ParsedHeader { length, parsed })
}

/// Parsing has checked that each tensor's bytes fit its type and shape and that they follow each other without gaps;
/// here, that they end with the file and that no shape overflows.
fn check_header(
    header: &Header,
    available: u64,
) -> std::result::Result<IndexMap<String, TensorInfo>, Fault> {
    let declared = header.data_len() as u64;
    if declared > available {
        let problem = format!("it ends {} bytes too early", declared - available);
        return Err(Fault(problem, FETCH_AGAIN));
    }
    if declared < available {
        let problem = format!("it has {} bytes too many", available - declared);
        return Err(Fault(problem, FETCH_AGAIN));
    }
    let mut tensors = IndexMap::new();
    for name in header.offset_keys() {
        let Some(info) = header.info(&name) else {
            continue;
        };
        // Strides multiply the sizes even where one of them is zero.
        let sizes = info.shape.iter().map(|&size| size.max(1));
        let spread = sizes.fold(8u128, |product, size| product.saturating_mul(size as u128));
        if spread > isize::MAX as u128 {
            let problem = format!("tensor `{name}` claims the shape {:?}", info.shape);
            return Err(Fault(problem, FETCH_AGAIN));
        }
        tensors.insert(name, info.clone());
    }
    Ok(tensors)
}
