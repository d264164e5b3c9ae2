//! The idx format of MNIST and its kin: an array of bytes behind a header of its sizes.
//!
//! Four bytes `0, 0, type, rank`, then `rank` sizes as big-endian u32, then the elements, the last index fastest
//! (<http://yann.lecun.com/exdb/mnist/>). Only unsigned bytes (type 8) are read. Files packed with gzip are read
//! as they are.

use std::path::Path;

use super::source::Source;
use crate::{FileProblem, ImageDataset, Result};

/// Reads any pair of idx files: images `[N, H, W]` and labels `[N]`, as those of EMNIST or KMNIST.
///
/// Label `i` stands for the `i`-th of `class_names`.
///
/// # Errors
///
/// [`Error::Io`](crate::Error::Io) if a file can't be read, [`Error::File`](crate::Error::File) if it is not a whole
/// idx file of bytes, images and labels differ in number, or a label has no class name.
pub fn load<S: Into<String>>(
    images: impl AsRef<Path>,
    labels: impl AsRef<Path>,
    class_names: impl IntoIterator<Item = S>,
) -> Result<ImageDataset> {
    let class_names = class_names.into_iter().map(Into::into).collect();
    pair(
        Source::open(images.as_ref())?,
        Source::open(labels.as_ref())?,
        None,
        class_names,
    )
}

/// Reads images and labels; `image_size` is `[H, W]`, if the data set has one.
pub(super) fn pair(
    mut images: Source<'_>,
    mut labels: Source<'_>,
    image_size: Option<[usize; 2]>,
    class_names: Vec<String>,
) -> Result<ImageDataset> {
    let (count, [height, width], pixels) = read_images(&mut images, image_size)?;
    let found = read_labels(&mut labels)?;
    if found.len() != count {
        return Err(labels.error(FileProblem::Count {
            images: count,
            labels: found.len(),
            images_path: images.path().to_owned(),
        }));
    }
    check_labels(&labels, &found, class_names.len())?;
    let found = found.into_iter().map(u32::from).collect();
    ImageDataset::new(pixels, [1, height, width], found, class_names)
}

/// The first label that stands for no class is an error.
pub(super) fn check_labels(source: &Source<'_>, labels: &[u8], classes: usize) -> Result<()> {
    match labels
        .iter()
        .position(|&label| usize::from(label) >= classes)
    {
        Some(index) => Err(source.error(FileProblem::Label {
            index,
            label: labels[index].into(),
            classes,
        })),
        None => Ok(()),
    }
}

type Images = (usize, [usize; 2], Vec<u8>);

fn read_images(source: &mut Source<'_>, image_size: Option<[usize; 2]>) -> Result<Images> {
    let [count, height, width] = read_header(source, "images: count, height, width")?;
    let too_large = |source: &Source<'_>| {
        source.error(FileProblem::TooLarge {
            dims: [count, height, width].map(u64::from).to_vec(),
        })
    };
    let to_usize = |dim: u32| usize::try_from(dim).map_err(|_| too_large(source));
    let found = [to_usize(height)?, to_usize(width)?];
    if let Some(expected) = image_size.filter(|&expected| expected != found) {
        return Err(source.error(FileProblem::ImageSize { expected, found }));
    }
    if count == 0 || found.contains(&0) {
        return Err(source.error(FileProblem::Empty));
    }
    let len = (u64::from(height) * u64::from(width)).checked_mul(count.into());
    let len = len
        .filter(|&len| isize::try_from(len).is_ok())
        .ok_or_else(|| too_large(source))?;
    let count = to_usize(count)?;
    Ok((count, found, source.rest_exactly(len)?))
}

fn read_labels(source: &mut Source<'_>) -> Result<Vec<u8>> {
    let [count] = read_header(source, "labels: count")?;
    source.rest_exactly(count.into())
}

/// The sizes of an array of bytes with `RANK` dimensions.
fn read_header<const RANK: usize>(
    source: &mut Source<'_>,
    layout: &'static str,
) -> Result<[u32; RANK]> {
    let magic: [u8; 4] = source.array()?;
    let [0, 0, kind, rank] = magic else {
        return Err(source.error(FileProblem::Magic {
            format: "an idx file",
            expected: "00 00 08 and the number of dimensions",
            found: magic,
        }));
    };
    if kind != 0x08 {
        return Err(source.error(FileProblem::ElementType {
            found: kind,
            name: type_name(kind),
        }));
    }
    let rank = usize::from(rank);
    if rank != RANK {
        return Err(source.error(FileProblem::Rank {
            expected: RANK,
            found: rank,
            layout,
        }));
    }
    let mut dims = [0; RANK];
    for dim in &mut dims {
        *dim = u32::from_be_bytes(source.array()?);
    }
    Ok(dims)
}

fn type_name(kind: u8) -> &'static str {
    match kind {
        0x09 => "signed byte",
        0x0b => "16-bit integer",
        0x0c => "32-bit integer",
        0x0d => "32-bit float",
        0x0e => "64-bit float",
        _ => "unknown",
    }
}
