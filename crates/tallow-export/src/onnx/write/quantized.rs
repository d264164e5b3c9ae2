//! Quantized values in ONNX's QDQ form: `QuantizeLinear` and `DequantizeLinear` around what is computed in whole numbers.
//! Weights are stored as whole numbers.

use tallow_graph::op::FakeQuantize;
use tallow_graph::{Node, Op};

use super::proto::{self, element};
use super::{Writer, dims, int};
use crate::Result;
use crate::onnx::refused;

impl Writer<'_> {
    pub(super) fn quantized(&mut self, node: &Node, op: &FakeQuantize, x: &str) -> Result<String> {
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
        let zeros = vec![op.zero_point; op.scales.len()];
        let zero_point = self.bytes("zero_point", data_type, &shape, &zeros);
        let attributes = || match shape.is_empty() {
            true => Vec::new(),
            false => vec![int("axis", op.axis as i64)],
        };
        let numbers = match self.rounded(node, op, data_type) {
            Some(weight) => weight,
            None => self.emit("QuantizeLinear", &[x, &scale, &zero_point], attributes()),
        };
        Ok(self.emit(
            "DequantizeLinear",
            &[&numbers, &scale, &zero_point],
            attributes(),
        ))
    }

    /// A weight as whole numbers, if it is one.
    fn rounded(&mut self, node: &Node, op: &FakeQuantize, data_type: i32) -> Option<String> {
        let input = self.graph.node(*node.inputs.first()?)?;
        let Op::Param(param) = &input.op else {
            return None;
        };
        let shape = &param.ty.shape;
        let elements = self.weights.get(&param.name)?.as_ref();
        let inner: usize = shape.iter().skip(op.axis + 1).product();
        let size = shape.get(op.axis).copied().unwrap_or(1);
        let scale = |index: usize| match op.scales.as_slice() {
            [one] => *one,
            scales => scales[index / inner.max(1) % size.max(1)],
        };
        let number = |(index, value): (usize, &f32)| {
            let number = (value / scale(index)).round_ties_even() as i32;
            number
                .saturating_add(op.zero_point)
                .clamp(op.bounds[0], op.bounds[1])
        };
        let numbers: Vec<i32> = elements.iter().enumerate().map(number).collect();
        Some(self.bytes(&format!("{}/int8", param.name), data_type, shape, &numbers))
    }

    fn bytes(&mut self, name: &str, data_type: i32, shape: &[usize], numbers: &[i32]) -> String {
        let tensor = proto::Tensor {
            dims: dims(shape),
            data_type,
            raw_data: Some(numbers.iter().map(|&number| number as u8).collect()),
            ..Default::default()
        };
        let name = match name {
            "zero_point" => format!("{}/zero_point", self.place),
            name => name.to_string(),
        };
        self.initializer(&name, tensor)
    }
}
