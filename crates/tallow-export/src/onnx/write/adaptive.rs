//! Adaptive pooling in operators that ONNX has.
//!
//! Windows are the same along every row and every column, so the mean over them is two products with matrices, and the
//! maximum is taken along one axis after the other.

use tallow_graph::op::{AdaptiveAvgPool2d, AdaptiveMaxPool2d};

use super::{Writer, int, ints};

/// The inputs `⌊i·in/out⌋ .. ⌈(i+1)·in/out⌉` of output position `i`.
fn window(index: usize, size: usize, out: usize) -> (usize, usize) {
    (index * size / out, ((index + 1) * size).div_ceil(out))
}

/// Kernel and stride if all windows are alike and lie side by side.
fn even(size: [usize; 2], out: [usize; 2]) -> Option<[usize; 2]> {
    let divides = size[0].is_multiple_of(out[0]) && size[1].is_multiple_of(out[1]);
    divides.then(|| [size[0] / out[0], size[1] / out[1]])
}

impl Writer<'_> {
    pub(super) fn adaptive_average(
        &mut self,
        op: &AdaptiveAvgPool2d,
        x: &str,
        size: [usize; 2],
    ) -> String {
        if op.out == [1, 1] {
            return self.emit("GlobalAveragePool", &[x], Vec::new());
        }
        if let Some(kernel) = even(size, op.out) {
            let attributes = vec![ints("kernel_shape", &kernel), ints("strides", &kernel)];
            return self.emit("AveragePool", &[x], attributes);
        }
        // [out, H] · x · [W, out].
        let rows = shares(size[0], op.out[0]);
        let columns = shares(size[1], op.out[1]);
        let rows = self.floats(&[op.out[0], size[0]], &rows);
        let transposed: Vec<f32> = (0..size[1] * op.out[1])
            .map(|index| columns[index % op.out[1] * size[1] + index / op.out[1]])
            .collect();
        let columns = self.floats(&[size[1], op.out[1]], &transposed);
        let means = self.emit("MatMul", &[&rows, x], Vec::new());
        self.emit("MatMul", &[&means, &columns], Vec::new())
    }

    pub(super) fn adaptive_max(
        &mut self,
        op: &AdaptiveMaxPool2d,
        x: &str,
        size: [usize; 2],
    ) -> String {
        if op.out == [1, 1] {
            return self.emit("GlobalMaxPool", &[x], Vec::new());
        }
        if let Some(kernel) = even(size, op.out) {
            let attributes = vec![ints("kernel_shape", &kernel), ints("strides", &kernel)];
            return self.emit("MaxPool", &[x], attributes);
        }
        let rows = self.maxima(x, 2, size[0], op.out[0]);
        self.maxima(&rows, 3, size[1], op.out[1])
    }

    /// The maxima of the windows along one axis.
    fn maxima(&mut self, x: &str, axis: usize, size: usize, out: usize) -> String {
        let axes = self.ints(&[axis]);
        let mut parts = Vec::with_capacity(out);
        for index in 0..out {
            let (start, end) = window(index, size, out);
            let (start, end) = (self.ints(&[start]), self.ints(&[end]));
            let part = self.emit("Slice", &[x, &start, &end, &axes], Vec::new());
            parts.push(self.emit("ReduceMax", &[&part, &axes], Vec::new()));
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        self.emit("Concat", &parts, vec![int("axis", axis as i64)])
    }
}

/// `[out, size]`: what each input weighs in each mean.
fn shares(size: usize, out: usize) -> Vec<f32> {
    let mut shares = vec![0.0; out * size];
    for (index, row) in shares.chunks_exact_mut(size).enumerate() {
        let (start, end) = window(index, size, out);
        row[start..end].fill(1.0 / (end - start) as f32);
    }
    shares
}
