//! Batch normalisation by the statistics of several ranks, see [`crate::sync`].

use candle_core::{CpuStorage, CustomOp3, Error, Layout, Result, Shape, Tensor};
use tallow_kernels::norm;
use tallow_kernels::shape::ChannelShape;

use super::normalization::channels;
use super::tape::elements;
use crate::inplace;
use crate::sync::Joint;

/// Normalises by the statistics of all ranks' batches. Also gives those: the mean and the unbiased variance, `[C]` each.
pub(crate) fn joint_batch_norm_train(
    [xs, weight, bias]: [&Tensor; 3],
    eps: f64,
    out: &[usize],
    joint: Joint,
) -> Result<(Tensor, [Tensor; 2])> {
    let shape = channels(xs);
    let width = shape.channels;
    let mut sums = vec![0f64; 2 * width];
    let (sum, squares) = sums.split_at_mut(width);
    inplace::read_all(std::slice::from_ref(xs), |slices| {
        norm::batch_norm_sums(&shape, slices[0], sum, squares)
    })?
    .map_err(Error::wrap)?;
    let total = joint.sums(shape.batch * shape.spatial, &mut sums)?;
    let [mut mean, mut invstd, mut var] = [(); 3].map(|()| vec![0f32; width]);
    let parts = sums.split_at(width);
    let parts = [parts.0, parts.1];
    norm::batch_norm_statistics(total, parts, eps, &mut mean, &mut invstd, &mut var)
        .map_err(Error::wrap)?;
    let statistics = [
        Tensor::from_slice(&mean, width, xs.device())?,
        Tensor::from_slice(&var, width, xs.device())?,
    ];
    let op = JointBatchNorm {
        out: Shape::from(out),
        shape,
        joint,
        mean,
        invstd,
    };
    Ok((xs.apply_op3(weight, bias, op)?, statistics))
}

struct JointBatchNorm {
    out: Shape,
    shape: ChannelShape,
    joint: Joint,
    mean: Vec<f32>,
    invstd: Vec<f32>,
}

impl JointBatchNorm {
    /// Those of the input, of weight and of bias.
    fn gradients(&self, x: &[f32], gamma: &[f32], dy: &[f32]) -> Result<[Vec<f32>; 3]> {
        let width = self.shape.channels;
        let mut own = vec![0f32; 2 * width];
        let (dgamma, dbeta) = own.split_at_mut(width);
        let (mean, invstd) = (&self.mean, &self.invstd);
        norm::batch_norm_gradient_sums(&self.shape, x, dy, mean, invstd, dgamma, dbeta)
            .map_err(Error::wrap)?;
        let mut of_all = own.clone();
        let count = self.shape.batch * self.shape.spatial;
        self.joint.gradient_sums(count, &mut of_all)?;
        let (dgamma, dbeta) = of_all.split_at(width);
        let mut dx = vec![0f32; x.len()];
        let statistics = [mean.as_slice(), invstd.as_slice()];
        let sums = [dgamma, dbeta];
        norm::batch_norm_input_gradient(&self.shape, x, dy, gamma, statistics, sums, &mut dx)
            .map_err(Error::wrap)?;
        let dbeta = own.split_off(width);
        Ok([dx, own, dbeta])
    }
}

impl CustomOp3 for JointBatchNorm {
    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        gamma: &CpuStorage,
        gamma_layout: &Layout,
        beta: &CpuStorage,
        beta_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let name = self.name();
        let x = elements(name, x, x_layout)?;
        let gamma = elements(name, gamma, gamma_layout)?;
        let beta = elements(name, beta, beta_layout)?;
        let mut y = vec![0f32; x.len()];
        let (mean, invstd) = (&self.mean, &self.invstd);
        norm::batch_norm_apply(&self.shape, x, gamma, beta, mean, invstd, &mut y)
            .map_err(Error::wrap)?;
        Ok((CpuStorage::F32(y), self.out.clone()))
    }

    fn bwd(
        &self,
        xs: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _out: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let read = [xs.clone(), weight.clone(), grad.contiguous()?];
        let gradients = inplace::read_all(&read, |slices| {
            self.gradients(slices[0], slices[1], slices[2])
        })?;
        let [dx, dgamma, dbeta] = gradients?;
        let needed = |input: &Tensor, values: Vec<f32>| {
            let gradient = || Tensor::from_vec(values, input.shape(), input.device());
            input.track_op().then(gradient).transpose()
        };
        Ok((
            needed(xs, dx)?,
            needed(weight, dgamma)?,
            needed(bias, dbeta)?,
        ))
    }
}
