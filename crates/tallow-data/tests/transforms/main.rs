//! Transforms: against numbers of Pillow and torchvision, by their properties, and in the order that types demand.

mod golden;
mod mix;
mod order;
mod random;
mod settings;

use tallow_data::Image;
use tallow_tensor::rng::Stream;

/// A stream for sample `index`.
fn stream(index: u64) -> Stream {
    use tallow_tensor::rng::{Purpose, key};
    Stream::new(key(42, Purpose::Augment, 0, index))
}

/// A picture in which no two neighbours are alike.
fn picture(size: [usize; 2], channels: usize) -> Image {
    let count = size[0] * size[1] * channels;
    let values = (0..count).map(|i| (i * 37 % 251) as u8).collect();
    Image::new(values, size, channels).unwrap()
}
