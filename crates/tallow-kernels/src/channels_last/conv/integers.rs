//! The direct convolution of words of two or four whole numbers, to 32-bit sums: see `channels_last::int8`.
//!
//! Lengths and geometry were checked by the caller; geometries count words, not channels. `micro` are the kernels for what
//! words hold.

use super::Direction;
use super::Finish;
use super::correlation::Correlations;
use super::padded;
use super::product::{self, Pass};
use super::rows::Source;
use super::strips::{self, Strips};
use crate::channels_last::int8::Sink;
use crate::channels_last::micro::Micro;
use crate::conv::Conv2dGeometry;
use crate::workspace::Workspace;

pub(crate) fn packed_len(geometry: &Conv2dGeometry, micro: &Micro) -> usize {
    Correlations::new(geometry, Direction::Forward).packed_len(micro.columns)
}

/// Packs `[O, words, kh, kw]`.
pub(crate) fn pack(geometry: &Conv2dGeometry, micro: &Micro, w: &[f32], packed: &mut [f32]) {
    let correlations = Correlations::new(geometry, Direction::Forward);
    super::pack::pack(&correlations, micro.columns, w, packed);
}

/// Brings the sums to `sink`.
pub(crate) fn forward(
    geometry: &Conv2dGeometry,
    micro: &'static Micro,
    x: &[f32],
    packed: &[f32],
    sink: &Sink<'_>,
    workspace: &Workspace,
) {
    let finish = Finish::default();
    let correlations = Correlations::new(geometry, Direction::Forward);
    if padded::suits(geometry) {
        let rows = padded::pad(geometry, x, workspace);
        let strips = Strips {
            correlations: correlations.merge_row(),
            micro,
            source: &rows,
            row: padded::row(geometry),
            pixel: geometry.in_channels,
            packed,
            finish,
        };
        return strips::run_to(&strips, sink, workspace);
    }
    let pass = Pass {
        correlations,
        micro,
        source: Source::whole(x, geometry.in_size, geometry.in_channels),
        packed,
        finish,
    };
    product::run_to(&pass, sink, workspace);
}
