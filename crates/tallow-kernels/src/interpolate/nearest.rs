//! One plane resized by picking pixels.

use super::Interpolate2d;

/// The input pixel of output pixel `i`, PyTorch's `nearest_neighbor_compute_source_index`.
#[inline(always)]
fn source(i: usize, input: usize, output: usize) -> usize {
    let scale = input as f32 / output as f32;
    ((i as f32 * scale) as usize).min(input - 1)
}

pub(super) fn forward(geometry: &Interpolate2d, x: &[f32], y: &mut [f32]) {
    let ([in_height, in_width], [out_height, out_width]) = (geometry.in_size, geometry.out_size);
    for row in 0..out_height {
        let from = source(row, in_height, out_height);
        let (done, y) = y.split_at_mut(row * out_width);
        let y = &mut y[..out_width];
        if row > 0 && source(row - 1, in_height, out_height) == from {
            y.copy_from_slice(&done[(row - 1) * out_width..]);
            continue;
        }
        let x = &x[from * in_width..][..in_width];
        for (col, y) in y.iter_mut().enumerate() {
            *y = x[source(col, in_width, out_width)];
        }
    }
}

/// Adds to `dx`, which starts at zero.
pub(super) fn backward(geometry: &Interpolate2d, dy: &[f32], dx: &mut [f32]) {
    let ([in_height, in_width], [out_height, out_width]) = (geometry.in_size, geometry.out_size);
    for (row, dy) in dy.chunks_exact(out_width).enumerate() {
        let dx = &mut dx[source(row, in_height, out_height) * in_width..][..in_width];
        for (col, dy) in dy.iter().enumerate() {
            dx[source(col, in_width, out_width)] += dy;
        }
    }
}
