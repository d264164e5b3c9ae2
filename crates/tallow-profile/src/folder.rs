//! All reports in one folder, and [`from_env`], which leaves them there for any program.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::{Error, Grouping, Profile, Profiler, Result};

/// The files that [`Profile::write_to`] leaves.
const TRACE: &str = "trace.json";
const REPORT: &str = "report.html";
const FLAME: &str = "flame.svg";
const TEXT: &str = "summary.txt";

impl Profile {
    /// Writes `report.html`, `trace.json` (for Perfetto), `flame.svg` and `summary.txt` into a folder, which is made where it
    /// isn't there.
    ///
    /// # Errors
    /// [`Error::Write`] names the file; former files stay whole until the new ones are.
    pub fn write_to(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        let made = std::fs::create_dir_all(folder);
        made.map_err(|source| Error::Write {
            path: folder.to_path_buf(),
            source,
        })?;
        self.write_trace(folder.join(TRACE))?;
        self.write_html(folder.join(REPORT))?;
        match self.write_flame_graph(folder.join(FLAME)) {
            // Nothing ran for a microsecond: there is nothing to draw.
            Ok(()) | Err(Error::Flame(_)) => {}
            Err(error) => return Err(error),
        }
        let summary = self.summary();
        write(&folder.join(TEXT), |file| {
            file.write_all(summary.as_bytes())
        })
    }

    /// The bottleneck report and the tables, as text.
    pub fn summary(&self) -> String {
        let mut text = format!("{}\n", self.bottlenecks());
        for grouping in [Grouping::Operation, Grouping::Module, Grouping::Shape] {
            text.push_str(&format!("\n{}\n", self.table(grouping)));
        }
        if !self.memory.holders.is_empty() {
            text.push_str("\nWhat holds memory at the peak of tape and plans:\n");
        }
        for held in &self.memory.holders {
            let mebibytes = held.bytes as f64 / f64::from(1 << 20);
            text.push_str(&format!(
                "{mebibytes:>10.2} MiB  {} {}\n",
                held.what, held.module
            ));
        }
        if self.dropped > 0 {
            text.push_str(&format!(
                "\n{} spans were left out: raise `ProfilerBuilder::most_spans`, or record fewer steps.\n",
                self.dropped
            ));
        }
        text
    }
}

/// Writes a file beside its place and puts it there when it is whole.
pub(crate) fn write(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<std::fs::File>) -> std::io::Result<()>,
) -> Result<()> {
    let mut beside = path.as_os_str().to_os_string();
    beside.push(".partial");
    let beside = PathBuf::from(beside);
    let written = std::fs::File::create(&beside).and_then(|file| {
        let mut file = BufWriter::new(file);
        fill(&mut file)?;
        file.into_inner()
            .map_err(std::io::IntoInnerError::into_error)?
            .sync_all()?;
        std::fs::rename(&beside, path)
    });
    written.map_err(|source| {
        // What is left of the attempt is of no use; that it can't be removed changes nothing.
        let _ = std::fs::remove_file(&beside);
        Error::Write {
            path: path.to_path_buf(),
            source,
        }
    })
}

/// The variable that [`from_env`] asks.
const VARIABLE: &str = "TALLOW_PROFILE";

/// Profiles the rest of a program if the environment variable `TALLOW_PROFILE` names a folder, and writes the reports there
/// when the guard is dropped; does nothing otherwise. To be the first line of `main`:
///
/// ```
/// # fn main() -> tallow_profile::Result<()> {
/// let _profile = tallow_profile::from_env()?;
/// # Ok(())
/// # }
/// ```
///
/// Every example does this, and `cargo xtask profile EXAMPLE` sets the variable.
///
/// # Errors
/// [`Error::Busy`], [`Error::OtherSubscriber`].
pub fn from_env() -> Result<FromEnv> {
    let folder = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
    let Some(folder) = folder.map(PathBuf::from) else {
        return Ok(FromEnv(None));
    };
    Ok(FromEnv(Some((Profiler::start()?, folder))))
}

/// Writes the reports when dropped; see [`from_env`].
#[must_use = "the program is profiled until the guard is dropped; bind it to a name, not to `_`"]
#[derive(Debug)]
pub struct FromEnv(Option<(Profiler, PathBuf)>);

impl FromEnv {
    /// The profiler, if the program is profiled; for a trainer's [`hook`](Profiler::hook).
    pub fn profiler(&self) -> Option<&Profiler> {
        self.0.as_ref().map(|(profiler, _)| profiler)
    }
}

impl Drop for FromEnv {
    fn drop(&mut self) {
        let Some((profiler, folder)) = self.0.take() else {
            return;
        };
        let profile = profiler.finish();
        match profile.write_to(&folder) {
            Ok(()) => eprintln!(
                "{}\n\nprofile: {}",
                profile.bottlenecks(),
                folder.join(REPORT).display()
            ),
            Err(error) => eprintln!("profile: {error}"),
        }
    }
}
