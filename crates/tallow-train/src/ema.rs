//! Exponential moving averages of a model's weights: [`Ema`].

use candle_core::{Tensor, Var};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use tallow_tensor::Params;
use tallow_tensor::update;

use crate::{Error, Result};

/// How weights are averaged; timm's `ModelEmaV3`.
///
/// ```
/// use tallow_train::EmaConfig;
///
/// let config = EmaConfig::new(0.999).with_warmup();
/// assert_eq!(config.decay_at(0), 0.0); // the first average is the weights themselves
/// assert!(config.decay_at(1) < 0.4 && config.decay_at(10) > 0.7);
/// assert_eq!(config.decay_at(1_000_000), 0.999);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EmaConfig {
    /// How much of the average is kept at each step, below 1.
    pub decay: f64,
    /// Whether the decay rises: `1 − (1 + t)^(−2/3)` at step `t`, up to `decay`, so that early weights are soon forgotten.
    pub warmup: bool,
    /// Steps at the beginning in which the average is just the weights.
    pub after_step: u64,
    /// Whether evaluations use the averaged weights.
    pub evaluate: bool,
}

impl EmaConfig {
    /// A constant decay, from the first step on, and evaluations of the average.
    pub fn new(decay: f64) -> Self {
        Self {
            decay,
            warmup: false,
            after_step: 0,
            evaluate: true,
        }
    }

    /// The same with a decay that rises to its value.
    #[must_use]
    pub fn with_warmup(mut self) -> Self {
        self.warmup = true;
        self
    }

    /// The decay of the update after step `step`, counted from 0.
    pub fn decay_at(&self, step: u64) -> f64 {
        let since = step.saturating_sub(self.after_step);
        if since == 0 {
            return 0.0;
        }
        if !self.warmup {
            return self.decay;
        }
        let rising = 1.0 - (1.0 + since as f64).powf(-2.0 / 3.0);
        rising.min(self.decay)
    }

    /// Checks the decay.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] unless it is at least 0 and below 1.
    pub fn check(&self) -> Result<()> {
        let fits = (0.0..1.0).contains(&self.decay);
        let expected = "at least 0 and below 1";
        Error::require(fits, "the decay of averaged weights", expected, &self.decay)
    }
}

/// The moving average of parameters and buffers.
///
/// The trainer keeps one with [`TrainerBuilder::ema`](crate::TrainerBuilder::ema); this is it by itself:
///
/// ```
/// use tallow_tensor::Params;
/// use tallow_train::{Ema, EmaConfig};
///
/// # fn main() -> tallow_train::Result<()> {
/// let params = Params::f32_cpu();
/// let weight = params.builder().get_with_hints(1, "weight", candle_nn::Init::Const(1.0))?;
/// let mut ema = Ema::new(&params, EmaConfig::new(0.75))?;
/// ema.update(&params)?;
/// params.trainable()[0].1.set(&weight.ones_like()?.affine(5.0, 0.0)?)?;
/// ema.update(&params)?;
///
/// ema.swap(&params)?; // now the model has the average, and `ema` the weights
/// assert_eq!(weight.to_vec1::<f32>()?, [2.0]);
/// ema.swap(&params)?;
/// assert_eq!(weight.to_vec1::<f32>()?, [5.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Ema {
    config: EmaConfig,
    updates: u64,
    average: IndexMap<String, Var>,
}

impl Ema {
    /// An average that begins with the values of `params`.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a decay without sense, [`Error::Tensor`] if a copy fails.
    pub fn new(params: &Params, config: EmaConfig) -> Result<Self> {
        config.check()?;
        Self::of(config, 0, params.to_tensors()?.iter())
    }

    /// An average with these values, which are copied.
    pub(crate) fn of<'a>(
        config: EmaConfig,
        updates: u64,
        values: impl Iterator<Item = (&'a String, &'a Tensor)>,
    ) -> Result<Self> {
        let average = values
            .map(|(name, value)| Ok((name.clone(), Var::from_tensor(&value.copy()?.detach())?)));
        Ok(Self {
            config,
            updates,
            average: average.collect::<Result<_>>()?,
        })
    }

    /// The settings.
    pub fn config(&self) -> EmaConfig {
        self.config
    }

    /// Updates done.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Moves the average towards the values of `params`. Values that `params` didn't have before are taken over.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] if shapes or types have changed.
    pub fn update(&mut self, params: &Params) -> Result<()> {
        let decay = self.config.decay_at(self.updates);
        for entry in params {
            match self.average.get(&entry.name) {
                Some(average) if decay > 0.0 && entry.var.dtype().is_float() => {
                    update::approach(average, &entry.var, 1.0 - decay)?;
                }
                Some(average) => average.set(&entry.var.as_detached_tensor())?,
                None => {
                    let copy = entry.var.as_detached_tensor().copy()?;
                    self.average.insert(entry.name, Var::from_tensor(&copy)?);
                }
            }
        }
        self.updates += 1;
        Ok(())
    }

    /// Exchanges the values of `params` with the average, to the bit; the same again puts them back.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] if shapes or types have changed.
    pub fn swap(&self, params: &Params) -> Result<()> {
        for entry in params {
            if let Some(average) = self.average.get(&entry.name) {
                update::swap(&entry.var, average)?;
            }
        }
        Ok(())
    }

    /// The averages by name, the live ones: later updates change them.
    pub fn tensors(&self) -> IndexMap<String, Tensor> {
        let average = self.average.iter();
        let average = average.map(|(name, var)| (name.clone(), var.as_detached_tensor()));
        average.collect()
    }
}
