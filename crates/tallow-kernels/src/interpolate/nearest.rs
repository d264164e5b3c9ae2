//! One plane resized by picking pixels.

use super::Interpolate2d;

/// The input pixel of output pixel `i`, PyTorch's `nearest_neighbor_compute_source_index`.
#[inline(always)]
fn source(i: usize, input: usize, output: usize) -> usize {
    let scale = input as f32 / output as f32;
    ((i as f32 * scale) as usize).min(input - 1)
}

/// Columns whose sources are worked out once for all rows.
const COLUMNS: usize = 64;

/// Calls `f` with the first output column of each block of columns and their sources.
fn for_each_block(geometry: &Interpolate2d, mut f: impl FnMut(usize, &[usize])) {
    let (input, output) = (geometry.in_size[1], geometry.out_size[1]);
    let mut block = [0; COLUMNS];
    for first in (0..output).step_by(COLUMNS) {
        let block = &mut block[..COLUMNS.min(output - first)];
        for (i, at) in block.iter_mut().enumerate() {
            *at = source(first + i, input, output);
        }
        f(first, block);
    }
}

pub(super) fn forward(geometry: &Interpolate2d, x: &[f32], y: &mut [f32]) {
    let ([in_height, in_width], [out_height, out_width]) = (geometry.in_size, geometry.out_size);
    for_each_block(geometry, |first, columns| {
        let mut last = None;
        for row in 0..out_height {
            let from = source(row, in_height, out_height);
            let at = row * out_width + first;
            if last == Some(from) {
                y.copy_within(at - out_width..at - out_width + columns.len(), at);
                continue;
            }
            last = Some(from);
            let x = &x[from * in_width..][..in_width];
            for (y, &col) in y[at..].iter_mut().zip(columns) {
                *y = x[col];
            }
        }
    });
}

/// Adds to `dx`, which starts at zero.
pub(super) fn backward(geometry: &Interpolate2d, dy: &[f32], dx: &mut [f32]) {
    let ([in_height, in_width], [out_height, out_width]) = (geometry.in_size, geometry.out_size);
    for_each_block(geometry, |first, columns| {
        for row in 0..out_height {
            let dy = &dy[row * out_width + first..][..columns.len()];
            let dx = &mut dx[source(row, in_height, out_height) * in_width..][..in_width];
            // Neighbours mostly share their source: summed up before the sum goes to memory.
            let (mut at, mut sum) = (columns[0], 0.0);
            for (&col, dy) in columns.iter().zip(dy) {
                if col != at {
                    dx[at] += sum;
                    (at, sum) = (col, 0.0);
                }
                sum += dy;
            }
            dx[at] += sum;
        }
    });
}
