//! [`TarShards`]: samples in tar files, in the form of WebDataset.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::decoding::decode;
use super::split::Split;
use super::{Items, Pass, Source};
use crate::{Error, FileProblem, Image, Result, pipe};

/// The last parts of names of images.
const IMAGES: [&str; 7] = ["jpg", "jpeg", "png", "ppm", "pgm", "bmp", "webp"];
/// More than any number of a class needs.
const LONGEST_LABEL: u64 = 64;

/// Images in tar files, in the form of [WebDataset](https://github.com/webdataset/webdataset): entries that lie side by side
/// and share a name up to its first dot are a sample, `0017.jpg` (or `png`, ..) its image and `0017.cls` the number of its class.
///
/// Only headers are read to find the samples, and one shard's at a time; the loader's workers read the images where they
/// lie in the file. So the order can be mixed within a large buffer for the memory of a small one, and going on in the
/// middle of an epoch reads no image again.
///
/// Where the loader shuffles, shards come in another order in each epoch, and samples are mixed within a buffer of
/// 10,000 (see [`shuffle_buffer`](Self::shuffle_buffer)). Of several readers, each takes every n-th sample of that order: all get
/// the same number, however many shards there are. The number of workers changes nothing.
///
/// ```no_run
/// use tallow_data::TarShards;
///
/// # fn main() -> tallow_data::Result<()> {
/// let shards = TarShards::open((0..8).map(|i| format!("train-{i:04}.tar")))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct TarShards {
    paths: Arc<[PathBuf]>,
    buffer: usize,
}

impl TarShards {
    /// The given files, in this order where nothing is shuffled.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if there is none, [`Error::Io`] if one can't be opened. What is in them is checked when it is
    /// read.
    pub fn open<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Result<Self> {
        let paths: Arc<[PathBuf]> = paths.into_iter().map(Into::into).collect();
        if paths.is_empty() {
            return Err(Error::Setting {
                what: "a source of tar shards",
                expected: "at least one file".into(),
                found: "none".into(),
            });
        }
        for path in paths.iter() {
            File::open(path).map_err(|error| io(path, error))?;
        }
        Ok(Self {
            paths,
            buffer: 10_000,
        })
    }

    /// Where the loader shuffles: each sample is drawn from the next `samples` ones.
    #[must_use]
    pub fn shuffle_buffer(mut self, samples: usize) -> Self {
        self.buffer = samples;
        self
    }
}

/// A sample in a tar file: where its image and its label lie.
#[derive(Debug, Clone)]
pub struct TarEntry {
    paths: Arc<[PathBuf]>,
    shard: usize,
    name: String,
    number: u64,
    image: Span,
    label: Span,
}

impl TarEntry {
    /// What the names of its files begin with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tar file.
    pub fn path(&self) -> &Path {
        &self.paths[self.shard]
    }
}

/// Bytes in a file.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u64,
    len: u64,
}

impl Source for TarShards {
    type Item = TarEntry;
    type Sample = (Image, u32);

    fn items(&self, pass: &Pass) -> Result<Items<TarEntry>> {
        let everything = Pass {
            shard: super::Shard::WHOLE,
            ..*pass
        };
        let paths = Arc::clone(&self.paths);
        let order = everything.order(paths.len()).into_iter();
        let samples = pipe::try_from_iter(order.flat_map(move |shard| index(&paths, shard)));
        Ok(match pass.shuffle {
            true => {
                let mixed = samples.shuffle(self.buffer, pass.shuffle_key(1));
                Box::new(Split::new(mixed, pass.shard, pass.even))
            }
            false => Box::new(Split::new(samples, pass.shard, pass.even)),
        })
    }

