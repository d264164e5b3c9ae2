//! The forms of a picture after bytes: numbers from 0 to 1, and normalised numbers.

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

macro_rules! form {
    ($name:ident) => {
        impl $name {
            /// All values, `[C, H, W]`.
            pub fn values(&self) -> &[f32] {
                &self.values
            }

            /// `[C, H, W]`.
            pub fn shape(&self) -> [usize; 3] {
                self.shape
            }
        }
    };
}
form!(FloatImage);
form!(NormalizedImage);
