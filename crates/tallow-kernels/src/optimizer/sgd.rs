//! Stochastic gradient descent with momentum (Sutskever et al. 2013), in PyTorch's form.

use super::many::{self, Job};
use super::{FINITE, check_range};
use crate::error::{Error, Result, check_len};
use crate::parallel::{LEAF, for_each};
use crate::simd::dispatch;

/// Settings of one update, `torch.optim.SGD`'s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f64,
    /// Share of the last velocity that is kept; 0 needs no state.
    pub momentum: f64,
    /// Share of the gradient that the velocity does not take.
    pub dampening: f64,
    /// Look ahead along the velocity (Nesterov 1983); needs momentum and no dampening.
    pub nesterov: bool,
    /// Share of the parameter that is added to its gradient.
    pub weight_decay: f64,
}

impl Default for Sgd {
    /// PyTorch's defaults: plain descent at 1e-3.
    fn default() -> Self {
        Self {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            nesterov: false,
            weight_decay: 0.0,
        }
    }
}

impl Sgd {
    fn check(&self) -> Result<()> {
        const KERNEL: &str = "sgd";
        check_range(KERNEL, "lr", self.lr, 0.0..=f64::MAX, FINITE)?;
        check_range(KERNEL, "momentum", self.momentum, 0.0..=f64::MAX, FINITE)?;
        check_range(
            KERNEL,
            "weight_decay",
            self.weight_decay,
            0.0..=f64::MAX,
            FINITE,
        )?;
        check_range(
            KERNEL,
            "dampening",
            self.dampening,
            f64::MIN..=f64::MAX,
            "finite",
        )?;
        if self.nesterov && self.momentum == 0.0 {
            let allowed = "above 0 with nesterov";
            return Err(Error::Parameter {
                kernel: KERNEL,
                parameter: "momentum",
                found: 0.0,
                allowed,
            });
        }
        let dampening = if self.nesterov { self.dampening } else { 0.0 };
        check_range(KERNEL, "dampening", dampening, 0.0..=0.0, "0 with nesterov")
    }
}

/// One update of `param` from `grad`, with the velocity `momentum_buf`:
///
/// ```text
/// g = grad + weight_decay param
/// velocity = g                                           if first
/// velocity = momentum velocity + (1 - dampening) g       otherwise
/// param -= lr (nesterov ? g + momentum velocity : velocity)
/// ```
///
/// Without momentum, `param -= lr g`, and `momentum_buf` is not looked at: it may be empty.
/// `first` says that the velocity has not been set yet.
///
/// # Errors
/// [`Error::Length`] unless all slices are as long as `param`; [`Error::Parameter`] for settings
/// outside their range.
pub fn sgd(
    config: &Sgd,
    param: &mut [f32],
    grad: &[f32],
    momentum_buf: &mut [f32],
    first: bool,
) -> Result<()> {
    check_len("sgd", "grad", grad, param.len())?;
    config.check()?;
    let lr = config.lr as f32;
    let decay = config.weight_decay as f32;
    if config.momentum == 0.0 {
        for_each(param.len(), LEAF, (param, grad), |_, (param, grad)| {
            plain_leaf(lr, decay, param, grad);
        });
        return Ok(());
    }
    check_len("sgd", "momentum_buf", momentum_buf, param.len())?;
    let velocity = Velocity::new(config, first);
    for_each(
        param.len(),
        LEAF,
        (param, grad, momentum_buf),
        |_, (param, grad, buf)| {
            momentum_leaf(&velocity, param, grad, buf);
        },
    );
    Ok(())
}

/// Settings of one update of many.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdStep {
    /// The settings.
    pub config: Sgd,
    /// Whether the velocity has not been set yet.
    pub first: bool,
}

/// One update of every job's parameter, whose first state is the velocity, in one parallel section; see [`sgd`], whose bits it
/// gives.
///
/// # Errors
/// As [`sgd`], and then no parameter was changed.
pub fn sgd_many(jobs: &mut [Job<'_, SgdStep>]) -> Result<()> {
    for job in jobs.iter() {
        let plain = job.config.config.momentum == 0.0;
        job.check("sgd", if plain { &[] } else { &["momentum_buf"] })?;
        job.config.config.check()?;
    }
    let steps: Vec<(SgdStep, Velocity)> = jobs
        .iter()
        .map(|job| {
            (
                job.config,
                Velocity::new(&job.config.config, job.config.first),
            )
        })
        .collect();
    many::each(&mut many::chunks(jobs), |chunk| {
        let (step, velocity) = &steps[chunk.job];
        if step.config.momentum == 0.0 {
            plain_leaf(velocity.lr, velocity.decay, chunk.param, chunk.grad);
        } else {
            momentum_leaf(velocity, chunk.param, chunk.grad, chunk.state[0]);
        }
    });
    Ok(())
}

struct Velocity {
    lr: f32,
    decay: f32,
    momentum: f32,
    kept: f32,
    taken: f32,
    nesterov: bool,
    first: bool,
}

impl Velocity {
    fn new(config: &Sgd, first: bool) -> Self {
        let momentum = config.momentum as f32;
        let (kept, taken) = if first {
            (0.0, 1.0)
        } else {
            (momentum, (1.0 - config.dampening) as f32)
        };
        Self {
            lr: config.lr as f32,
            decay: config.weight_decay as f32,
            momentum,
            kept,
            taken,
            nesterov: config.nesterov,
            first,
        }
    }
}

dispatch! {
    fn plain_leaf<I>(lr: f32, decay: f32, param: &mut [f32], grad: &[f32]) {
        for (p, &g) in param.iter_mut().zip(grad) {
            *p = I::fma(-lr, I::fma(decay, *p, g), *p);
        }
    }
}

dispatch! {
    fn momentum_leaf<I>(v: &Velocity, param: &mut [f32], grad: &[f32], buf: &mut [f32]) {
        // What the buffer held before the first step is not to be used, not even times 0.
        let fresh = v.first;
        let ahead = if v.nesterov { 1.0 } else { 0.0 };
        let along = if v.nesterov { v.momentum } else { 1.0 };
        for ((p, &g), buf) in param.iter_mut().zip(grad).zip(buf) {
            let g = I::fma(v.decay, *p, g);
            let old = if fresh { 0.0 } else { *buf };
            *buf = I::fma(v.kept, old, v.taken * g);
            *p = I::fma(-v.lr, I::fma(along, *buf, ahead * g), *p);
        }
    }
}
