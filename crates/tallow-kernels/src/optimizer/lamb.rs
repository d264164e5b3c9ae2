//! LAMB (You et al. 2020): Adam whose steps are as long as the parameter asks for.

use super::adamw::power;
use super::many::{self, Job};
use super::{BELOW_1, FINITE, LARGEST_BETA, check_range, check_step};
use crate::error::Result;
use crate::simd::dispatch;

const KERNEL: &str = "lamb";

/// Settings of one update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lamb {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment, 0 to below 1.
    pub beta1: f64,
    /// Decay of the second moment, 0 to below 1.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Share of the parameter that is added to its step.
    pub weight_decay: f64,
    /// Whether the step is scaled to the parameter's norm.
    pub adapt: bool,
    /// Number of this update, counted from 1: corrects the moments' start at zero.
    pub step: u64,
}

impl Lamb {
    fn check(&self) -> Result<()> {
        check_range(KERNEL, "lr", self.lr, 0.0..=f64::MAX, FINITE)?;
        check_range(KERNEL, "beta1", self.beta1, 0.0..=LARGEST_BETA, BELOW_1)?;
        check_range(KERNEL, "beta2", self.beta2, 0.0..=LARGEST_BETA, BELOW_1)?;
        check_range(KERNEL, "eps", self.eps, 0.0..=f64::MAX, FINITE)?;
        let decay = self.weight_decay;
        check_range(KERNEL, "weight_decay", decay, 0.0..=f64::MAX, FINITE)?;
        check_step(KERNEL, self.step)
    }
}

/// One update of every job's parameter, whose states are the moments `m` and `v` (zero before the first step):
///
/// ```text
/// m += (1 - beta1) (grad - m)
/// v = beta2 v + (1 - beta2) grad^2
/// u = m / (1 - beta1^step) / (sqrt(v) / sqrt(1 - beta2^step) + eps) + weight_decay param
/// param -= lr (adapt ? |param| / |u| : 1) u          (1 too where a norm is zero)
/// ```
///
/// Two passes over memory: the norms must be known before the first element moves. They are summed in `f64`, in an order that
/// follows from the lengths alone.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) unless all slices of a job are as long as its parameter;
/// [`Error::Parameter`](crate::Error::Parameter) for settings outside their range.
pub fn lamb_many(jobs: &mut [Job<'_, Lamb>]) -> Result<()> {
    for job in jobs.iter() {
        job.check(KERNEL, &["m", "v"])?;
        job.config.check()?;
    }
    let mut factors: Vec<Factors> = jobs.iter().map(|job| Factors::new(&job.config)).collect();
    let adapt: Vec<bool> = jobs.iter().map(|job| job.config.adapt).collect();
    let mut chunks = many::chunks(jobs);
    many::each(&mut chunks, |chunk| {
        let [m, v] = &mut chunk.state;
        chunk.sums = moments(&factors[chunk.job], chunk.param, chunk.grad, m, v);
    });
    let mut squares = vec![[0.0; 2]; factors.len()];
    for chunk in &chunks {
        let [param, step] = &mut squares[chunk.job];
        *param += chunk.sums[0];
        *step += chunk.sums[1];
    }
    for ((factors, [param, step]), adapt) in factors.iter_mut().zip(squares).zip(adapt) {
        if adapt && param > 0.0 && step > 0.0 {
            factors.lr = (f64::from(factors.lr) * (param / step).sqrt()) as f32;
        }
    }
    many::each(&mut chunks, |chunk| {
        let [m, v] = &chunk.state;
        follow(&factors[chunk.job], chunk.param, m, v);
    });
    Ok(())
}

/// The settings, turned into what the loops multiply by.
struct Factors {
    take1: f32,
    beta2: f32,
    take2: f32,
    correction1: f32,
    correction2: f32,
    eps: f32,
    decay: f32,
    lr: f32,
}

impl Factors {
    fn new(config: &Lamb) -> Self {
        Self {
            take1: (1.0 - config.beta1) as f32,
            beta2: config.beta2 as f32,
            take2: (1.0 - config.beta2) as f32,
            correction1: (1.0 - power(config.beta1, config.step)) as f32,
            correction2: (1.0 - power(config.beta2, config.step)).sqrt() as f32,
            eps: config.eps as f32,
            decay: config.weight_decay as f32,
            lr: config.lr as f32,
        }
    }

    #[inline(always)]
    fn direction(&self, param: f32, m: f32, v: f32) -> f32 {
        let denominator = v.sqrt() / self.correction2 + self.eps;
        m / self.correction1 / denominator + self.decay * param
    }
}

/// Sums that don't wait for each other.
const LANES: usize = 8;

dispatch! {
    /// Moves the moments; the squared norms of parameter and direction.
    fn moments<I>(f: &Factors, param: &[f32], grad: &[f32], m: &mut [f32], v: &mut [f32]) -> [f64; 2] {
        let mut squares = [[0f64; LANES]; 2];
        for (index, (((&p, &g), m), v)) in param.iter().zip(grad).zip(m).zip(v).enumerate() {
            *m = I::fma(f.take1, g - *m, *m);
            *v = I::fma(f.take2 * g, g, f.beta2 * *v);
            let (p64, u) = (f64::from(p), f64::from(f.direction(p, *m, *v)));
            squares[0][index % LANES] += p64 * p64;
            squares[1][index % LANES] += u * u;
        }
        squares.map(|lanes| lanes.iter().sum())
    }
}

dispatch! {
    fn follow<I>(f: &Factors, param: &mut [f32], m: &[f32], v: &[f32]) {
        for ((p, &m), &v) in param.iter_mut().zip(m).zip(v) {
            *p = I::fma(-f.lr, f.direction(*p, m, v), *p);
        }
    }
}
