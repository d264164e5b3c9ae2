//! Where a data set's files lie: one folder, several names for a file, and what to say if it isn't there.

use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// What a data set is called and where its files come from.
pub(super) struct Origin {
    pub(super) what: &'static str,
    /// The folder that an archive or PyTorch makes inside the one that a user names.
    pub(super) subfolder: &'static str,
    /// The usual names of all files.
    pub(super) files: &'static [&'static str],
    /// Where they can be had: a whole sentence.
    pub(super) source_hint: &'static str,
}

impl Origin {
    /// The folder that holds the files: `folder`, or its subfolder of the usual name.
    pub(super) fn folder(&self, folder: &Path) -> Result<PathBuf> {
        let inner = folder.join(self.subfolder);
        if inner.is_dir() {
            return Ok(inner);
        }
        if folder.is_dir() {
            return Ok(folder.to_owned());
        }
        Err(Error::MissingFolder {
            what: self.what,
            path: folder.to_owned(),
            files: self.files.join(", "),
            source_hint: self.source_hint,
        })
    }

    /// The first of `names` that exists in `folder`, as it is or with `.gz` behind it.
    pub(super) fn file(&self, folder: &Path, names: &[&str]) -> Result<PathBuf> {
        let candidates = names
            .iter()
            .flat_map(|name| [(*name).to_owned(), format!("{name}.gz")]);
        let candidates: Vec<String> = candidates.collect();
        let found = candidates
            .iter()
            .map(|name| folder.join(name))
            .find(|path| path.exists());
        found.ok_or_else(|| Error::MissingFile {
            what: self.what,
            folder: folder.to_owned(),
            file: candidates.join(" or "),
            files: self.files.join(", "),
            source_hint: self.source_hint,
        })
    }
}
