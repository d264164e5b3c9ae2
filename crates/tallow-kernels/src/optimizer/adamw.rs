//! AdamW (Loshchilov and Hutter 2019): Adam with the decay taken off the parameter itself.

use super::many::{self, Job};
use super::{BELOW_1, FINITE, LARGEST_BETA, check_range, check_step};
use crate::error::{Result, check_len};
use crate::parallel::{LEAF, for_each};
use crate::simd::dispatch;

/// Settings of one update, `torch.optim.AdamW`'s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment, 0 to below 1.
    pub beta1: f64,
    /// Decay of the second moment, 0 to below 1.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Share of the parameter, times `lr`, taken off each step.
    pub weight_decay: f64,
    /// Number of this update, counted from 1: corrects the moments' start at zero.
    pub step: u64,
}

impl Default for AdamW {
    /// PyTorch's defaults, at step 1.
    fn default() -> Self {
        Self {
            lr: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 1e-2,
            step: 1,
        }
    }
}

impl AdamW {
    fn check(&self) -> Result<()> {
        const KERNEL: &str = "adamw";
        check_range(KERNEL, "lr", self.lr, 0.0..=f64::MAX, FINITE)?;
        check_range(KERNEL, "beta1", self.beta1, 0.0..=LARGEST_BETA, BELOW_1)?;
        check_range(KERNEL, "beta2", self.beta2, 0.0..=LARGEST_BETA, BELOW_1)?;
        check_range(KERNEL, "eps", self.eps, 0.0..=f64::MAX, FINITE)?;
        check_range(
            KERNEL,
            "weight_decay",
            self.weight_decay,
            0.0..=f64::MAX,
            FINITE,
        )?;
        check_step(KERNEL, self.step)
    }
}

/// One update of `param` from `grad`, with the moments `m` and `v` (zero before the first step):
///
/// ```text
/// param -= lr weight_decay param
/// m += (1 - beta1) (grad - m)
/// v = beta2 v + (1 - beta2) grad^2
/// param -= lr / (1 - beta1^step) m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
/// ```
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) unless all slices are as long as `param`; [`Error::Parameter`](crate::Error::Parameter) for settings
/// outside their range.
pub fn adamw(
    config: &AdamW,
    param: &mut [f32],
    grad: &[f32],
    m: &mut [f32],
    v: &mut [f32],
) -> Result<()> {
    check_len("adamw", "grad", grad, param.len())?;
    check_len("adamw", "m", m, param.len())?;
    check_len("adamw", "v", v, param.len())?;
    config.check()?;
    let factors = Factors::new(config);
    for_each(
        param.len(),
        LEAF,
        (param, grad, m, v),
        |_, (param, grad, m, v)| {
            leaf(&factors, param, grad, m, v);
        },
    );
    Ok(())
}

/// One update of every job's parameter, whose states are the moments `m` and `v`, in one parallel section; see [`adamw`], whose
/// bits it gives.
///
/// # Errors
/// As [`adamw`], and then no parameter was changed.
pub fn adamw_many(jobs: &mut [Job<'_, AdamW>]) -> Result<()> {
    for job in jobs.iter() {
        job.check("adamw", &["m", "v"])?;
        job.config.check()?;
    }
    let factors: Vec<Factors> = jobs.iter().map(|job| Factors::new(&job.config)).collect();
    many::each(&mut many::chunks(jobs), |chunk| {
        let [m, v] = &mut chunk.state;
        leaf(&factors[chunk.job], chunk.param, chunk.grad, m, v);
    });
    Ok(())
}

/// The settings, turned into what the loop multiplies by.
struct Factors {
    shrink: f32,
    take1: f32,
    beta2: f32,
    take2: f32,
    step_size: f32,
    correction2: f32,
    eps: f32,
}

impl Factors {
    fn new(config: &AdamW) -> Self {
        let correction1 = 1.0 - power(config.beta1, config.step);
        let correction2 = 1.0 - power(config.beta2, config.step);
        Self {
            shrink: (1.0 - config.lr * config.weight_decay) as f32,
            take1: (1.0 - config.beta1) as f32,
            beta2: config.beta2 as f32,
            take2: (1.0 - config.beta2) as f32,
            step_size: (config.lr / correction1) as f32,
            correction2: correction2.sqrt() as f32,
            eps: config.eps as f32,
        }
    }
}

/// `base^exponent` by squaring: `powi` may round differently from one platform to the next.
pub(super) fn power(base: f64, mut exponent: u64) -> f64 {
    let (mut square, mut product) = (base, 1.0);
    while exponent > 0 {
        if exponent & 1 == 1 {
            product *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    product
}

dispatch! {
    fn leaf<I>(f: &Factors, param: &mut [f32], grad: &[f32], m: &mut [f32], v: &mut [f32]) {
        for (((p, &g), m), v) in param.iter_mut().zip(grad).zip(m).zip(v) {
            *m = I::fma(f.take1, g - *m, *m);
            *v = I::fma(f.take2 * g, g, f.beta2 * *v);
            let denominator = v.sqrt() / f.correction2 + f.eps;
            *p = I::fma(-f.step_size, *m / denominator, *p * f.shrink);
        }
    }
}
