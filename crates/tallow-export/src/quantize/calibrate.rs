//! Which values the inputs of convolutions have, by running batches in floats.

use std::collections::{BTreeMap, HashMap};

use candle_core::Tensor;
use tallow_compile::interpret;
use tallow_graph::op::Quantized;
use tallow_graph::{Graph, NodeId};
use tallow_tensor::convert;

use super::{Calibration, QuantizeOptions, sites};
use crate::{Error, Program, Result, rules};

/// The numbers for every value that is rounded. Nodes are the same in every graph of a program.
pub(super) fn ranges(
    program: &Program,
    calibration: &[Tensor],
    options: &QuantizeOptions,
) -> Result<BTreeMap<NodeId, Quantized>> {
    if let Calibration::Percentile(share) = options.calibration
        && !(share > 50.0 && share <= 100.0)
    {
        return Err(Error::unsupported(
            format!("calibration with {share} percent"),
            "leaves out most of the values",
            "give a share above 50 and at most 100, such as 99.99",
        ));
    }
    let params = program.weights.tensors()?;
    let params: HashMap<String, Tensor> = params
        .into_iter()
        .map(|(name, tensor)| (name.to_string(), tensor))
        .collect();
    let mut seen: BTreeMap<NodeId, Range> = BTreeMap::new();
    for batch in calibration {
        let mut graph = graph_for(program, batch)?.clone();
        let read = sites(&graph, options).map(|(node, place)| node.inputs[place]);
        let mut rounded: Vec<NodeId> = read.collect();
        rounded.sort_unstable();
        rounded.dedup();
        graph.outputs = rounded.clone();
        let values = interpret(&graph, std::slice::from_ref(batch), &params)?;
        for (id, value) in rounded.iter().zip(&values) {
            let range = range_of(value, options.calibration)?;
            seen.entry(*id).or_default().add(range);
        }
    }
    if calibration.is_empty() {
        return Err(Error::unsupported(
            "quantization",
            "was given no batch to calibrate with",
            "give some batches of images as the program will see, normalised alike",
        ));
    }
    let numbers = seen.into_iter();
    Ok(numbers
        .map(|(id, range)| (id, range.numbers(options.calibration)))
        .collect())
}

fn graph_for<'p>(program: &'p Program, batch: &Tensor) -> Result<&'p Graph> {
    let given = vec![convert::tensor_type(batch)?];
    let graphs = program.graphs.iter();
    let mut fits = graphs.filter(|graph| rules::input_types(graph) == given);
    fits.next().ok_or_else(|| Error::Arguments {
        found: given[0].to_string(),
        expected: program
            .graphs
            .iter()
            .map(|graph| {
                let types = rules::input_types(graph);
                let types: Vec<String> = types.iter().map(ToString::to_string).collect();
                types.join(" with ")
            })
            .collect(),
    })
}

/// Least and largest value of one batch.
fn range_of(value: &Tensor, calibration: Calibration) -> Result<[f32; 2]> {
    let mut values = value.flatten_all()?.to_vec1::<f32>()?;
    if let Some(odd) = values.iter().find(|value| !value.is_finite()) {
        return Err(Error::unsupported(
            "quantization",
            format!("met the value {odd} in its calibration"),
            "calibrate with images and a program whose values are finite",
        ));
    }
    let inside = match calibration {
        Calibration::MinMax => {
            let range = values.iter().fold([0f32; 2], |[low, high], &value| {
                [low.min(value), high.max(value)]
            });
            return Ok(range);
        }
        Calibration::Percentile(share) => share / 100.0,
    };
    if values.is_empty() {
        return Ok([0.0; 2]);
    }
    let last = values.len() - 1;
    let high = (last as f64 * (1.0 + inside) / 2.0).round() as usize;
    let (_, &mut high, _) = values.select_nth_unstable_by(high, f32::total_cmp);
    let low = (last as f64 * (1.0 - inside) / 2.0).round() as usize;
    let (_, &mut low, _) = values.select_nth_unstable_by(low, f32::total_cmp);
    Ok([low.min(0.0), high.max(0.0)])
}

/// The ranges of all batches so far.
#[derive(Default)]
struct Range {
    widest: [f32; 2],
    sum: [f64; 2],
    batches: usize,
}

impl Range {
    fn add(&mut self, [low, high]: [f32; 2]) {
        self.widest = [self.widest[0].min(low), self.widest[1].max(high)];
        self.sum = [self.sum[0] + f64::from(low), self.sum[1] + f64::from(high)];
        self.batches += 1;
    }

    /// Zero is always among the values: padding is zero.
    fn numbers(&self, calibration: Calibration) -> Quantized {
        let [low, high] = match calibration {
            Calibration::MinMax => self.widest,
            Calibration::Percentile(_) => self
                .sum
                .map(|sum| (sum / self.batches.max(1) as f64) as f32),
        };
        let scale = ((high - low) / 255.0).max(f32::MIN_POSITIVE);
        let scale = if high > low { scale } else { 1.0 / 255.0 };
        Quantized {
            scale,
            zero_point: (-low / scale).round_ties_even().clamp(0.0, 255.0) as u8,
        }
    }
}
