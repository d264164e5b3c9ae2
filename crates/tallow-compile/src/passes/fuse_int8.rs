//! Convolutions between quantized values become convolutions of whole numbers; values between two of them stay words.
//!
//! A convolution takes part if its input is rounded to unsigned bytes and its weight to signed ones, by `FakeQuantize`.
//! Its residual and its output are words as well where they are rounded to unsigned bytes; what other operations read stays
//! floats.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tallow_graph::op::{
    Conv2d, FakeQuantize, Form, FusedConv2d, Int8Conv2d, QuantizeToWords, Quantized,
};
use tallow_graph::{Graph, GraphError, Node, NodeId, Op};
use tallow_kernels::channels_last::int8;
use tallow_kernels::conv::Conv2dGeometry;

use crate::rewrite::Rewrite;

pub(super) fn run(graph: &Graph) -> Result<Graph, GraphError> {
    // The words of each rounding, by its node.
    let mut words: HashMap<NodeId, NodeId> = HashMap::new();
    Rewrite::apply(graph, |rewrite, node| {
        if let Some(quantized) = activations(node) {
            return rounding(rewrite, node, quantized, &mut words);
        }
        if is_weight(node)
            && readers(rewrite, node).all(|reader| candidate(rewrite, reader).is_some())
        {
            return Ok(!rewrite.is_output(node.id));
        }
        let Some(conv) = candidate(rewrite, node) else {
            return Ok(false);
        };
        convolution(rewrite, node, conv, &mut words)
    })
}

/// A rounding whose every reader takes words is left out; one that others read too is kept beside them.
fn rounding(
    rewrite: &mut Rewrite<'_>,
    node: &Node,
    quantized: Quantized,
    words: &mut HashMap<NodeId, NodeId>,
) -> Result<bool, GraphError> {
    if !takes_words(rewrite, node).any(|takes| takes) {
        return Ok(false);
    }
    if let Entry::Vacant(entry) = words.entry(node.id) {
        let x = rewrite.get(node.inputs[0]);
        let op = Op::QuantizeToWords(QuantizeToWords { to: quantized });
        entry.insert(rewrite.push(op, &[x], &node.scope)?);
    }
    Ok(takes_words(rewrite, node).all(|takes| takes) && !rewrite.is_output(node.id))
}

fn convolution(
    rewrite: &mut Rewrite<'_>,
    node: &Node,
    conv: Candidate,
    words: &mut HashMap<NodeId, NodeId>,
) -> Result<bool, GraphError> {
    let weight = rewrite.old(node.inputs[1]).inputs[0];
    let mut inputs = vec![words[&node.inputs[0]], rewrite.get(weight)];
    if conv.fused.bias {
        inputs.push(rewrite.get(node.inputs[2]));
    }
    let mut residual = None;
    if conv.fused.residual
        && let Some(&id) = node.inputs.last()
    {
        let form = activations(rewrite.old(id)).map(Form::Words);
        residual = Some(form.unwrap_or(Form::Floats));
        inputs.push(match form {
            Some(_) => words[&id],
            None => rewrite.get(id),
        });
    }
    // Words right away, where the one reader rounds and nobody wants what it rounds as floats.
    let reader = rewrite.only_reader(node.id);
    let rounded = reader.and_then(|reader| {
        let all = takes_words(rewrite, reader).all(|takes| takes);
        let quantized = activations(reader)?;
        (all && !rewrite.is_output(reader.id) && !rewrite.readers(reader.id).is_empty())
            .then_some((reader.id, quantized))
    });
    let op = Op::Int8Conv2d(Int8Conv2d {
        conv: conv.fused.conv,
        x: conv.x,
        weight_scales: conv.weight_scales,
        bias: conv.fused.bias,
        residual,
        activation: conv.fused.activation,
        output: rounded.map_or(Form::Floats, |(_, quantized)| Form::Words(quantized)),
    });
    let id = rewrite.push(op, &inputs, &node.scope)?;
    match rounded {
        Some((reader, _)) => {
            words.insert(reader, id);
        }
        None => rewrite.replace(node, id),
    }
    Ok(true)
}

/// A convolution that can be computed in whole numbers.
struct Candidate {
    fused: FusedConv2d,
    x: Quantized,
    weight_scales: Vec<f32>,
}

fn candidate(rewrite: &Rewrite<'_>, node: &Node) -> Option<Candidate> {
    let fused = match &node.op {
        Op::FusedConv2d(op) => op.clone(),
        Op::Conv2d(op) => FusedConv2d {
            conv: op.clone(),
            bias: node.inputs.len() > 2,
            residual: false,
            activation: None,
        },
        _ => return None,
    };
    let (input, weight) = (rewrite.old(node.inputs[0]), rewrite.old(node.inputs[1]));
    let x = activations(input)?;
    let Op::FakeQuantize(of_weight) = &weight.op else {
        return None;
    };
    let channels = weight.output.shape[0];
    let suits = is_weight(weight) && suits(&fused.conv, &input.output.shape, &weight.output.shape);
    let scales = match *of_weight.scales {
        [scale] => vec![scale; channels],
        ref scales => scales.to_vec(),
    };
    suits.then_some(Candidate {
        fused,
        x,
        weight_scales: scales,
    })
}

fn suits(op: &Conv2d, x: &[usize], weight: &[usize]) -> bool {
    let (&[batch, channels, height, width], &[out, _, rows, columns]) = (x, weight) else {
        return false;
    };
    let (size, kernel) = ([height, width], [rows, columns]);
    let geometry = Conv2dGeometry::new(
        batch,
        channels,
        size,
        out,
        kernel,
        op.stride,
        op.padding,
        op.dilation,
        op.groups,
    );
    geometry.is_ok_and(|geometry| int8::suits(&geometry))
}

/// The numbers that an image is rounded to, if they are unsigned bytes.
fn activations(node: &Node) -> Option<Quantized> {
    match &node.op {
        Op::FakeQuantize(op) if node.output.rank() == 4 => op.as_activations(),
        _ => None,
    }
}

fn is_weight(node: &Node) -> bool {
    matches!(&node.op, Op::FakeQuantize(op) if FakeQuantize::is_of_weights(op))
}

fn readers<'g>(rewrite: &Rewrite<'g>, node: &Node) -> impl Iterator<Item = &'g Node> {
    let readers = rewrite.readers(node.id).to_vec();
    let old: Vec<&'g Node> = readers.into_iter().map(|id| rewrite.old(id)).collect();
    old.into_iter()
}

/// Whether each read of a rounding takes words: as the input or the residual of a convolution of whole numbers.
fn takes_words(rewrite: &Rewrite<'_>, node: &Node) -> impl Iterator<Item = bool> {
    let takes: Vec<bool> = readers(rewrite, node)
        .map(|reader| {
            let place = reader.inputs.iter().position(|id| *id == node.id);
            candidate(rewrite, reader).is_some_and(|conv| {
                let last = reader.inputs.len() - 1;
                place == Some(0) || (conv.fused.residual && place == Some(last))
            })
        })
        .collect();
    takes.into_iter()
}
