//! The newest whole checkpoint of a folder: what a killed training is resumed from.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};

use super::format::{Checkpoint, Stand};
use super::resume_file;
use crate::trainer::State;
use crate::{CheckpointProblem, Error, Result};

/// The file of a folder that holds the name of the checkpoint written last.
pub(crate) const LATEST: &str = "latest";

/// Resumes from the checkpoint that the folder's `latest` names or, if that one isn't whole, from the one that is furthest.
pub(super) fn resume_newest(state: &mut State, folder: &Path) -> Result<()> {
    let mut damaged = Vec::new();
    for path in candidates(folder)? {
        match resume_file(state, &path) {
            Err(error) if is_damage(&error) => damaged.push(error.to_string()),
            result => return result,
        }
    }
    let problem = CheckpointProblem::NoneWhole { damaged };
    Err(Error::checkpoint(folder, problem))
}

/// Whether a folder holds anything that looks like a checkpoint, damaged ones included.
pub(crate) fn has_checkpoints(folder: &Path) -> Result<bool> {
    Ok(folder.is_dir() && !files(folder)?.is_empty())
}

/// The checkpoints of a folder in the order in which to try them. Those whose header can't be read come last, so that the
/// error names them too.
fn candidates(folder: &Path) -> Result<Vec<PathBuf>> {
    let named = fs::read_to_string(folder.join(LATEST)).unwrap_or_default();
    let named = folder.join(named.trim());
    let rank = |path: &PathBuf| {
        let stand: Option<Stand> = Checkpoint::stand(path).ok();
        Reverse((stand.is_some() && *path == named, stand))
    };
    let mut files = files(folder)?;
    files.sort();
    files.sort_by_cached_key(rank);
    Ok(files)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |source| Error::Folder {
        action: "read",
        path: folder.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        // Unfinished files have a hidden name with another ending.
        if path
            .extension()
            .is_some_and(|ending| ending == "safetensors")
        {
            files.push(path);
        }
    }
    Ok(files)
}

/// Whether another checkpoint of the same training may do better.
fn is_damage(error: &Error) -> bool {
    use CheckpointProblem::{Damaged, Metadata, NoTraining};
    match error {
        Error::File(_) => true,
        Error::Checkpoint { problem, .. } => {
            matches!(problem, Damaged { .. } | Metadata(_) | NoTraining)
        }
        _ => false,
    }
}
