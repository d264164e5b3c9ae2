//! [`ImageFolder`]: a folder a class, with image files in it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::Dataset;
use super::dataset::beyond;
use crate::decode::{self, DecodeOptions};
use crate::{Error, FileProblem, Image, Result};

/// What torchvision takes for images.
const EXTENSIONS: [&str; 9] = [
    "jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp",
];

/// Image files in folders that are named by their classes: `root/cat/1.jpg`, `root/dog/2.png`.
///
/// Classes and files are numbered as by torchvision's `ImageFolder`: classes in the order of their names, the files of a
/// class in the order of their folders and names, folders within a class included, files that are not named as images left
/// out. Images are read when they are asked for, and come with red, green and blue, as
/// torchvision reads them.
///
/// ```no_run
/// use tallow_data::{Dataset, ImageFolder};
///
/// # fn main() -> tallow_data::Result<()> {
/// let pets = ImageFolder::open("pets/train")?;
/// println!("{} images of {:?}", pets.len(), pets.classes());
/// let (image, class) = pets.get(0)?;
/// println!("{}: {image:?}, {}", pets.describe(0), pets.classes()[class as usize]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ImageFolder {
    root: PathBuf,
    classes: Vec<String>,
    files: Vec<(PathBuf, u32)>,
    options: DecodeOptions,
}

impl ImageFolder {
    /// Lists the files under `root`.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFolder`] if `root` is not a folder, [`Error::File`] if it has no folders or one without images,
    /// [`Error::Io`] if the system doesn't let it be read.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        if !root.is_dir() {
            return Err(Error::MissingFolder {
                what: "an image folder",
                path: root,
                files: "a folder for each class, with its images".into(),
                source_hint: "It is laid out as for torchvision's ImageFolder.",
            });
        }
        let mut classes = Vec::new();
        for entry in entries(&root)? {
            if entry.is_dir() {
                classes.push(name(&entry)?);
            }
        }
        classes.sort_unstable();
        let mut files = Vec::new();
        for (label, class) in (0..).zip(&classes) {
            let before = files.len();
            let of_class = images_below(&root.join(class))?;
            files.extend(of_class.into_iter().map(|path| (path, label)));
            if files.len() == before {
                return Err(no_images(root.join(class)));
            }
        }
        if classes.is_empty() {
            return Err(no_images(root));
        }
        Ok(Self {
            root,
            classes,
            files,
            options: DecodeOptions::rgb(),
        })
    }

    /// The same files, decoded in another way: turned as their EXIF data say, in grey, or with other limits.
    #[must_use]
    pub fn with_decoding(self, options: DecodeOptions) -> Self {
        Self { options, ..self }
    }

    /// The names of the classes, in the order of their labels.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Every file with its label, in the order of their numbers.
    pub fn files(&self) -> &[(PathBuf, u32)] {
        &self.files
    }
}

impl Dataset for ImageFolder {
    type Sample = (Image, u32);

    fn len(&self) -> usize {
        self.files.len()
    }

    fn get(&self, index: usize) -> Result<(Image, u32)> {
        let (path, label) = self
            .files
            .get(index)
            .ok_or_else(|| beyond(index, self.files.len()))?;
        let bytes = fs::read(path).map_err(|error| io(path, error))?;
        Ok((decode::decode(&bytes, &self.options)?, *label))
    }

    fn describe(&self, index: usize) -> String {
        match self.files.get(index) {
            Some((path, _)) => format!("sample {index} ({})", path.display()),
            None => format!("sample {index}"),
        }
    }
}

impl fmt::Debug for ImageFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageFolder")
            .field("root", &self.root)
            .field("classes", &self.classes)
            .field("len", &self.files.len())
            .finish()
    }
}

/// The image files below a folder, in the order in which Python's `sorted(os.walk(folder))` gives them.
fn images_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(folder) = folders.get(next).cloned() {
        let inner = entries(&folder)?.into_iter();
        folders.extend(inner.filter(|path| path.is_dir() && !leads_back(&folder, path)));
        next += 1;
    }
    folders.sort_unstable_by_key(|path| path.as_os_str().to_owned());
    let mut files = Vec::new();
    for folder in folders {
        let images = entries(&folder)?.into_iter();
        let mut images: Vec<_> = images.filter(|path| is_image(path)).collect();
        images.sort_unstable_by_key(|path| path.file_name().map(ToOwned::to_owned));
        files.append(&mut images);
    }
    Ok(files)
}

/// Whether `path`, in `folder`, is a link to a folder above: following it would go on for ever.
fn leads_back(folder: &Path, path: &Path) -> bool {
    match (folder.canonicalize(), path.canonicalize()) {
        (Ok(folder), Ok(path)) => folder.starts_with(path),
        _ => true,
    }
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let known = extension.is_some_and(|found| {
        EXTENSIONS
            .iter()
            .any(|known| found.eq_ignore_ascii_case(known))
    });
    known && !path.is_dir()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let listing = fs::read_dir(folder).map_err(|error| io(folder, error))?;
    let paths = listing.map(|entry| entry.map(|entry| entry.path()));
    paths
        .collect::<std::io::Result<_>>()
        .map_err(|error| io(folder, error))
}

fn name(folder: &Path) -> Result<String> {
    let name = folder.file_name().and_then(|name| name.to_str());
    let name = name.map(ToOwned::to_owned);
    name.ok_or_else(|| Error::Setting {
        what: "a folder of images",
        expected: "names of classes in UTF-8".into(),
        found: folder.display().to_string(),
    })
}

fn no_images(path: PathBuf) -> Error {
    Error::File {
        path,
        problem: FileProblem::NoImages {
            extensions: EXTENSIONS.join(", "),
        },
    }
}

fn io(path: &Path, error: std::io::Error) -> Error {
    Error::Io {
        path: path.to_owned(),
        error,
    }
}
