//! Roundings in ONNX's QDQ form: `QuantizeLinear` and `DequantizeLinear`; of weights the numbers and `DequantizeLinear`.

use tallow_graph::op::FakeQuantize;
use tallow_graph::{Node, Op};

use super::proto::{self, element};
use super::{Writer, dims, int};
use crate::Result;
use crate::onnx::refused;

impl Writer<'_> {
    /// Whether every reader of a weight rounds it to signed bytes.
    pub(super) fn is_rounded_weight(&self, node: &Node) -> bool {
        let reads = |other: &&Node| other.inputs.contains(&node.id);
        let mut readers = self.graph.nodes.iter().filter(reads).peekable();
        readers.peek().is_some()
            && !self.graph.outputs.contains(&node.id)
            && readers
                .all(|reader| matches!(&reader.op, Op::FakeQuantize(op) if op.is_of_weights()))
    }

    pub(super) fn fake_quantize(
        &mut self,
        node: &Node,
        op: &FakeQuantize,
        x: &str,
    ) -> Result<String> {
        let weight = self.graph.node(node.inputs[0]);
        if let Some(weight) = weight.filter(|weight| self.is_rounded_weight(weight))
            && let Op::Param(param) = &weight.op
        {
            return Ok(self.numbers(&param.name, &param.ty.shape, op));
        }
        let data_type = match op.bounds {
            [0, 255] => element::UINT8,
            [-128 | -127, 127] => element::INT8,
            bounds => {
                let problem = format!("rounds to numbers of {bounds:?}");
                let remedy = "quantize to 0 ..= 255, or -127 ..= 127";
                return Err(refused("QuantizeLinear", &node.scope, problem, remedy));
            }
        };
        let shape: Vec<usize> = match op.scales.len() {
            1 => Vec::new(),
            count => vec![count],
        };
        let scale = self.floats(&shape, &op.scales);
        let zeros = vec![op.zero_point as u8; op.scales.len()];
        let zero = self.bytes("zero_point", &shape, data_type, zeros);
        let attributes = || match shape.is_empty() {
            true => Vec::new(),
            false => vec![int("axis", op.axis as i64)],
        };
        let numbers = self.emit("QuantizeLinear", &[x, &scale, &zero], attributes());
        Ok(self.emit("DequantizeLinear", &[&numbers, &scale, &zero], attributes()))
    }

    /// The bias of a convolution between roundings, in the numbers of its sums: without it, runtimes compute in floats.
    pub(super) fn rounded_bias(&mut self, node: &Node) -> Option<String> {
        let op = |index: usize| {
            let input = node.inputs.get(index).and_then(|id| self.graph.node(*id));
            input.map(|input| &input.op)
        };
        let (Some(Op::FakeQuantize(x)), Some(Op::FakeQuantize(weight)), Some(Op::Param(bias))) =
            (op(0), op(1), op(2))
        else {
            return None;
        };
        let (x, true) = (x.as_activations()?, weight.is_of_weights()) else {
            return None;
        };
        let elements = self.weights.get(&bias.name)?;
        let values = elements.as_ref();
        let scales = weight.scales.iter().cycle().take(values.len());
        let scales: Vec<f32> = scales.map(|scale| scale * x.scale).collect();
        // A saturating conversion: a bias beyond 32 bits is no bias of this network.
        let number = |(value, scale): (&f32, &f32)| (value / scale).round_ties_even() as i32;
        let numbers = values.iter().zip(&scales).map(number);
        let bytes = numbers.flat_map(i32::to_le_bytes).collect();
        let numbers = self.bytes("bias", &[scales.len()], element::INT32, bytes);
        let scales = self.floats(&[scales.len()], &scales);
        let inputs = [numbers.as_str(), &scales];
        Some(self.emit("DequantizeLinear", &inputs, vec![int("axis", 0)]))
    }

    /// A weight as signed bytes, and their scales.
    fn numbers(&mut self, name: &str, shape: &[usize], op: &FakeQuantize) -> String {
        let elements = self.weights.get(name).map(|elements| elements.as_ref());
        let values = elements.unwrap_or(&[]);
        let scales = match *op.scales {
            [scale] => vec![scale; shape[0]],
            ref scales => scales.to_vec(),
        };
        let filter = (values.len() / scales.len().max(1)).max(1);
        let bounds = op.bounds.map(|bound| bound as f32);
        let numbers = values
            .chunks(filter)
            .zip(&scales)
            .flat_map(|(filter, &scale)| {
                let nearest =
                    move |w: &f32| (w / scale).round_ties_even().clamp(bounds[0], bounds[1]);
                filter
                    .iter()
                    .map(move |w| (nearest(w) as i8).cast_unsigned())
            });
        let numbers = numbers.collect();
        let tensor = proto::Tensor {
            dims: dims(shape),
            data_type: element::INT8,
            raw_data: Some(numbers),
            ..Default::default()
        };
        let numbers = self.initializer(name, tensor);
        let zeros = self.bytes(
            "zero_points",
            &[scales.len()],
            element::INT8,
            vec![0; scales.len()],
        );
        let scales = self.floats(&[scales.len()], &scales);
        let inputs = [numbers.as_str(), &scales, &zeros];
        self.emit("DequantizeLinear", &inputs, vec![int("axis", 0)])
    }

    fn bytes(&mut self, what: &str, shape: &[usize], data_type: i32, bytes: Vec<u8>) -> String {
        let tensor = proto::Tensor {
            dims: dims(shape),
            data_type,
            raw_data: Some(bytes),
            ..Default::default()
        };
        let name = format!("{}/{what}", self.place);
        self.initializer(&name, tensor)
    }
}
