//! Files that are either whole or as they were before.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirEntry, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
    let done = fill(file, write).and_then(|()| fs::rename(&temporary.path, path));
    match done {
        Ok(()) => sync_folder(path).map_err(|e| Error::io("sync the folder of", path, e)),
        Err(error) => {
            // The first error is the one to report.
            let _ = fs::remove_file(&temporary.path);
            Err(Error::io("write", path, error))
        }
    }
}

/// Removes from `folder` what [`write_atomically`] had begun when its process was killed, and says how many files that were.
///
/// Such files are hidden and named `.NAME.PROCESS-NUMBER.tmp`, where `NAME` is the file that was to be written. Only those are
/// removed whose `NAME` is one for which `of` says yes and whose process, on this machine, no longer runs; where running processes
/// can't be seen, those that are older than a day. Everything else is left alone.
///
/// ```
/// use tallow_tensor::params::remove_unfinished;
///
/// # let folder = tempfile::tempdir()?;
/// let left = folder.path().join(".history.json.4194305-0.tmp");
/// std::fs::write(&left, "{")?;
/// let removed = remove_unfinished(&folder, |name| name == "history.json")?;
/// # if cfg!(target_os = "linux") {
/// assert!(removed == 1 && !left.exists());
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Io`] naming the folder that can't be read, or the file that can't be removed.
pub fn remove_unfinished(folder: impl AsRef<Path>, of: impl Fn(&str) -> bool) -> Result<usize> {
    let folder = folder.as_ref();
    let unreadable = |error| Error::io("read", folder, error);
    let mut removed = 0;
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        let Some((target, process, number)) = name.to_str().and_then(parts) else {
            continue;
        };
        if !of(target) || !is_left_behind(&entry, process, number) {
            continue;
        }
        match fs::remove_file(entry.path()) {
            Ok(()) => removed += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("remove", &entry.path(), error)),
        }
    }
    Ok(removed)
}

fn fill(file: File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut buffered = BufWriter::with_capacity(1 << 20, file);
    write(&mut buffered)?;
    buffered.into_inner()?.sync_all()
}

/// The numbers of this process's unfinished files, and how many there were.
struct Numbers {
    next: u64,
    open: BTreeSet<u64>,
}

fn numbers() -> MutexGuard<'static, Numbers> {
    static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers {
        next: 0,
        open: BTreeSet::new(),
    });
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that isn't finished.
struct Temporary {
    path: PathBuf,
    number: u64,
}

impl Temporary {
    fn beside(path: &Path, name: &std::ffi::OsStr) -> Self {
        let mut numbers = numbers();
        let number = numbers.next;
        numbers.next += 1;
        numbers.open.insert(number);
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}-{number}.tmp", std::process::id()));
        Self {
            path: path.with_file_name(temporary),
            number,
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        numbers().open.remove(&self.number);
    }
}

/// A new file in the folder of `path`, under a name that no other thread or process uses.
fn create_beside(path: &Path) -> io::Result<(Temporary, File)> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path names no file",
        ));
    };
    loop {
        let temporary = Temporary::beside(path, name);
        match File::create_new(&temporary.path) {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// The file that an unfinished one was to become, and the process and number of whoever began it.
fn parts(name: &str) -> Option<(&str, u32, u64)> {
    let (target, writer) = name
        .strip_prefix('.')?
        .strip_suffix(".tmp")?
        .rsplit_once('.')?;
    let (process, number) = writer.split_once('-')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if target.is_empty() || !digits(process) || !digits(number) {
        return None;
    }
    Some((target, process.parse().ok()?, number.parse().ok()?))
}

/// Whether nobody will finish a file.
fn is_left_behind(entry: &DirEntry, process: u32, number: u64) -> bool {
    const DAY: Duration = Duration::from_hours(24);
    let Ok(metadata) = entry.metadata() else {
        return false;
    };
    if !metadata.is_file() {
        return false;
    }
    if process == std::process::id() {
        // Its number may have been given out by a former process of that number.
        return !numbers().open.contains(&number);
    }
    let processes = Path::new("/proc");
    if processes.join("self").exists() {
        return !processes.join(process.to_string()).exists();
    }
    let age = metadata.modified().ok().and_then(|at| at.elapsed().ok());
    age.is_some_and(|age| age > DAY)
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
