//! The one error type of this crate, and how it is laid out.
//!
//! Whoever reads data meets four kinds of trouble, and each wants another answer: a file that is not there
//! ([`Error::MissingFolder`], [`Error::MissingFile`]: put it there), a file that is damaged or another one than
//! expected ([`Error::File`], with a [`FileProblem`]: fetch it again), a setting that makes no sense
//! ([`Error::Setting`]: change the program), and code of the user's own that fails inside a pipe or a loader
//! ([`Error::Custom`], [`Error::Panicked`], [`Error::Hung`]; [`Error::Sample`] says with which sample). Every message is whole: it names the file or the setting, what was expected, what was found,
//! what the system said, and what to do; there is no chain of sources to be walked.

use std::any::Any;
use std::path::PathBuf;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why data could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder of a data set does not exist, or is not a folder.
    #[error("{what}: {} is not a folder; give one that holds {files}. {source_hint}", path.display())]
    MissingFolder {
        /// What was to be read, such as "Fashion-MNIST".
        what: &'static str,
        /// What was given as its folder.
        path: PathBuf,
        /// The files that are expected there.
        files: String,
        /// Where they can be had.
        source_hint: &'static str,
    },

    /// A file of a data set does not exist.
    #[error("{what}: {} holds no {file}; it should hold {files}. {source_hint}", folder.display())]
    MissingFile {
        /// What was to be read, such as "Fashion-MNIST".
        what: &'static str,
        /// The folder that was looked through.
        folder: PathBuf,
        /// The file that is missing, with the other names that were looked for.
        file: String,
        /// All the files that are expected there.
        files: String,
        /// Where they can be had.
        source_hint: &'static str,
    },

    /// A file exists, but the operating system does not let it be read.
    #[error("can't read {}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system says.
        error: std::io::Error,
    },

    /// A file can be read, but does not hold what it should.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: FileProblem,
    },

    /// A setting that can't be met, such as batches of 0 samples.
    #[error("{what} needs {expected}, found {found}")]
    Setting {
        /// What was to be set up.
        what: &'static str,
        /// What it needs.
        expected: String,
        /// What was given.
        found: String,
    },

    /// Bytes are no picture that can be decoded; [`Error::File`] where they come from a file.
    #[error("can't decode a picture: {0}")]
    Decode(DecodeProblem),

    /// User code in a pipe, or on a worker of a loader, panicked. A pipe ends after this item.
    #[error("code that makes data panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },

    /// One sample could not be made.
    #[error("{sample}: {error}")]
    Sample {
        /// The sample, as its source describes it: its number, its file.
        sample: String,
        /// What went wrong with it.
        error: Box<Error>,
    },

    /// More samples could not be made than a loader may skip.
    #[error(
        "{skipped} samples could not be made, and at most {at_most} may be skipped; the last one was {last}"
    )]
    TooManySkipped {
        /// How many in this epoch, so far.
        skipped: u64,
        /// What [`OnError::Skip`](crate::OnError::Skip) allows.
        at_most: u64,
        /// What went wrong last.
        last: Box<Error>,
    },

    /// None of the samples of a batch could be made.
    #[error(
        "none of the {count} samples of batch {batch} could be made; the first one was {first}"
    )]
    EmptyBatch {
        /// The batch's number in its epoch, from 0.
        batch: u64,
        /// Its samples.
        count: usize,
        /// What went wrong first.
        first: Box<Error>,
    },

    /// Code on a worker of a loader did not come back; the epoch has ended.
    #[error(
        "{stage} {sample} has taken {seconds} seconds; see why it hangs there, or allow it more with \
         LoaderConfig::timeout"
    )]
    Hung {
        /// What the worker was doing: "reading", ..
        stage: &'static str,
        /// What with.
        sample: String,
        /// For how long at least.
        seconds: f64,
    },

    /// A data set could not be downloaded.
    #[error("can't download {what}: {message}; {remedy}")]
    Download {
        /// The data set.
        what: &'static str,
        /// What the download code says.
        message: String,
        /// What to do.
        remedy: String,
    },

    /// A tensor could not be made, or copied to a device.
    #[error(transparent)]
    Tensor(Box<candle_core::Error>),

    /// An error of the user's own, from a function in a pipe; see [`Error::custom`].
    #[error(transparent)]
    Custom(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps an error of the user's own, so that a function in a pipe can return it.
    ///
    /// ```
    /// use tallow_data::{Error, pipe};
    ///
    /// let numbers = pipe::from_iter(["1", "two"]).try_map(|s| s.parse::<u32>().map_err(Error::custom));
    /// let read: Vec<_> = numbers.collect();
    /// assert_eq!(*read[0].as_ref().unwrap(), 1);
    /// assert_eq!(read[1].as_ref().unwrap_err().to_string(), "invalid digit found in string");
    /// ```
    pub fn custom(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Custom(error.into())
    }

    /// This error, as that of `sample`.
    pub(crate) fn sample(sample: String, error: Self) -> Self {
        Self::Sample {
            sample,
            error: Box::new(error),
        }
    }

    /// From what a panic left behind.
    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::Panicked {
            message: text.unwrap_or("(no message)").to_owned(),
        }
    }
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Self::Tensor(Box::new(error))
    }
}

/// So that a pipe can be read inside a function that returns candle's error.
impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Tensor(error) => *error,
            other => candle_core::Error::wrap(other),
        }
    }
}

