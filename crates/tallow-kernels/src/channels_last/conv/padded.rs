//! Images of few channels, copied into rows with their padding.
//!
//! A tap of three channels is too short for a loop. With the padding in place the taps of a kernel's row follow each
//! other in memory, so that they are one tap of `kw * C` channels.

use super::Direction;
use super::correlation::Correlations;
use super::interleaved;
use super::rows::Source;
use crate::conv::Conv2dGeometry;
use crate::parallel;
use crate::workspace::{Scratch, Workspace};

/// Channels from which a tap is long enough by itself.
const ENOUGH_CHANNELS: usize = 16;

/// Calls `f` with the forward correlations and the rows that they read, which are those of `x` or copies.
pub(super) fn with_rows(
    geometry: &Conv2dGeometry,
    x: &[f32],
    workspace: &Workspace,
    f: impl FnOnce(Correlations, Source<'_>),
) {
    let correlations = Correlations::new(geometry, Direction::Forward);
    if !suits(geometry) {
        let f = |source: Source<'_>| f(correlations, source);
        return interleaved::with_rows(&correlations, x, geometry.in_size, workspace, f);
    }
    let rows = pad(geometry, x, workspace);
    let [height, width] = geometry.in_size;
    let padded_size = [height, width + 2 * geometry.padding[1]];
    f(
        correlations.merge_row(),
        Source::whole(&rows, padded_size, geometry.in_channels),
    );
}

/// Floats of a padded row.
pub(super) fn row(geometry: &Conv2dGeometry) -> usize {
    (geometry.in_size[1] + 2 * geometry.padding[1]) * geometry.in_channels
}

/// Rows of all images, with their padding.
pub(super) fn pad<'w>(
    geometry: &Conv2dGeometry,
    x: &[f32],
    workspace: &'w Workspace,
) -> Scratch<'w, f32> {
    let channels = geometry.in_channels;
    let (row, padding) = (
        geometry.in_size[1] * channels,
        geometry.padding[1] * channels,
    );
    let padded_row = self::row(geometry);
    let rows = geometry.batch * geometry.in_size[0];
    let mut scratch = workspace.take(rows * padded_row);
    let operands = (
        parallel::rows(&mut scratch[..], padded_row),
        parallel::rows(x, row),
    );
    let grain = parallel::grain(padded_row);
    parallel::for_each(rows, grain, operands, |_, (to, from)| {
        let to = to.data.chunks_exact_mut(padded_row);
        for (to, from) in to.zip(from.data.chunks_exact(row)) {
            to[..padding].fill(0.0);
            to[padding..padding + row].copy_from_slice(from);
            to[padding + row..].fill(0.0);
        }
    });
    scratch
}

/// Where rows are worth a copy: few channels, neighbouring taps, and not much more padding than pixels.
pub(super) fn suits(geometry: &Conv2dGeometry) -> bool {
    geometry.groups == 1
        && geometry.in_channels < ENOUGH_CHANNELS
        && geometry.kernel[1] > 1
        && geometry.dilation[1] == 1
        && geometry.padding[1] < geometry.kernel[1]
        && geometry.batch > 0
}
