//! Arithmetic, with broadcasting.

use candle_core::{Result, Tensor};
use tallow_kernels::broadcast::{self, Binary};
use tallow_kernels::elementwise;

use super::reduction::sum_to;
use super::tape::Gradient;
use super::{Backward, Kernel, Outcome};

/// `a op b`; the shapes broadcast to `out`.
pub(crate) fn binary(op: Binary, a: &Tensor, b: &Tensor, out: &[usize]) -> Result<Tensor> {
    let pair = Pair {
        op,
        a: a.dims().to_vec(),
        b: b.dims().to_vec(),
        out: out.to_vec(),
    };
    let rule = pair.clone();
    Kernel::new(
        "arithmetic",
        out,
        move |[a, b], y| pair.forward(a, b, y),
        move |b| rule.backward(b),
    )
    .apply([a, b])
}

/// An operation and the shapes that it joins.
#[derive(Clone)]
struct Pair {
    op: Binary,
    a: Vec<usize>,
    b: Vec<usize>,
    out: Vec<usize>,
}

impl Pair {
    fn forward(&self, a: &[f32], b: &[f32], y: &mut [f32]) -> Outcome<()> {
        if self.a != self.b {
            return broadcast::binary(self.op, a, &self.a, b, &self.b, y);
        }
        match self.op {
            Binary::Add => elementwise::add(a, b, y),
            Binary::Sub => elementwise::sub(a, b, y),
            Binary::Mul => elementwise::mul(a, b, y),
            Binary::Div => elementwise::div(a, b, y),
        }
    }

    fn backward(&self, pass: &Backward<'_, 2>) -> Outcome<[Option<Gradient>; 2]> {
        let [a, b] = pass.inputs;
        Ok(match self.op {
            Binary::Add => [self.fold(pass, 0, &self.a)?, self.fold(pass, 1, &self.b)?],
            Binary::Sub => [
                self.fold(pass, 0, &self.a)?,
                self.reduced(pass, 1, &self.b, |t| elementwise::scale(pass.grad, -1., t))?,
            ],
            Binary::Mul => [
                self.reduced(pass, 0, &self.a, |t| {
                    broadcast::binary(Binary::Mul, pass.grad, &self.out, b, &self.b, t)
                })?,
                self.reduced(pass, 1, &self.b, |t| {
                    broadcast::binary(Binary::Mul, pass.grad, &self.out, a, &self.a, t)
                })?,
            ],
            Binary::Div => [
                self.reduced(pass, 0, &self.a, |t| {
                    broadcast::binary(Binary::Div, pass.grad, &self.out, b, &self.b, t)
                })?,
                // -dy a / b^2 = -dy y / b
                self.reduced(pass, 1, &self.b, |t| {
                    let mut along = vec![0f32; pass.grad.len()];
                    elementwise::mul(pass.grad, pass.out, &mut along)?;
                    broadcast::binary(Binary::Div, &along, &self.out, b, &self.b, t)?;
                    elementwise::scale_assign(t, -1.);
                    Ok(())
                })?,
            ],
        })
    }

    /// The output's gradient itself, summed over what was repeated.
    fn fold(
        &self,
        pass: &Backward<'_, 2>,
        index: usize,
        shape: &[usize],
    ) -> Outcome<Option<Gradient>> {
        if shape == self.out {
            return Ok(pass.unchanged(index));
        }
        if !pass.needed[index] {
            return Ok(None);
        }
        let values = sum_to(pass.grad, &self.out, shape)?;
        Ok(Some(Gradient::Values(values)))
    }

    /// What `fill` writes in the output's shape, summed over what was repeated.
    fn reduced(
        &self,
        pass: &Backward<'_, 2>,
        index: usize,
        shape: &[usize],
        fill: impl FnOnce(&mut [f32]) -> Outcome<()>,
    ) -> Outcome<Option<Gradient>> {
        if !pass.needed[index] {
            return Ok(None);
        }
        let mut values = vec![0f32; pass.grad.len()];
        fill(&mut values)?;
        if shape != self.out {
            values = sum_to(&values, &self.out, shape)?;
        }
        Ok(Some(Gradient::Values(values)))
    }
}

/// `xs + value`.
pub(crate) fn add_scalar(xs: &Tensor, value: f64, out: &[usize]) -> Result<Tensor> {
    Kernel::new(
        "add_scalar",
        out,
        move |[x], y| elementwise::add_scalar(x, value as f32, y),
        |b| Ok([b.unchanged(0)]),
    )
    .apply([xs])
}

/// `xs * value`.
pub(crate) fn mul_scalar(xs: &Tensor, value: f64, out: &[usize]) -> Result<Tensor> {
    Kernel::new(
        "mul_scalar",
        out,
        move |[x], y| elementwise::scale(x, value as f32, y),
        move |b| Ok([b.gradient(0, |dx| elementwise::scale(b.grad, value as f32, dx))?]),
    )
    .apply([xs])
}