/// What is wrong with a file that could be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// The file ends too early.
    #[error("truncated: {expected} bytes expected, {found} found; fetch the file again")]
    Truncated {
        /// The bytes that the format or the file's own header promise, once unpacked.
        expected: u64,
        /// The bytes there are, once unpacked.
        found: u64,
    },

    /// The file goes on after its expected end.
    #[error(
        "more data than expected: {expected} bytes expected, at least {found} found; fetch the file again"
    )]
    TrailingData {
        /// The bytes that the format or the file's own header allow, once unpacked.
        expected: u64,
        /// The bytes there are at least, once unpacked.
        found: u64,
    },

    /// The file does not begin with the mark of its format.
    #[error(
        "not {format}: it begins with bytes {found:02x?}, expected {expected}; \
         check that it is the right file, or fetch it again"
    )]
    Magic {
        /// The format.
        format: &'static str,
        /// How such a file begins.
        expected: &'static str,
        /// The first four bytes of this one.
        found: [u8; 4],
    },

    /// The elements are not unsigned bytes.
    #[error("elements of type 0x{found:02x} ({}), expected 0x08 (unsigned byte); convert the file to bytes", .name)]
    ElementType {
        /// The type code in the header.
        found: u8,
        /// What the code stands for.
        name: &'static str,
    },

    /// The array has another number of dimensions.
    #[error("{found} dimensions, expected {expected} ({layout}); were images and labels mixed up?")]
    Rank {
        /// The number of dimensions this file should have.
        expected: usize,
        /// The number that it has.
        found: usize,
        /// What the expected dimensions are.
        layout: &'static str,
    },

    /// The header promises more than any file holds.
    #[error(
        "its header promises {dims:?} elements, more than can be addressed; fetch the file again"
    )]
    TooLarge {
        /// The dimensions in the header.
        dims: Vec<u64>,
    },

    /// The images are not of the data set's size.
    #[error(
        "images of {}x{} pixels, expected {}x{} (height x width); \
         check that the file belongs to this data set",
        .found[0], .found[1], .expected[0], .expected[1]
    )]
    ImageSize {
        /// Height and width that the data set has.
        expected: [usize; 2],
        /// Height and width in this file.
        found: [usize; 2],
    },

    /// The file is not a whole number of records.
    #[error(
        "{found} bytes are not a whole number of records of {record} bytes ({layout}); \
         fetch the file again, or check that its images are of that size"
    )]
    RecordSize {
        /// The bytes of one record.
        record: usize,
        /// The bytes in the file, once unpacked.
        found: u64,
        /// What a record holds.
        layout: &'static str,
    },

    /// Labels and images differ in number.
    #[error(
        "{labels} labels for the {images} images of {}; \
         check that both files are of the same part of the data set",
        images_path.display()
    )]
    Count {
        /// The images there are.
        images: usize,
        /// The labels in this file.
        labels: usize,
        /// The file with the images.
        images_path: PathBuf,
    },

    /// A label stands for no class.
    #[error(
        "label {label} of sample {index} is out of range: the data set has {classes} classes, 0 to {}; \
         check that the file belongs to it, or fetch it again",
        .classes.saturating_sub(1)
    )]
    Label {
        /// The sample, counted from 0 in this file.
        index: usize,
        /// Its label.
        label: u32,
        /// The number of classes.
        classes: usize,
    },

    /// The file holds no image at all, or images without pixels.
    #[error("holds no images; fetch the file again")]
    Empty,

    /// A folder of images, or of a class of them, holds none.
    #[error("holds no images ({extensions}); put some there, or remove the folder")]
    NoImages {
        /// The last parts of names that are taken for images.
        extensions: String,
    },

    /// The file is not the archive or table that it should be, or is a damaged one.
    #[error("not a good {format}: {problem}; {remedy}")]
    Container {
        /// What it should be.
        format: &'static str,
        /// What is wrong.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The picture can't be decoded.
    #[error(transparent)]
    Picture(DecodeProblem),

    /// The file can't be unpacked.
    #[error("damaged gzip data after {found} bytes: {error}; fetch the file again")]
    Gzip {
        /// The bytes that could be unpacked.
        found: u64,
        /// What the decoder says.
        error: std::io::Error,
    },
}

/// Why bytes can't be decoded as a picture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeProblem {
    /// The format is none of those that can be decoded.
    #[error(
        "it begins with bytes {found:02x?}, which is none of JPEG, PNG, WebP, GIF and BMP; \
         check that it is a picture, or convert it"
    )]
    UnknownFormat {
        /// The first bytes, up to 12.
        found: Vec<u8>,
    },

    /// The picture has more pixels than are allowed.
    #[error(
        "{height}x{width} pixels (height x width), more than the limit of {limit}; \
         raise `Limits::max_pixels` if the picture is meant to be that large"
    )]
    TooManyPixels {
        /// Rows, as the header has it.
        height: u64,
        /// Pixels of a row, as the header has it.
        width: u64,
        /// The limit of height times width.
        limit: u64,
    },

    /// The picture has no pixels.
    #[error("{height}x{width} pixels (height x width); a picture has at least one")]
    Empty {
        /// Rows, as the header has it.
        height: u64,
        /// Pixels of a row, as the header has it.
        width: u64,
    },

    /// The data are damaged, end early, or use a part of the format that is not supported.
    #[error("damaged or unsupported {format} data: {message}; fetch the file again, or convert it")]
    Damaged {
        /// The format.
        format: &'static str,
        /// What the decoder says.
        message: String,
    },
}