    fn load(&self, entry: TarEntry) -> Result<(Image, u32)> {
        let path = entry.path();
        let mut file = File::open(path).map_err(|error| io(path, error))?;
        let label = read(&mut file, entry.label).map_err(|error| io(path, error))?;
        let label = std::str::from_utf8(&label).ok();
        let label = label.and_then(|label| label.trim().parse().ok());
        let label = label.ok_or_else(|| {
            let problem = format!("{}.cls holds no number of a class, 0, 1, ..", entry.name);
            damaged(path, problem, "write it as digits")
        })?;
        let bytes = read(&mut file, entry.image).map_err(|error| io(path, error))?;
        Ok((decode(&bytes)?, label))
    }

    fn describe(&self, entry: &TarEntry) -> String {
        format!("{} in {}", entry.name, entry.path().display())
    }

    fn key(&self, entry: &TarEntry) -> Option<u64> {
        Some((entry.shard as u64) << 40 | entry.number)
    }
}

/// The samples of one shard; what follows a damaged place is not read.
fn index(paths: &Arc<[PathBuf]>, shard: usize) -> Vec<Result<TarEntry>> {
    let path = &paths[shard];
    let mut groups = Vec::new();
    let outcome = group(path, &mut groups);
    let samples = groups.into_iter().zip(0..).map(|(group, number)| {
        let (Some(image), Some(label)) = (group.image, group.label) else {
            let problem = format!("sample {} has no image or no .cls", group.name);
            return Err(damaged(path, problem, "write both files side by side"));
        };
        Ok(TarEntry {
            paths: Arc::clone(paths),
            shard,
            name: group.name,
            number,
            image,
            label,
        })
    });
    let mut samples: Vec<_> = samples.collect();
    if let Err(error) = outcome {
        samples.push(Err(error));
    }
    samples
}

/// The files of a sample.
struct Group {
    name: String,
    image: Option<Span>,
    label: Option<Span>,
}

fn group(path: &Path, groups: &mut Vec<Group>) -> Result<()> {
    let bad = |error: io::Error| damaged(path, error.to_string(), "fetch or pack it again");
    let file = File::open(path).map_err(|error| io(path, error))?;
    let size = file.metadata().map_err(|error| io(path, error))?.len();
    let mut archive = tar::Archive::new(file);
    for entry in archive.entries_with_seek().map_err(bad)? {
        let entry = entry.map_err(bad)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let span = Span {
            start: entry.raw_file_position(),
            len: entry.size(),
        };
        let full = entry.path().map_err(bad)?.display().to_string();
        if span
            .start
            .checked_add(span.len)
            .is_none_or(|end| end > size)
        {
            let problem = format!("{full} reaches beyond the end of the file");
            return Err(damaged(path, problem, "fetch or pack it again"));
        }
        add(groups, &full, span);
    }
    Ok(())
}

fn add(groups: &mut Vec<Group>, full: &str, span: Span) {
    let file_name = full.rfind('/').map_or(0, |slash| slash + 1);
    let Some(dot) = full[file_name..].find('.').filter(|&dot| dot > 0) else {
        return;
    };
    let (name, extension) = full.split_at(file_name + dot);
    let extension = extension[1..].to_ascii_lowercase();
    let is_image = IMAGES.contains(&extension.as_str());
    let is_label = extension == "cls" && span.len <= LONGEST_LABEL;
    if groups.last().is_none_or(|last| last.name != name) {
        groups.push(Group {
            name: name.to_owned(),
            image: None,
            label: None,
        });
    }
    if let Some(last) = groups.last_mut() {
        if is_image {
            last.image = Some(span);
        } else if is_label {
            last.label = Some(span);
        }
    }
}

fn read(file: &mut File, span: Span) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(span.start))?;
    let mut bytes = Vec::new();
    file.take(span.len).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == span.len {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn damaged(path: &Path, problem: String, remedy: &'static str) -> Error {
    Error::File {
        path: path.to_owned(),
        problem: FileProblem::Container {
            format: "tar file",
            problem,
            remedy,
        },
    }
}

fn io(path: &Path, error: io::Error) -> Error {
    Error::Io {
        path: path.to_owned(),
        error,
    }
}
