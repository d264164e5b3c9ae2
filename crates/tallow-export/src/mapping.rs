//! A file of weights in memory: mapped, so that elements are read where the file lies and pages that nobody reads cost
//! nothing.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::{Error, Result};

/// A mapped file. Clones share the mapping.
#[derive(Debug, Clone)]
pub(crate) struct Mapping(Arc<Mmap>);

impl Mapping {
    pub(crate) fn new(file: &File, path: &Path) -> Result<Self> {
        // SAFETY: the mapping is only read. A file that is cut off or written to while it is mapped is the one danger, and
        // `Program::load` says that the file must be left alone; Tallow itself replaces files as a whole, which leaves the
        // mapped one as it was.
        let map = unsafe { Mmap::map(file) }.map_err(Error::io("map", path))?;
        Ok(Self(Arc::new(map)))
    }

    /// The bytes of a range; empty if the file has grown shorter since it was checked.
    pub(crate) fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.0.get(range.clone()).unwrap_or(&[])
    }
}
