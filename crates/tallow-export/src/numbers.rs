//! Quantized weights in a program's file: a byte each, the number plus 128, as of PyTorch's `quint8`.
//!
//! A weight is stored so where everything that reads it rounds it alike. Read back, it is what rounding leaves as it is.

use candle_core::{Device, Tensor};
use tallow_graph::op::FakeQuantize;
use tallow_graph::{Graph, Op};

use crate::Result;

/// What the byte of zero is.
const ZERO: f32 = 128.0;

/// How every reader of a weight rounds it, if they do so alike.
pub(crate) fn rounding<'g>(graphs: &'g [Graph], name: &str) -> Option<&'g FakeQuantize> {
    let mut found = None;
    for graph in graphs {
        let (weight, _) = graph.params().find(|(_, param)| param.name == name)?;
        if graph.outputs.contains(&weight.id) {
            return None;
        }
        let readers = graph.nodes.iter();
        for reader in readers.filter(|node| node.inputs.contains(&weight.id)) {
            match &reader.op {
                Op::FakeQuantize(op)
                    if op.is_of_weights() && found.is_none_or(|known| known == op) =>
                {
                    found = Some(op);
                }
                _ => return None,
            }
        }
    }
    found
}

/// The scale of each filter of a weight.
fn scales(op: &FakeQuantize, filters: usize) -> Vec<f32> {
    match *op.scales {
        [scale] => vec![scale; filters],
        ref scales => scales.to_vec(),
    }
}

/// The bytes of a weight.
pub(crate) fn encode(op: &FakeQuantize, weight: &Tensor) -> Result<Tensor> {
    let values = weight.flatten_all()?.to_vec1::<f32>()?;
    let scales = scales(op, weight.dim(0)?);
    let filter = (values.len() / scales.len().max(1)).max(1);
    let [low, high] = op.bounds.map(|bound| bound as f32);
    let numbers = values
        .chunks(filter)
        .zip(&scales)
        .flat_map(|(filter, &scale)| {
            let number = move |w: &f32| (w / scale).round_ties_even().max(low).min(high) + ZERO;
            filter.iter().map(move |w| number(w) as u8)
        });
    let numbers: Vec<u8> = numbers.collect();
    Ok(Tensor::from_vec(numbers, weight.dims(), &Device::Cpu)?)
}

/// The weight of bytes.
pub(crate) fn decode(op: &FakeQuantize, bytes: &[u8], shape: &[usize]) -> Vec<f32> {
    let scales = scales(op, shape.first().copied().unwrap_or(0));
    let filter = (bytes.len() / scales.len().max(1)).max(1);
    let filters = bytes.chunks(filter).zip(&scales);
    filters
        .flat_map(|(filter, scale)| {
            filter
                .iter()
                .map(move |&byte| (f32::from(byte) - ZERO) * scale)
        })
        .collect()
}
