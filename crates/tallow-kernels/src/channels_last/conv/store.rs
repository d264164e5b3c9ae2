//! A task's sums of the weight gradient, brought into the order of the weights.

use super::transpose::{SIDE, Square, transpose};
use crate::shared::SharedMut;
use crate::simd::dispatch;

/// Matrices `[taps][channels][width]` to add, and the columns of `dw: [columns][channels][taps]` that eight of theirs
/// become.
#[derive(Clone, Copy)]
pub(super) struct Strip<'a> {
    /// One matrix after the other.
    pub(super) matrices: &'a [f32],
    pub(super) taps: usize,
    /// Channels of a matrix, and those that exist.
    pub(super) all_channels: usize,
    pub(super) channels: usize,
    pub(super) width: usize,
    /// The first column in a matrix, and how many exist, at most [`SIDE`].
    pub(super) column: usize,
    pub(super) columns: usize,
    /// Where the first column's first channel goes, and how far it is to the next column's.
    pub(super) first: usize,
    pub(super) filter: usize,
}

dispatch! {
    /// Adds the matrices in order and writes the strip.
    pub(super) fn store<I>(strip: Strip<'_>, dw: SharedMut<'_>) -> () {
        let (mut channel, mut tap) = (0, 0);
        let terms = strip.channels * strip.taps;
        for at in (0..terms).step_by(SIDE) {
            let len = SIDE.min(terms - at);
            let mut rows = Square::default();
            for row in rows.iter_mut().take(len) {
                *row = sum(&strip, (tap * strip.all_channels + channel) * strip.width + strip.column);
                tap += 1;
                if tap == strip.taps {
                    (channel, tap) = (channel + 1, 0);
                }
            }
            for (column, row) in transpose::<I>(&rows).iter().enumerate().take(strip.columns) {
                // SAFETY: no two strips have the same column and channels.
                let to = unsafe { dw.slice(strip.first + column * strip.filter + at, len) };
                match to.first_chunk_mut::<SIDE>() {
                    Some(to) => *to = *row,
                    None => to.copy_from_slice(&row[..len]),
                }
            }
        }
    }
}

/// Eight neighbouring floats of all matrices.
#[inline(always)]
fn sum(strip: &Strip<'_>, at: usize) -> [f32; SIDE] {
    let mut sum = [0.0; SIDE];
    for matrix in strip
        .matrices
        .chunks_exact(strip.taps * strip.all_channels * strip.width)
    {
        for (sum, value) in sum.iter_mut().zip(&matrix[at..at + SIDE]) {
            *sum += value;
        }
    }
    sum
}
