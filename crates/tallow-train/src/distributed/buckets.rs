//! Tensors averaged over all ranks, in buckets: gradients, and the buffers of a model.

use candle_core::{DType, Tensor, Var};

use super::{Pending, Ranks};
use crate::Result;

/// Values of a bucket, 25 MB as in PyTorch.
const BUCKET: usize = 25 * (1 << 20) / 4;

/// A tensor to average; none on a rank that has none this time.
pub(crate) struct Part {
    pub(crate) var: Var,
    pub(crate) value: Option<Tensor>,
}

impl Ranks {
    /// The sum over all ranks of each part times the rank's `share`, in its place. What no rank has stays missing; what only some
    /// have counts as zero on the others.
    ///
    /// The last parts, whose gradients a backward pass finds first, go first. A bucket is on its way while the next one is filled.
    pub(crate) fn average(&self, parts: &mut [Part], share: f64) -> Result<()> {
        let mut buckets = Vec::new();
        for bucket in in_buckets(parts) {
            let message = pack(&parts[bucket.clone()], share)?;
            let sum = self.collective().start_sum(message)?;
            self.sum_doubles(&mut parts[bucket.clone()], share)?;
            buckets.push((bucket, sum));
        }
        for (bucket, sum) in buckets {
            unpack(&mut parts[bucket], sum)?;
        }
        Ok(())
    }

    /// Parts of 64-bit floats, which don't fit into a bucket.
    fn sum_doubles(&self, parts: &mut [Part], share: f64) -> Result<()> {
        for part in parts.iter_mut().filter(|part| is_double(part)) {
            let mut values = match &part.value {
                Some(value) => (value.flatten_all()? * share)?.to_vec1::<f64>()?,
                None => vec![0.0; part.var.elem_count()],
            };
            self.sum(&mut values)?;
            part.value = Some(Tensor::from_vec(
                values,
                part.var.shape(),
                part.var.device(),
            )?);
        }
        Ok(())
    }
}

fn is_double(part: &Part) -> bool {
    part.var.dtype() == DType::F64
}

/// Runs of parts, from the last to the first; at least one part each.
fn in_buckets(parts: &[Part]) -> Vec<std::ops::Range<usize>> {
    let mut buckets = Vec::new();
    let (mut end, mut size) = (parts.len(), 0);
    for (index, part) in parts.iter().enumerate().rev() {
        let len = part.var.elem_count();
        if size > 0 && size + len > BUCKET {
            buckets.push(index + 1..end);
            (end, size) = (index + 1, 0);
        }
        size += len;
    }
    if end > 0 {
        buckets.push(0..end);
    }
    buckets
}

/// For each part whether it is there, then its values.
fn pack(parts: &[Part], share: f64) -> Result<Vec<f32>> {
    let len = parts.iter().map(|part| 1 + part.var.elem_count()).sum();
    let mut message = Vec::with_capacity(len);
    let share = share as f32;
    for part in parts {
        message.push(f32::from(u8::from(part.value.is_some())));
        match &part.value {
            _ if is_double(part) => {}
            None => message.resize(message.len() + part.var.elem_count(), 0.0),
            Some(value) => {
                let values = value.detach().flatten_all()?.to_dtype(DType::F32)?;
                let values = values.to_vec1::<f32>()?;
                message.extend(values.into_iter().map(|value| value * share));
            }
        }
    }
    Ok(message)
}

fn unpack(parts: &mut [Part], sum: Pending) -> Result<()> {
    let sums = sum.wait()?;
    let mut rest = sums.as_slice();
    for part in parts {
        let (present, after) = rest.split_at(1);
        let len = if is_double(part) {
            0
        } else {
            part.var.elem_count()
        };
        let (values, after) = after.split_at(len);
        rest = after;
        if present[0] == 0.0 {
            part.value = None;
        } else if !is_double(part) {
            let value = Tensor::from_slice(values, part.var.shape(), part.var.device())?;
            part.value = Some(value.to_dtype(part.var.dtype())?);
        }
    }
    Ok(())
}
