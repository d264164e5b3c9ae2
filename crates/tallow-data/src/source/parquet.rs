//! [`Parquet`]: images in Parquet files, as the Hugging Face hub stores them.

use std::any::Any;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::{Type, TypePtr};

use super::decoding::decode;
use super::split::Split;
use super::{Items, Pass, Shard, Source};
use crate::{Error, FileProblem, Image, Result, pipe};

/// Rows with an encoded image and the number of its class, in Parquet files as the Hugging Face hub stores image data sets:
/// the image is a column of `{bytes, path}`, or of bytes.
///
/// Rows are read a row group at a time, and decoded by the loader's workers. Where the loader shuffles, row groups come
/// in another order in each epoch, and rows are mixed within a buffer of 1,000 encoded images (see
/// [`shuffle_buffer`](Self::shuffle_buffer)). Of several readers, each takes every n-th row of that order. Going on in the middle of
/// an epoch reads the row groups before it again, but decodes no image of them.
///
/// ```no_run
/// use tallow_data::source::Parquet;
///
/// # fn main() -> tallow_data::Result<()> {
/// let train = Parquet::open(["cifar10/plain_text/train-00000-of-00001.parquet"], "img", "label")?;
/// assert_eq!(train.rows(), 50_000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Parquet {
    files: Arc<Files>,
    rows: usize,
    buffer: usize,
}

#[derive(Debug)]
struct Files {
    paths: Vec<PathBuf>,
    image: String,
    label: String,
    groups: Vec<Group>,
}

/// A row group.
#[derive(Debug, Clone, Copy)]
struct Group {
    file: usize,
    /// Its number in the file.
    number: usize,
    /// The number of its first row, counted over all files.
    first: u64,
}

/// A row before its image is decoded.
pub struct ParquetRow {
    files: Arc<Files>,
    file: usize,
    number: u64,
    bytes: ByteArray,
    name: Option<String>,
    label: u32,
}

impl std::fmt::Debug for ParquetRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetRow")
            .field("number", &self.number)
            .field("name", &self.name)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

impl Parquet {
    /// Reads what the files say about themselves. `image` and `label` name the columns.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a file can't be opened, [`Error::File`] if it is no Parquet file, or has no such columns;
    /// [`Error::Setting`] if there is no file.
    pub fn open<P: Into<PathBuf>>(
        paths: impl IntoIterator<Item = P>,
        image: &str,
        label: &str,
    ) -> Result<Self> {
        let mut files = Files {
            paths: paths.into_iter().map(Into::into).collect(),
            image: image.to_owned(),
            label: label.to_owned(),
            groups: Vec::new(),
        };
        if files.paths.is_empty() {
            return Err(Error::Setting {
                what: "a source of Parquet files",
                expected: "at least one file".into(),
                found: "none".into(),
            });
        }
        let mut rows = 0u64;
        for (file, path) in files.paths.iter().enumerate() {
            let counts = guarded(path, || {
                let reader = open(path)?;
                files.columns(path, reader.metadata().file_metadata().schema())?;
                let groups = reader.metadata().row_groups().iter();
                Ok(groups.map(|group| group.num_rows()).collect::<Vec<_>>())
            })?;
            for (number, count) in counts.into_iter().enumerate() {
                files.groups.push(Group {
                    file,
                    number,
                    first: rows,
                });
                let count = u64::try_from(count).ok();
                let sum = count.and_then(|count| rows.checked_add(count));
                rows =
                    sum.ok_or_else(|| damaged(path, format!("row group {number} has no length")))?;
            }
        }
        Ok(Self {
            files: Arc::new(files),
            rows: usize::try_from(rows).unwrap_or(usize::MAX),
            buffer: 1_000,
        })
    }

    /// How many rows there are, in all files.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Where the loader shuffles: each row is drawn from the next `rows` ones, whose encoded images are in memory.
    #[must_use]
    pub fn shuffle_buffer(mut self, rows: usize) -> Self {
        self.buffer = rows;
        self
    }
}

impl Source for Parquet {
    type Item = ParquetRow;
    type Sample = (Image, u32);

    fn items(&self, pass: &Pass) -> Result<Items<ParquetRow>> {
        let everything = Pass {
            shard: Shard::WHOLE,
            ..*pass
        };
        let files = Arc::clone(&self.files);
        let order = everything.order(files.groups.len()).into_iter();
        let rows = pipe::try_from_iter(order.flat_map(move |group| {
            let group = files.groups[group];
            rows(&files, group).unwrap_or_else(|error| vec![Err(error)])
        }));
        Ok(match pass.shuffle {
            true => {
                let mixed = rows.shuffle(self.buffer, pass.shuffle_key(1));
                Box::new(Split::new(mixed, pass.shard, pass.even))
            }
            false => Box::new(Split::new(rows, pass.shard, pass.even)),
        })
    }

    fn load(&self, row: ParquetRow) -> Result<(Image, u32)> {
        Ok((decode(row.bytes.data())?, row.label))
    }

