//! Files that are either whole or as they were before.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// Writes a file so that a crash or an error at any moment leaves the old file, if there was one, untouched: the content
/// goes to a new file in the same folder, is synced to the disk, and takes the name in one step.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("history.json");
/// tallow_tensor::params::write_atomically(&path, |file| file.write_all(b"{}"))?;
/// assert_eq!(std::fs::read(&path)?, b"{}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Io`] naming `path`. The temporary file is removed again.
pub fn write_atomically(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let path = path.as_ref();
    let (temporary, file) = create_beside(path).map_err(|e| Error::io("write", path, e))?;
    let done = fill(file, write).and_then(|()| fs::rename(&temporary, path));
    match done {
        Ok(()) => sync_folder(path).map_err(|e| Error::io("sync the folder of", path, e)),
        Err(error) => {
            // The first error is the one to report.
            let _ = fs::remove_file(&temporary);
            Err(Error::io("write", path, error))
        }
    }
}

fn fill(file: File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut buffered = BufWriter::with_capacity(1 << 20, file);
    write(&mut buffered)?;
    buffered.into_inner()?.sync_all()
}

/// A new file in the folder of `path`, under a name that no other thread or process uses.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path names no file",
        ));
    };
    loop {
        let mut temporary = OsString::from(".");
        temporary.push(name);
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        temporary.push(format!(".{}-{count}.tmp", std::process::id()));
        let temporary = path.with_file_name(temporary);
        match File::create_new(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes the rename itself durable, where folders can be synced.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}
