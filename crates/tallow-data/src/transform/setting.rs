//! Settings that several transforms share, and how they are checked.

use crate::{Error, Image, Result};

/// Height and width; a single number is a square.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub [usize; 2]);

impl From<usize> for Size {
    fn from(side: usize) -> Self {
        Self([side, side])
    }
}

impl From<[usize; 2]> for Size {
    fn from(size: [usize; 2]) -> Self {
        Self(size)
    }
}

/// The most pixels that a transform makes: what keeps a slip of the pen from taking all memory.
const MOST_PIXELS: usize = 1 << 30;

impl Size {
    /// Refuses sizes without pixels, or with absurdly many.
    pub(super) fn check(self, what: &'static str) -> Result<()> {
        let Self([height, width]) = self;
        let pixels = height.checked_mul(width);
        check(
            what,
            pixels.is_some_and(|pixels| (1..=MOST_PIXELS).contains(&pixels)),
            "a size of at least 1x1 and at most 2^30 pixels",
            || format!("{height}x{width} (height x width)"),
        )
    }
}

/// An error of a setting unless it holds.
pub(super) fn check(
    what: &'static str,
    holds: bool,
    expected: &str,
    found: impl FnOnce() -> String,
) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::Setting {
        what,
        expected: expected.into(),
        found: found(),
    })
}

/// A probability lies from 0 to 1.
pub(super) fn check_probability(what: &'static str, p: f64) -> Result<()> {
    check(
        what,
        (0. ..=1.).contains(&p),
        "a probability from 0 to 1",
        || p.to_string(),
    )
}

/// A range is finite, in order, and doesn't begin below `least`.
pub(super) fn check_range(what: &'static str, [low, high]: [f64; 2], least: f64) -> Result<()> {
    let holds = low.is_finite() && high.is_finite() && least <= low && low <= high;
    check(
        what,
        holds,
        &format!("a range of finite numbers from {least} on, the lower one first"),
        || format!("{low} to {high}"),
    )
}

/// A crop fits into its picture, `[height, width]`.
pub(super) fn check_crop(
    what: &'static str,
    Size([height, width]): Size,
    found: [usize; 2],
) -> Result<()> {
    if height <= found[0] && width <= found[1] {
        return Ok(());
    }
    Err(Error::Setting {
        what,
        expected: format!("a picture of at least {height}x{width} (height x width)"),
        found: format!(
            "one of {}x{}; resize it before, or pad it",
            found[0], found[1]
        ),
    })
}

/// A window of a picture, which must lie within it.
pub(super) fn crop(image: &Image, [top, left]: [usize; 2], [height, width]: [usize; 2]) -> Image {
    let channels = image.channels();
    let stride = image.width() * channels;
    let mut values = Vec::with_capacity(height * width * channels);
    for row in image.values()[top * stride..]
        .chunks_exact(stride)
        .take(height)
    {
        values.extend_from_slice(&row[left * channels..(left + width) * channels]);
    }
    Image::from_parts(values, [height, width], channels)
}
