//! One plane resized by weighting the four pixels around a position.

use super::Interpolate2d;

/// Two neighbouring input pixels along one axis, and the weight of the second one.
#[derive(Debug, Clone, Copy, Default)]
struct Between {
    low: usize,
    high: usize,
    weight: f32,
}

impl Between {
    /// Around the position of output pixel `i`, PyTorch's `compute_source_index_and_lambda`.
    fn new(i: usize, input: usize, output: usize, align_corners: bool) -> Self {
        if input == output {
            return Self {
                low: i,
                high: i,
                weight: 0.0,
            };
        }
        // In f64: in f32 a position far along the axis has lost digits that its weight needs.
        let (at, from, to) = (i as f64, input as f64, output as f64);
        let position = match align_corners {
            true if output > 1 => at * (from - 1.0) / (to - 1.0),
            true => 0.0,
            false => ((at + 0.5) * from / to - 0.5).max(0.0),
        };
        let low = (position as usize).min(input - 1);
        let weight = (position - low as f64).clamp(0.0, 1.0) as f32;
        Self {
            low,
            high: (low + 1).min(input - 1),
            weight,
        }
    }
}

/// Columns whose positions are worked out once for all rows.
const COLUMNS: usize = 64;

/// Calls `f` with the first output column of each block of columns and their positions.
fn for_each_block(
    geometry: &Interpolate2d,
    align_corners: bool,
    mut f: impl FnMut(usize, &[Between]),
) {
    let (input, output) = (geometry.in_size[1], geometry.out_size[1]);
    let mut block = [Between::default(); COLUMNS];
    for first in (0..output).step_by(COLUMNS) {
        let block = &mut block[..COLUMNS.min(output - first)];
        for (i, between) in block.iter_mut().enumerate() {
            *between = Between::new(first + i, input, output, align_corners);
        }
        f(first, block);
    }
}

pub(super) fn forward(geometry: &Interpolate2d, align_corners: bool, x: &[f32], y: &mut [f32]) {
    let ([in_height, in_width], [out_height, out_width]) = (geometry.in_size, geometry.out_size);
    for_each_block(geometry, align_corners, |first, columns| {
        for row in 0..out_height {
            let down = Between::new(row, in_height, out_height, align_corners);
            let upper = &x[down.low * in_width..][..in_width];
            let lower = &x[down.high * in_width..][..in_width];
            let y = &mut y[row * out_width + first..][..columns.len()];
            for (y, across) in y.iter_mut().zip(columns) {
                let blend = |row: &[f32]| {
                    (1.0 - across.weight) * row[across.low] + across.weight * row[across.high]
                };
                *y = (1.0 - down.weight) * blend(upper) + down.weight * blend(lower);
            }
        }
    });
}

/// Adds to `dx`, which starts at zero.
pub(super) fn backward(geometry: &Interpolate2d, align_corners: bool, dy: &[f32], dx: &mut [f32]) {
    let ([in_height, in_width], [out_height, out_width]) = (geometry.in_size, geometry.out_size);
    for_each_block(geometry, align_corners, |first, columns| {
        for row in 0..out_height {
            let down = Between::new(row, in_height, out_height, align_corners);
            let dy = &dy[row * out_width + first..][..columns.len()];
            for (at, weight) in [(down.low, 1.0 - down.weight), (down.high, down.weight)] {
                let dx = &mut dx[at * in_width..][..in_width];
                for (dy, across) in dy.iter().zip(columns) {
                    dx[across.low] += dy * weight * (1.0 - across.weight);
                    dx[across.high] += dy * weight * across.weight;
                }
            }
        }
    });
}
