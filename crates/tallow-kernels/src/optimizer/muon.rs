//! Muon (Jordan et al. 2024): momentum whose matrix is made orthogonal before it is followed.

use super::vectors::square_sum;
use super::{BELOW_1, FINITE, LARGEST_BETA, check_range};
use crate::error::{Error, Result, check_len};
use crate::gemm::{GemmArgs, gemm};
use crate::parallel::{LEAF, for_each};
use crate::simd::dispatch;

const KERNEL: &str = "muon";

/// Settings of one update, `torch.optim.Muon`'s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Muon {
    /// Learning rate of the decay.
    pub lr: f64,
    /// Learning rate of the step: `lr`, adjusted to the matrix.
    pub step_lr: f64,
    /// Share of the momentum that is kept, 0 to below 1.
    pub momentum: f64,
    /// Look ahead along the momentum.
    pub nesterov: bool,
    /// Share of the parameter, times `lr`, taken off each step.
    pub weight_decay: f64,
    /// How the step is made orthogonal.
    pub newton_schulz: NewtonSchulz,
}

/// Settings of the Newton-Schulz iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NewtonSchulz {
    /// Coefficients a, b, c of `a x + b x^3 + c x^5`.
    pub coefficients: [f64; 3],
    /// Iterations.
    pub steps: u32,
    /// The least norm that is divided by.
    pub eps: f64,
}

impl Default for NewtonSchulz {
    /// PyTorch's defaults: five steps of the steepest quintic.
    fn default() -> Self {
        Self {
            coefficients: [3.4445, -4.7750, 2.0315],
            steps: 5,
            eps: 1e-7,
        }
    }
}

impl Muon {
    fn check(&self) -> Result<()> {
        check_range(KERNEL, "lr", self.lr, 0.0..=f64::MAX, FINITE)?;
        check_range(KERNEL, "step_lr", self.step_lr, 0.0..=f64::MAX, FINITE)?;
        check_range(
            KERNEL,
            "momentum",
            self.momentum,
            0.0..=LARGEST_BETA,
            BELOW_1,
        )?;
        let decay = self.weight_decay;
        check_range(KERNEL, "weight_decay", decay, 0.0..=f64::MAX, FINITE)
    }
}

/// One update of the matrix `param`, `[rows, columns]` row-major, from `grad`, with the momentum `buf` (zero before the first
/// step):
///
/// ```text
/// buf += (1 - momentum) (grad - buf)
/// u = orthogonal(nesterov ? grad + momentum (buf - grad) : buf)
/// param = (1 - lr weight_decay) param - step_lr u
/// ```
///
/// # Errors
/// [`Error::Length`] unless all slices hold `rows * columns`; [`Error::Parameter`] for settings outside their range.
pub fn muon(
    config: &Muon,
    [rows, columns]: [usize; 2],
    param: &mut [f32],
    grad: &[f32],
    buf: &mut [f32],
) -> Result<()> {
    check_len(KERNEL, "param", param, rows * columns)?;
    check_len(KERNEL, "grad", grad, rows * columns)?;
    check_len(KERNEL, "buf", buf, rows * columns)?;
    config.check()?;
    let mut step = vec![0.0; param.len()];
    let momentum = config.momentum as f32;
    let ahead = if config.nesterov { momentum } else { 1.0 };
    let len = param.len();
    for_each(
        len,
        LEAF,
        (&mut *buf, grad, &mut step[..]),
        |_, (buf, grad, step)| {
            carry_leaf(momentum, ahead, buf, grad, step);
        },
    );
    orthogonalize(&config.newton_schulz, [rows, columns], &mut step)?;
    let shrink = (1.0 - config.lr * config.weight_decay) as f32;
    let lr = config.step_lr as f32;
    for_each(len, LEAF, (param, &step[..]), |_, (param, step)| {
        follow_leaf(shrink, lr, param, step);
    });
    Ok(())
}

/// Replaces `matrix`, `[rows, columns]` row-major, by one of the same singular vectors whose singular values are near 1
/// (0.7 to 1.2 with PyTorch's coefficients): Newton-Schulz iterations of `a x + b x^3 + c x^5`.
///
/// PyTorch iterates in bfloat16, this in f32.
///
/// # Errors
/// [`Error::Length`] unless `matrix` holds `rows * columns`; [`Error::Parameter`] for an `eps` that is not above zero.
pub fn orthogonalize(
    config: &NewtonSchulz,
    [rows, columns]: [usize; 2],
    matrix: &mut [f32],
) -> Result<()> {
    check_len("newton_schulz", "matrix", matrix, rows * columns)?;
    if !(config.eps > 0.0 && config.eps.is_finite()) {
        return Err(Error::Parameter {
            kernel: "newton_schulz",
            parameter: "eps",
            found: config.eps,
            allowed: "above 0",
        });
    }
    if matrix.is_empty() {
        return Ok(());
    }
    let norm = square_sum(matrix).sqrt().max(config.eps) as f32;
    matrix.iter_mut().for_each(|value| *value /= norm);

    // The smaller of the two Gram matrices: of the rows, or of the columns, as rows of the transpose.
    let (n, k) = (rows.min(columns), rows.max(columns));
    let (rs, cs) = if rows > columns {
        (1, columns)
    } else {
        (columns, 1)
    };
    let [a, b, c] = config.coefficients.map(|factor| factor as f32);
    let (mut gram, mut polynomial) = (vec![0.0; n * n], vec![0.0; n * n]);
    let mut next = vec![0.0; matrix.len()];
    for _ in 0..config.steps {
        gemm(GemmArgs {
            m: n,
            n,
            k,
            a: matrix,
            a_rs: rs,
            a_cs: cs,
            b: matrix,
            b_rs: cs,
            b_cs: rs,
            c: &mut gram,
            c_rs: n,
            c_cs: 1,
            alpha: 1.0,
            beta: 0.0,
        })?;
        polynomial.copy_from_slice(&gram);
        gemm(GemmArgs {
            m: n,
            n,
            k: n,
            a: &gram,
            a_rs: n,
            a_cs: 1,
            b: &gram,
            b_rs: n,
            b_cs: 1,
            c: &mut polynomial,
            c_rs: n,
            c_cs: 1,
            alpha: c,
            beta: b,
        })?;
        next.copy_from_slice(matrix);
        gemm(GemmArgs {
            m: n,
            n: k,
            k: n,
            a: &polynomial,
            a_rs: n,
            a_cs: 1,
            b: matrix,
            b_rs: rs,
            b_cs: cs,
            c: &mut next,
            c_rs: rs,
            c_cs: cs,
            alpha: 1.0,
            beta: a,
        })?;
        matrix.copy_from_slice(&next);
    }
    Ok(())
}

dispatch! {
    fn carry_leaf<I>(momentum: f32, ahead: f32, buf: &mut [f32], grad: &[f32], step: &mut [f32]) {
        for ((buf, &g), step) in buf.iter_mut().zip(grad).zip(step) {
            *buf = I::fma(1.0 - momentum, g - *buf, *buf);
            // ahead = 1 gives the buffer up to rounding; taken as it is then.
            *step = if ahead == 1.0 { *buf } else { I::fma(ahead, *buf - g, g) };
        }
    }
}

dispatch! {
    fn follow_leaf<I>(shrink: f32, lr: f32, param: &mut [f32], step: &[f32]) {
        for (p, &u) in param.iter_mut().zip(step) {
            *p = I::fma(-lr, u, *p * shrink);
        }
    }
}
