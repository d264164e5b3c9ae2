//! [`Normalize`]: from bytes to values of mean 0 and standard deviation 1, channel by channel.

use crate::{Error, Result};

/// Mean and standard deviation of each channel, for values scaled to 0..1.
///
/// A byte `b` becomes `(b / 255 - mean) / std`: torchvision's `ToTensor` and `Normalize`.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalize {
    /// One value a channel, or one for all channels.
    pub mean: Vec<f32>,
    /// One value a channel, or one for all channels; none is 0.
    pub std: Vec<f32>,
}

impl Normalize {
    /// The same mean and standard deviation for every channel.
    pub fn all(mean: f32, std: f32) -> Self {
        Self {
            mean: vec![mean],
            std: vec![std],
        }
    }
}

/// The value that each byte becomes.
pub(crate) type Table = [f32; 256];

/// One table a channel; without `normalize` they scale to 0..1.
pub(crate) fn tables(normalize: Option<&Normalize>, channels: usize) -> Result<Vec<Table>> {
    let scale = Normalize::all(0., 1.);
    let Normalize { mean, std } = normalize.unwrap_or(&scale);
    let each = |values: &[f32]| match values {
        [all] => Some(vec![*all; channels]),
        _ => (values.len() == channels).then(|| values.to_vec()),
    };
    let usable = mean.iter().all(|m| m.is_finite()) && std.iter().all(|s| s.is_normal() && *s > 0.);
    match (each(mean), each(std)) {
        (Some(mean), Some(std)) if usable => Ok(mean
            .iter()
            .zip(&std)
            .map(|(&mean, &std)| table(mean, std))
            .collect()),
        _ => Err(Error::Setting {
            what: "normalisation",
            expected: format!(
                "one finite mean and one standard deviation above 0, for all of the {channels} channels or for each"
            ),
            found: format!("mean {mean:?} and standard deviation {std:?}"),
        }),
    }
}

fn table(mean: f32, std: f32) -> Table {
    std::array::from_fn(|byte| (byte as f32 / 255. - mean) / std)
}
