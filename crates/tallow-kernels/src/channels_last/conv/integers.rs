//! The direct convolution of words of two whole numbers, to 32-bit sums: see `channels_last::int8`.
//!
//! Lengths and geometry were checked by the caller; geometries count words, not channels.

use super::Direction;
use super::Finish;
use super::correlation::Correlations;
use super::padded;
use super::product::{self, Pass};
use super::strips::{self, Strips};
use crate::channels_last::micro::Micro;
use crate::conv::Conv2dGeometry;
use crate::workspace::Workspace;

pub(crate) fn packed_len(geometry: &Conv2dGeometry) -> usize {
    Correlations::new(geometry, Direction::Forward).packed_len(Micro::integers().columns)
}

/// Packs `[O, words, kh, kw]`.
pub(crate) fn pack(geometry: &Conv2dGeometry, w: &[f32], packed: &mut [f32]) {
    let correlations = Correlations::new(geometry, Direction::Forward);
    super::pack::pack(&correlations, Micro::integers().columns, w, packed);
}

/// The sums `[N, H', W', O]`.
pub(crate) fn forward(
    geometry: &Conv2dGeometry,
    x: &[f32],
    packed: &[f32],
    sums: &mut [f32],
    workspace: &Workspace,
) {
    let micro = Micro::integers();
    if padded::suits(geometry) {
        let rows = padded::pad(geometry, x, workspace);
        let strips = Strips {
            correlations: Correlations::new(geometry, Direction::Forward).merge_row(),
            micro,
            source: &rows,
            row: padded::row(geometry),
            pixel: geometry.in_channels,
            packed,
            finish: Finish::default(),
        };
        return strips::run(&strips, sums);
    }
    padded::with_rows(geometry, x, workspace, |correlations, source| {
        let pass = Pass {
            correlations,
            micro,
            source,
            packed,
            finish: Finish::default(),
        };
        product::run(&pass, sums, workspace);
    });
}
