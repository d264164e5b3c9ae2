//! F(2x2, 3x3) of words of two whole numbers, to 32-bit sums: see `channels_last::int8`.
//!
//! Lengths and geometry were checked by the caller; geometries count words, not channels.

use super::Finish;
use super::correlate::{Correlation, Output};
use super::forward_tilings;
use super::pack::{Filters, Packing};
use crate::channels_last::int8::Sink;
use crate::conv::Conv2dGeometry;
use crate::workspace::Workspace;

/// What sums are to be multiplied with: transformed weights are twice as large in each dimension.
pub(crate) const FACTOR: f32 = 0.25;

pub(crate) fn packed_len(geometry: &Conv2dGeometry) -> usize {
    Packing::integers(geometry).len()
}

/// Packs `[O, words, 3, 3]`.
pub(crate) fn pack(geometry: &Conv2dGeometry, w: &[f32], packed: &mut [f32]) {
    Packing::integers(geometry).pack(w, packed);
}

/// Brings the sums, divided by [`FACTOR`], to `sink`.
pub(crate) fn forward(
    geometry: &Conv2dGeometry,
    x: &[f32],
    packed: &[f32],
    sink: &Sink<'_>,
    workspace: &Workspace,
) {
    let packing = Packing::integers(geometry);
    let [inputs, outputs] = forward_tilings(geometry, &packing.algorithm.sizes);
    let correlation = Correlation {
        packing,
        inputs,
        outputs,
        source: x,
        filters: Filters::Packed(packed),
        finish: Finish::default(),
    };
    correlation.run_to(Output::Sink(sink), workspace);
}
