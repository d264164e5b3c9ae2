//! The forms of a picture after bytes: numbers from 0 to 1, and normalised numbers.
//!
//! Between `to_tensor` and the batch nobody looks at the numbers of most pictures. So the forms keep the bytes, with the
//! numbers that they stand for, until someone does; a loader looks them up straight into the memory of its batch.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::normalize::{self, Table};
use crate::{Error, Image, Normalize, Result};

/// A picture as `[C, H, W]` floats from 0 to 1, what `ToTensor` gives.
#[derive(Clone, PartialEq)]
pub struct FloatImage(pub(super) Floats);

/// A picture as `[C, H, W]` floats of about mean 0 and standard deviation 1, what `Normalize` gives.
#[derive(Clone, PartialEq)]
pub struct NormalizedImage(pub(super) Floats);

/// Numbers `[C, H, W]`, or the bytes that they are looked up from.
#[derive(Clone)]
pub(super) struct Floats {
    shape: [usize; 3],
    /// The numbers, once they were asked for.
    values: OnceLock<Vec<f32>>,
    /// What they come from, as long as they were not changed; one table a channel.
    bytes: Option<(Image, Arc<[Table]>)>,
}

impl Floats {
    fn new(values: Vec<f32>, shape: [usize; 3]) -> Self {
        Self {
            shape,
            values: OnceLock::from(values),
            bytes: None,
        }
    }

    /// The bytes of a picture as numbers from 0 to 1.
    pub(super) fn scaled(image: Image) -> Self {
        let tables = normalize::scale(image.channels());
        Self {
            shape: [image.channels(), image.height(), image.width()],
            values: OnceLock::new(),
            bytes: Some((image, tables)),
        }
    }

    /// `(value - mean) / std`, of numbers from 0 to 1.
    pub(super) fn normalized(mut self, normalize: &Normalize) -> Result<Self> {
        let [channels, height, width] = self.shape;
        if let (None, Some((image, _))) = (self.values.get(), self.bytes.take()) {
            let tables = normalize::shared_tables(normalize, channels)?;
            self.bytes = Some((image, tables));
            return Ok(self);
        }
        let (means, stds) = normalize.each(channels)?;
        let planes = self.values_mut().chunks_exact_mut(height * width);
        for ((plane, &mean), &std) in planes.zip(means.iter().cycle()).zip(stds.iter().cycle()) {
            for value in plane {
                *value = (*value - mean) / std;
            }
        }
        Ok(self)
    }

    fn values(&self) -> &[f32] {
        self.values.get_or_init(|| {
            let mut values = vec![0.; self.shape.iter().product()];
            self.look_up(&mut values);
            values
        })
    }

    fn values_mut(&mut self) -> &mut [f32] {
        self.values();
        self.bytes = None;
        self.values.get_mut().map_or(&mut [], Vec::as_mut_slice)
    }

    fn into_values(mut self) -> Vec<f32> {
        self.values();
        self.values.take().unwrap_or_default()
    }

    /// All numbers, to `target` of the same length.
    fn write(&self, target: &mut [f32]) {
        match self.values.get() {
            Some(values) => target.copy_from_slice(values),
            None => self.look_up(target),
        }
    }

    fn look_up(&self, target: &mut [f32]) {
        let Some((image, tables)) = &self.bytes else {
            return;
        };
        if let [red, green, blue] = &**tables {
            let plane = image.height() * image.width();
            let (reds, rest) = target.split_at_mut(plane);
            let (greens, blues) = rest.split_at_mut(plane);
            let (pixels, _) = image.values().as_chunks::<3>();
            let places = reds.iter_mut().zip(greens).zip(blues);
            for (&[r, g, b], ((to_red, to_green), to_blue)) in pixels.iter().zip(places) {
                *to_red = red[usize::from(r)];
                *to_green = green[usize::from(g)];
                *to_blue = blue[usize::from(b)];
            }
        } else if let [grey] = &**tables {
            for (value, &byte) in target.iter_mut().zip(image.values()) {
                *value = grey[usize::from(byte)];
            }
        }
    }
}

impl PartialEq for Floats {
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape && self.values() == other.values()
    }
}

/// Pictures of floats, whatever their scale.
pub(super) trait Numbers {
    /// The values `[C, H, W]`, to be changed, and their shape.
    fn parts(&mut self) -> (&mut [f32], [usize; 3]);
}

macro_rules! form {
    ($name:ident) => {
        impl $name {
            /// A picture of `[C, H, W]` values.
            ///
            /// # Errors
            ///
            /// [`Error::Setting`] if the number of values isn't that of the shape, or zero.
            pub fn new(values: Vec<f32>, shape: [usize; 3]) -> Result<Self> {
                let expected = shape
                    .iter()
                    .try_fold(1usize, |size, &side| size.checked_mul(side));
                if values.is_empty() || expected != Some(values.len()) {
                    return Err(Error::Setting {
                        what: "an image of floats",
                        expected: "at least one value, and as many as its shape [C, H, W] says"
                            .into(),
                        found: format!("{} values for {shape:?}", values.len()),
                    });
                }
                Ok(Self(Floats::new(values, shape)))
            }

            /// All values, to be changed.
            pub fn values_mut(&mut self) -> &mut [f32] {
                self.0.values_mut()
            }

            /// The values themselves, so that their memory can be used again.
            pub fn into_values(self) -> Vec<f32> {
                self.0.into_values()
            }

            /// All values, `[C, H, W]`.
            pub fn values(&self) -> &[f32] {
                self.0.values()
            }

            /// Writes all values to `target`, which has a place for each.
            pub(crate) fn write(&self, target: &mut [f32]) {
                self.0.write(target);
            }

            /// `[C, H, W]`.
            pub fn shape(&self) -> [usize; 3] {
                self.0.shape
            }
        }

        impl Numbers for $name {
            fn parts(&mut self) -> (&mut [f32], [usize; 3]) {
                let shape = self.0.shape;
                (self.0.values_mut(), shape)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("shape", &self.0.shape)
                    .field("values", &self.values())
                    .finish()
            }
        }
    };
}
form!(FloatImage);
form!(NormalizedImage);
