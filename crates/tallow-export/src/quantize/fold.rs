//! Batch normalisation folded into the weights of the convolutions before it, in numbers.

use std::collections::HashMap;

use tallow_graph::op::{BatchNorm, Param, ParamKind};
use tallow_graph::{DType, Graph, Node, NodeId, Op, TensorType};

use super::readers;
use crate::weights::{Elements, Weights};
use crate::{Result, rules};

/// The folded weights of all graphs of a program, which share them.
#[derive(Default)]
pub(super) struct Folding {
    /// The names of folded weight and bias, by those of everything that went into them.
    known: HashMap<Vec<String>, [String; 2]>,
}

impl Folding {
    /// The graph with every batch normalisation behind a convolution folded; the weights are added.
    pub(super) fn run(&mut self, graph: &Graph, weights: &mut Weights) -> Result<Graph> {
        let readers = readers(graph);
        let mut folded = Graph::default();
        let mut places: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            let place = match self.fold(graph, node, &readers, weights) {
                Some((conv, [weight, bias])) => {
                    let x = places[conv.inputs[0].0];
                    let weight = push_weight(&mut folded, weights, weight, &conv.scope)?;
                    let bias = push_weight(&mut folded, weights, bias, &conv.scope)?;
                    folded.push(conv.op.clone(), &[x, weight, bias], conv.scope.clone())?
                }
                None => {
                    let inputs: Vec<NodeId> = node.inputs.iter().map(|id| places[id.0]).collect();
                    folded.push(node.op.clone(), &inputs, node.scope.clone())?
                }
            };
            places.push(place);
        }
        folded.outputs = graph.outputs.iter().map(|id| places[id.0]).collect();
        // The convolutions whose weights were joined are there twice.
        rules::prune(&folded)
    }

    /// The convolution that a batch normalisation reads, if it is its one reader, and the names of their joint weights.
    fn fold<'g>(
        &mut self,
        graph: &'g Graph,
        node: &Node,
        readers: &[usize],
        weights: &mut Weights,
    ) -> Option<(&'g Node, [String; 2])> {
        let Op::BatchNorm(norm) = &node.op else {
            return None;
        };
        let conv = graph.node(node.inputs[0])?;
        if !matches!(conv.op, Op::Conv2d(_)) || readers[conv.id.0] != 1 {
            return None;
        }
        let parts = conv.inputs[1..].iter().chain(&node.inputs[1..]);
        let names: Option<Vec<String>> = parts.map(|id| param_name(graph, *id)).collect();
        let names = names?;
        if let Some(known) = self.known.get(&names) {
            return Some((conv, known.clone()));
        }
        let known = join(norm, &names, conv.inputs.len() > 2, weights)?;
        self.known.insert(names, known.clone());
        Some((conv, known))
    }
}

fn param_name(graph: &Graph, id: NodeId) -> Option<String> {
    match &graph.node(id)?.op {
        Op::Param(param) => Some(param.name.clone()),
        _ => None,
    }
}

/// `weight * factor` and `(bias - mean) * factor + beta`, with `factor = gamma / sqrt(variance + eps)`.
fn join(
    norm: &BatchNorm,
    names: &[String],
    has_bias: bool,
    weights: &mut Weights,
) -> Option<[String; 2]> {
    let values = |name: &String| weights.get(name).map(|elements| elements.as_ref().to_vec());
    let weight = values(&names[0])?;
    let ty = weights.ty(&names[0])?.clone();
    let (of_norm, filters) = (1 + usize::from(has_bias), ty.shape[0]);
    let [gamma, beta, mean, variance] = [0, 1, 2, 3].map(|index| values(&names[of_norm + index]));
    let (gamma, beta, mean, variance) = (gamma?, beta?, mean?, variance?);
    let bias = match has_bias {
        true => values(&names[1])?,
        false => vec![0.0; filters],
    };
    let factor = |o: usize| f64::from(gamma[o]) / (f64::from(variance[o]) + norm.eps).sqrt();
    let filter = (weight.len() / filters.max(1)).max(1);
    let joint_weight = weight.iter().enumerate();
    let joint_weight: Vec<f32> = joint_weight
        .map(|(index, &w)| (f64::from(w) * factor(index / filter)) as f32)
        .collect();
    let joint_bias: Vec<f32> = (0..filters)
        .map(|o| {
            ((f64::from(bias[o]) - f64::from(mean[o])) * factor(o) + f64::from(beta[o])) as f32
        })
        .collect();
    let stem = names[0].strip_suffix("weight").unwrap_or(&names[0]);
    let name = unused(weights, &format!("{stem}folded.weight"));
    weights.insert(name.clone(), ty, Elements::Owned(joint_weight.into()));
    let bias_name = unused(weights, &format!("{stem}folded.bias"));
    let bias_ty = TensorType::new(DType::F32, [filters]);
    weights.insert(
        bias_name.clone(),
        bias_ty,
        Elements::Owned(joint_bias.into()),
    );
    Some([name, bias_name])
}

fn unused(weights: &Weights, name: &str) -> String {
    let numbered = (2..).map(|n| format!("{name}_{n}"));
    let mut names = std::iter::once(name.to_string()).chain(numbered);
    names
        .find(|name| !weights.contains(name))
        .unwrap_or_default()
}

fn push_weight(graph: &mut Graph, weights: &Weights, name: String, scope: &str) -> Result<NodeId> {
    let known = graph.params().find(|(_, param)| param.name == name);
    if let Some((node, _)) = known {
        return Ok(node.id);
    }
    let ty = weights.ty(&name).cloned();
    let param = Param {
        name,
        ty: ty.unwrap_or_else(|| TensorType::f32([])),
        kind: ParamKind::Frozen,
    };
    Ok(graph.push(Op::Param(param), &[], scope)?)
}
