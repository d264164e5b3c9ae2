//! [`Normalize`]: from bytes to values of mean 0 and standard deviation 1, channel by channel.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

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

    /// Mean and standard deviation, one of each for all channels or one a channel.
    pub(crate) fn each(&self, channels: usize) -> Result<(&[f32], &[f32])> {
        let Self { mean, std } = self;
        let fits = |values: &[f32]| values.len() == 1 || values.len() == channels;
        let usable =
            mean.iter().all(|m| m.is_finite()) && std.iter().all(|s| s.is_normal() && *s > 0.);
        if usable && fits(mean) && fits(std) && channels > 0 {
            return Ok((mean, std));
        }
        Err(Error::Setting {
            what: "normalisation",
            expected: format!(
                "one finite mean and one standard deviation above 0, for all of the {channels} channels or for each"
            ),
            found: format!("mean {mean:?} and standard deviation {std:?}"),
        })
    }
}

/// The value that each byte becomes.
pub(crate) type Table = [f32; 256];

/// One table a channel; without `normalize` they scale to 0..1.
pub(crate) fn tables(normalize: Option<&Normalize>, channels: usize) -> Result<Vec<Table>> {
    let scale = Normalize::all(0., 1.);
    let (means, stds) = normalize.unwrap_or(&scale).each(channels)?;
    let each = means.iter().cycle().zip(stds.iter().cycle());
    Ok(each
        .take(channels)
        .map(|(&mean, &std)| table(mean, std))
        .collect())
}

/// The tables that scale to 0..1, of pictures with `channels` channels.
pub(crate) fn scale(channels: usize) -> Arc<[Table]> {
    static SCALE: LazyLock<[Arc<[Table]>; 2]> =
        LazyLock::new(|| [1, 3].map(|channels| vec![table(0., 1.); channels].into()));
    SCALE[usize::from(channels > 1)].clone()
}

thread_local! {
    /// What was asked for last: a pipeline asks for the same with every picture.
    static LAST: RefCell<Option<(Normalize, Arc<[Table]>)>> = const { RefCell::new(None) };
}

/// The [`tables`] of a normalisation, made once for as long as a thread asks for the same.
pub(crate) fn shared_tables(normalize: &Normalize, channels: usize) -> Result<Arc<[Table]>> {
    LAST.with_borrow_mut(|last| {
        if let Some((of, tables)) = last
            && of == normalize
            && tables.len() == channels
        {
            return Ok(tables.clone());
        }
        let tables: Arc<[Table]> = tables(Some(normalize), channels)?.into();
        *last = Some((normalize.clone(), tables.clone()));
        Ok(tables)
    })
}

fn table(mean: f32, std: f32) -> Table {
    std::array::from_fn(|byte| (byte as f32 / 255. - mean) / std)
}
