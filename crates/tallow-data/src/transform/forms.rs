//! The forms of a picture after bytes: numbers from 0 to 1, and normalised numbers.

use crate::{Error, Result};

/// A picture as `[C, H, W]` floats from 0 to 1, what `ToTensor` gives.
#[derive(Debug, Clone, PartialEq)]
pub struct FloatImage {
    pub(crate) values: Vec<f32>,
    /// `[C, H, W]`.
    pub(crate) shape: [usize; 3],
}

/// A picture as `[C, H, W]` floats of about mean 0 and standard deviation 1, what `Normalize` gives.
#[derive(Debug, Clone, PartialEq)]
pub struct NormalizedImage {
    pub(crate) values: Vec<f32>,
    /// `[C, H, W]`.
    pub(crate) shape: [usize; 3],
}

/// Pictures of floats, whatever their scale.
pub(crate) trait Floats {
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
                Ok(Self { values, shape })
            }

            /// All values, to be changed.
            pub fn values_mut(&mut self) -> &mut [f32] {
                &mut self.values
            }

            /// The values themselves, so that their memory can be used again.
            pub fn into_values(self) -> Vec<f32> {
                self.values
            }

            /// All values, `[C, H, W]`.
            pub fn values(&self) -> &[f32] {
                &self.values
            }

            /// `[C, H, W]`.
            pub fn shape(&self) -> [usize; 3] {
                self.shape
            }
        }

        impl Floats for $name {
            fn parts(&mut self) -> (&mut [f32], [usize; 3]) {
                (&mut self.values, self.shape)
            }
        }
    };
}
form!(FloatImage);
form!(NormalizedImage);
