//! The records of CIFAR's "binary version": label bytes, then 3x32x32 pixels, without any header.
//!
//! Which files there are, and which byte is the label, is left to [`cifar10`](super::cifar10) and
//! [`cifar100`](super::cifar100).

use std::path::PathBuf;

use super::idx::check_labels;
use super::source::Source;
use crate::{FileProblem, ImageDataset, Result};

const SHAPE: [usize; 3] = [3, 32, 32];
const IMAGE_BYTES: usize = 3 * 32 * 32;
/// All images of either data set; no single file holds more.
const MOST_RECORDS: usize = 60_000;

/// What stands before the pixels of a record.
pub(super) struct Layout {
    /// The number of classes of each label byte.
    pub(super) classes: &'static [usize],
    /// Which of the label bytes is the label.
    pub(super) label: usize,
    /// In words, for errors.
    pub(super) description: &'static str,
}

/// Reads the records of some files, one after the other.
pub(super) fn load(
    paths: &[PathBuf],
    layout: &Layout,
    class_names: &[&str],
) -> Result<ImageDataset> {
    let mut pixels = Vec::new();
    let mut labels = Vec::new();
    for path in paths {
        append(Source::open(path)?, layout, &mut pixels, &mut labels)?;
    }
    ImageDataset::new(pixels, SHAPE, labels, class_names.iter().copied())
}

fn append(
    mut source: Source<'_>,
    layout: &Layout,
    pixels: &mut Vec<u8>,
    labels: &mut Vec<u32>,
) -> Result<()> {
    let label_bytes = layout.classes.len();
    let record = label_bytes + IMAGE_BYTES;
    let bytes = source.rest_at_most((MOST_RECORDS * record) as u64)?;
    if bytes.is_empty() {
        return Err(source.error(FileProblem::Empty));
    }
    if bytes.len() % record != 0 {
        let found = bytes.len() as u64;
        return Err(source.error(FileProblem::RecordSize {
            record,
            found,
            layout: layout.description,
        }));
    }
    for (position, &classes) in layout.classes.iter().enumerate() {
        let found: Vec<u8> = bytes
            .iter()
            .skip(position)
            .step_by(record)
            .copied()
            .collect();
        check_labels(&source, &found, classes)?;
        if position == layout.label {
            labels.extend(found.into_iter().map(u32::from));
        }
    }
    pixels.reserve(bytes.len() / record * IMAGE_BYTES);
    for record in bytes.chunks_exact(record) {
        pixels.extend_from_slice(&record[label_bytes..]);
    }
    Ok(())
}
