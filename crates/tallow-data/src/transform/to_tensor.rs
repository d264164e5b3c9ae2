//! [`ToTensor`]: from bytes `[H, W, C]` to numbers `[C, H, W]`.

use tallow_tensor::rng::Stream;

use super::{Chain, Fixed, FloatImage, Pipeline, Transform};
use crate::{Image, Result};

/// torchvision's `ToTensor` (in v2 `ToImage` and `ToDtype(float32, scale=True)`): values from 0 to 1, channels first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToTensor;

/// Every byte as a number from 0 to 1.
static SCALED: [f32; 256] = {
    let mut table = [0.; 256];
    let mut value = 0;
    while value < 256 {
        table[value] = value as f32 / 255.;
        value += 1;
    }
    table
};

impl Transform<Image> for ToTensor {
    type Output = FloatImage;
    type Kind = Fixed;

    fn apply(&self, image: Image, _draw: &mut Stream) -> Result<FloatImage> {
        let (height, width, channels) = (image.height(), image.width(), image.channels());
        let scaled = |value: u8| SCALED[usize::from(value)];
        let values = if channels == 1 {
            image.values().iter().map(|&value| scaled(value)).collect()
        } else {
            let mut values = vec![0.; image.values().len()];
            let (red, rest) = values.split_at_mut(height * width);
            let (green, blue) = rest.split_at_mut(height * width);
            let (pixels, _) = image.values().as_chunks::<3>();
            let planes = red.iter_mut().zip(green).zip(blue);
            for (&[r, g, b], ((red, green), blue)) in pixels.iter().zip(planes) {
                *red = scaled(r);
                *green = scaled(g);
                *blue = scaled(b);
            }
            values
        };
        Ok(FloatImage {
            values,
            shape: [channels, height, width],
        })
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// From bytes `[H, W, C]` to floats `[C, H, W]` from 0 to 1 (torchvision's `ToTensor`).
    pub fn to_tensor(self) -> Pipeline<Chain<T, ToTensor>>
    where
        ToTensor: Transform<T::Output>,
    {
        self.then(ToTensor)
    }
}