    fn describe(&self, row: &ParquetRow) -> String {
        let path = row.files.paths[row.file].display();
        match &row.name {
            Some(name) => format!("row {} ({name}) in {path}", row.number),
            None => format!("row {} in {path}", row.number),
        }
    }

    fn len_hint(&self, pass: &Pass) -> Option<usize> {
        Some(pass.share(self.rows))
    }

    fn key(&self, row: &ParquetRow) -> Option<u64> {
        Some(row.number)
    }
}

impl Files {
    /// A schema of the two columns alone.
    fn columns(&self, path: &Path, schema: &Type) -> Result<Type> {
        let find = |name: &str| -> Result<TypePtr> {
            let found = schema
                .get_fields()
                .iter()
                .find(|field| field.name() == name);
            found.cloned().ok_or_else(|| {
                let names: Vec<_> = schema
                    .get_fields()
                    .iter()
                    .map(|field| field.name())
                    .collect();
                Error::File {
                    path: path.to_owned(),
                    problem: FileProblem::Container {
                        format: "table of images",
                        problem: format!("no column {name:?} among {}", names.join(", ")),
                        remedy: "name the columns of images and of labels",
                    },
                }
            })
        };
        let fields = vec![find(&self.image)?, find(&self.label)?];
        let columns = Type::group_type_builder(schema.name()).with_fields(fields);
        columns.build().map_err(|error| bad(path, &error))
    }

    /// Image bytes, file name and label of a row.
    fn values(&self, row: Row) -> Result<(ByteArray, Option<String>, u32), String> {
        let (mut image, mut label) = (None, None);
        for (name, field) in row.into_columns() {
            match field {
                _ if name == self.label => label = whole_number(&field),
                field if name == self.image => image = encoded(field),
                _ => {}
            }
        }
        let (bytes, name) = image.ok_or_else(|| format!("no bytes in {:?}", self.image))?;
        let label = label.ok_or_else(|| format!("no number of a class in {:?}", self.label))?;
        Ok((bytes, name, label))
    }
}

/// The rows of a row group; one without an image or a label is an error in its place.
fn rows(files: &Arc<Files>, group: Group) -> Result<Vec<Result<ParquetRow>>> {
    let path = &files.paths[group.file];
    guarded(path, || {
        let reader = open(path)?;
        let columns = files.columns(path, reader.metadata().file_metadata().schema())?;
        let reader = reader.get_row_group(group.number);
        let reader = reader.map_err(|error| bad(path, &error))?;
        let found = reader.get_row_iter(Some(columns));
        let found = found.map_err(|error| bad(path, &error))?;
        let rows = (group.first..).zip(found).map(|(number, row)| {
            let row = row.map_err(|error| bad(path, &error))?;
            let values = files.values(row);
            let (bytes, name, label) =
                values.map_err(|problem| damaged(path, format!("row {number}: {problem}")))?;
            Ok(ParquetRow {
                files: Arc::clone(files),
                file: group.file,
                number,
                bytes,
                name,
                label,
            })
        });
        Ok(rows.collect())
    })
}

fn encoded(field: Field) -> Option<(ByteArray, Option<String>)> {
    match field {
        Field::Bytes(bytes) => Some((bytes, None)),
        Field::Group(row) => {
            let (mut bytes, mut name) = (None, None);
            for (column, field) in row.into_columns() {
                match (column.as_str(), field) {
                    ("bytes", Field::Bytes(found)) => bytes = Some(found),
                    ("path", Field::Str(found)) => name = Some(found),
                    _ => {}
                }
            }
            Some((bytes?, name))
        }
        _ => None,
    }
}

fn whole_number(field: &Field) -> Option<u32> {
    match *field {
        Field::Bool(value) => Some(u32::from(value)),
        Field::Byte(value) => value.try_into().ok(),
        Field::Short(value) => value.try_into().ok(),
        Field::Int(value) => value.try_into().ok(),
        Field::Long(value) => value.try_into().ok(),
        Field::UByte(value) => Some(value.into()),
        Field::UShort(value) => Some(value.into()),
        Field::UInt(value) => Some(value),
        Field::ULong(value) => value.try_into().ok(),
        _ => None,
    }
}

fn open(path: &Path) -> Result<SerializedFileReader<File>> {
    let file = File::open(path).map_err(|error| Error::Io {
        path: path.to_owned(),
        error,
    })?;
    SerializedFileReader::new(file).map_err(|error| bad(path, &error))
}

/// The reader of the format trusts some of what a file says, and panics if it is wrong.
fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T>) -> Result<T> {
    // What is half-done is not looked at again.
    let read = catch_unwind(AssertUnwindSafe(read));
    read.unwrap_or_else(|panic: Box<dyn Any + Send>| {
        Err(damaged(path, Error::panicked(&*panic).to_string()))
    })
}

fn bad(path: &Path, error: &ParquetError) -> Error {
    damaged(path, error.to_string())
}

fn damaged(path: &Path, problem: String) -> Error {
    Error::File {
        path: path.to_owned(),
        problem: FileProblem::Container {
            format: "Parquet file",
            problem,
            remedy: "fetch the file again",
        },
    }
}
