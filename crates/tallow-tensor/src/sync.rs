//! Batch norm over the batches of several ranks: who sums their statistics, and what the sums mean.
//!
//! Ranks are processes or threads that train one model, each on its part of a batch. While a [`Reducer`] is [entered](enter) on a
//! thread, [`batch_norm`](crate::ops::batch_norm) in training takes mean and variance, and in the backward pass the two sums that the
//! gradient needs, over the parts of all ranks; so do compiled steps. How ranks reach each other is left to the reducer.
//!
//! Every rank must run the same batch norms in the same order, as ranks with one model do. Gradients of weight and bias stay those of
//! the rank's own part, like all gradients of parameters.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use candle_core::Result;

/// Sums numbers over ranks.
pub trait Reducer: Send + Sync {
    /// Replaces each value by its sum over all ranks, the same on each of them. All ranks call it with as many values.
    ///
    /// # Errors
    /// Where another rank can't be reached, or has ended.
    fn sum(&self, values: &mut [f64]) -> Result<()>;
}

/// What batch norms of this thread are computed over: the parts of all ranks.
#[derive(Clone)]
pub struct Joint {
    reducer: Arc<dyn Reducer>,
    /// How much larger the whole batch is than this rank's part, as the bits of an f64; known after the first sum.
    ratio: Arc<AtomicU64>,
}

thread_local! {
    static ACTIVE: RefCell<Option<Joint>> = const { RefCell::new(None) };
}

/// Lets batch norms in training take their statistics from all ranks, on this thread, until the guard is dropped. PyTorch's
/// `SyncBatchNorm`.
///
/// ```
/// use std::sync::Arc;
/// use candle_core::{Device, Tensor, Var};
/// use tallow_tensor::ops::{BatchNormArgs, batch_norm};
/// use tallow_tensor::sync::{self, Reducer};
///
/// /// Stands for a second rank with the same batch.
/// struct Twin;
///
/// impl Reducer for Twin {
///     fn sum(&self, values: &mut [f64]) -> candle_core::Result<()> {
///         values.iter_mut().for_each(|value| *value *= 2.0);
///         Ok(())
///     }
/// }
///
/// let vector = |value: f32| Var::new(&[value], &Device::Cpu);
/// let (weight, bias, mean, var) = (vector(1.)?, vector(0.)?, vector(0.)?, vector(1.)?);
/// let args = BatchNormArgs {
///     weight: &weight, bias: &bias, running_mean: &mean, running_var: &var, eps: 1e-5, momentum: 1.0,
/// };
/// let xs = Tensor::new(&[[1f32], [3.]], &Device::Cpu)?;
/// let _guard = sync::enter(Arc::new(Twin));
/// batch_norm(&xs, &args, true)?;
/// // Of four values: 1, 3, 1, 3.
/// assert_eq!(var.to_vec1::<f32>()?, [4.0 / 3.0]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn enter(reducer: Arc<dyn Reducer>) -> SyncGuard {
    continue_with(Some(Joint {
        reducer,
        ratio: Arc::new(AtomicU64::new(1f64.to_bits())),
    }))
}

/// Goes on with what another thread entered, or with nothing: batch norms then take the statistics of their own part.
pub fn continue_with(joint: Option<Joint>) -> SyncGuard {
    SyncGuard {
        before: ACTIVE.replace(joint),
        _not_send: PhantomData,
    }
}

/// What was entered on this thread.
pub fn current() -> Option<Joint> {
    ACTIVE.with_borrow(Clone::clone)
}

/// Goes back to the state before [`enter`] when dropped.
#[must_use = "statistics are a rank's own again when the guard is dropped; bind it to a name, not to `_`"]
pub struct SyncGuard {
    before: Option<Joint>,
    // What is active is the thread's own, so the guard must stay on it.
    _not_send: PhantomData<*const ()>,
}

impl Drop for SyncGuard {
    fn drop(&mut self) {
        ACTIVE.replace(self.before.take());
    }
}

impl Joint {
    /// Adds up `sums` of the rank's `count` elements a channel over all ranks, and gives the number of elements of all.
    ///
    /// # Errors
    /// As [`Reducer::sum`].
    pub fn sums(&self, count: usize, sums: &mut [f64]) -> Result<f64> {
        let mut message = Vec::with_capacity(sums.len() + 1);
        message.push(count as f64);
        message.extend_from_slice(sums);
        self.reducer.sum(&mut message)?;
        let total = message[0];
        self.set_ratio(total / count.max(1) as f64);
        sums.copy_from_slice(&message[1..]);
        Ok(total)
    }

    /// Means and biased variances of all ranks' elements, from those of the rank's own `count` elements a channel, in their place.
    ///
    /// # Errors
    /// As [`Reducer::sum`].
    pub fn statistics(&self, count: usize, mean: &mut [f32], var: &mut [f32]) -> Result<()> {
        let channels = mean.len();
        let own = count as f64;
        let mut sums = vec![0.0; 2 * channels];
        let (first, second) = sums.split_at_mut(channels);
        for (channel, (&mean, &var)) in mean.iter().zip(&*var).enumerate() {
            let (mean, var) = (f64::from(mean), f64::from(var));
            first[channel] = own * mean;
            second[channel] = own * (var + mean * mean);
        }
        let total = self.sums(count, &mut sums)?;
        for channel in 0..channels {
            let joint = sums[channel] / total;
            let variance = sums[channels + channel] / total - joint * joint;
            mean[channel] = joint as f32;
            // Rounding may leave less than 0; a NaN stays one.
            var[channel] = if variance < 0.0 { 0.0 } else { variance as f32 };
        }
        Ok(())
    }

    /// What the gradient of a rank's input needs: sums over its own `count` elements a channel, of gradients of its own mean loss,
    /// become their share of the sums over all ranks, whose loss is the mean over all samples.
    ///
    /// The loss of all is `Σ mᵣ Lᵣ / M`, with `mᵣ` elements of `M` on rank `r`. In units of `Lᵣ`, a sum over all ranks is
    /// `Σ mₛ sumₛ / mᵣ`, of which the `mᵣ / M`-th part is the rank's: `Σ mₛ sumₛ / M`.
    ///
    /// # Errors
    /// As [`Reducer::sum`].
    pub fn gradient_sums(&self, count: usize, sums: &mut [f32]) -> Result<()> {
        let own = count as f64;
        let mut weighed: Vec<f64> = sums.iter().map(|&sum| own * f64::from(sum)).collect();
        let total = self.sums(count, &mut weighed)?;
        for (sum, weighed) in sums.iter_mut().zip(weighed) {
            *sum = (weighed / total) as f32;
        }
        Ok(())
    }

    /// The elements of all ranks, where this rank has `count` of them: for what comes after [`Joint::statistics`].
    pub fn total(&self, count: u64) -> f64 {
        (count as f64 * f64::from_bits(self.ratio.load(Ordering::Relaxed))).round()
    }

    fn set_ratio(&self, ratio: f64) {
        self.ratio.store(ratio.to_bits(), Ordering::Relaxed);
    }
}
