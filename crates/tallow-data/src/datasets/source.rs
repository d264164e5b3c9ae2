//! [`Source`]: one file's bytes, unpacked if need be, read so that neither a short file nor a lying header does harm.
//!
//! What the bytes mean is left to the formats, [`idx`](super::idx) and [`cifar_records`](super::cifar_records).

use std::fs::File;
use std::io::{self, BufReader, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::{Error, FileProblem, Result};

const GZIP_MARK: [u8; 2] = [0x1f, 0x8b];

/// A file that is being read from its beginning to its end.
pub(super) struct Source<'a> {
    path: PathBuf,
    reader: Box<dyn Read + 'a>,
    /// Known only for files that are not packed.
    len: Option<u64>,
    /// Bytes read so far, unpacked.
    read: u64,
}

impl<'a> Source<'a> {
    /// Opens a file. Whether it is packed is told by its first bytes, not by its name.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let io = |error| Error::Io {
            path: path.to_owned(),
            error,
        };
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.is_dir() {
            return Err(io(io::Error::new(
                ErrorKind::IsADirectory,
                "it is a folder, not a file",
            )));
        }
        Self::new(path, file, metadata.len())
    }

    /// Reads bytes in memory; errors name them `name`.
    pub(super) fn from_bytes(name: &str, bytes: &'a [u8]) -> Result<Self> {
        Self::new(Path::new(name), bytes, bytes.len() as u64)
    }

    fn new(path: &Path, mut file: impl Read + 'a, len: u64) -> Result<Self> {
        let mut start = Vec::new();
        let read = file
            .by_ref()
            .take(GZIP_MARK.len() as u64)
            .read_to_end(&mut start);
        read.map_err(|error| Error::Io {
            path: path.to_owned(),
            error,
        })?;
        let packed = start == GZIP_MARK;
        let whole = BufReader::with_capacity(1 << 16, Cursor::new(start).chain(file));
        let reader: Box<dyn Read + 'a> = match packed {
            true => Box::new(MultiGzDecoder::new(whole)),
            false => Box::new(whole),
        };
        Ok(Self {
            path: path.to_owned(),
            reader,
            len: (!packed).then_some(len),
            read: 0,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn error(&self, problem: FileProblem) -> Error {
        Error::File {
            path: self.path.clone(),
            problem,
        }
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let end = self.read + N as u64;
        let bytes = self.up_to(N as u64, end)?;
        let found = self.read;
        bytes.try_into().map_err(|_| {
            self.error(FileProblem::Truncated {
                expected: end,
                found,
            })
        })
    }

    /// The rest of the file, which has to be `len` bytes.
    pub(super) fn rest_exactly(&mut self, len: u64) -> Result<Vec<u8>> {
        let expected = self.read.saturating_add(len);
        if let Some(found) = self.len {
            self.compare(expected, found)?;
        }
        let rest = self.up_to(len.saturating_add(1), expected)?;
        self.compare(expected, self.read)?;
        Ok(rest)
    }

    /// The rest of the file, which may not be more than `len` bytes.
    pub(super) fn rest_at_most(&mut self, len: u64) -> Result<Vec<u8>> {
        let allowed = self.read.saturating_add(len);
        let rest = self.up_to(len.saturating_add(1), 0)?;
        self.compare(allowed.min(self.read), self.read)?;
        Ok(rest)
    }

    fn compare(&self, expected: u64, found: u64) -> Result<()> {
        match found {
            _ if found < expected => Err(self.error(FileProblem::Truncated { expected, found })),
            _ if found > expected => Err(self.error(FileProblem::TrailingData { expected, found })),
            _ => Ok(()),
        }
    }

    /// Up to `count` bytes, fewer if the file ends; the caller expects the file to reach to `end` at least. The
    /// buffer grows with what is read, never ahead of it by more than its own size.
    fn up_to(&mut self, count: u64, end: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let outcome = self.reader.by_ref().take(count).read_to_end(&mut bytes);
        self.read += bytes.len() as u64;
        let Err(error) = outcome else {
            return Ok(bytes);
        };
        let found = self.read;
        let packed = self.len.is_none();
        Err(match error.kind() {
            ErrorKind::UnexpectedEof if packed && found < end => {
                self.error(FileProblem::Truncated {
                    expected: end,
                    found,
                })
            }
            ErrorKind::UnexpectedEof | ErrorKind::InvalidInput | ErrorKind::InvalidData
                if packed =>
            {
                self.error(FileProblem::Gzip { found, error })
            }
            _ => Error::Io {
                path: self.path.clone(),
                error,
            },
        })
    }
}
