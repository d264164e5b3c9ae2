//! Weights in the order that the micro-kernels read: `[correlation][group][panel][tap][channel][column]`.

use super::correlation::{Correlation, Correlations, WeightStrides};
use crate::channels_last::micro::Micro;
use crate::parallel;
use crate::shared::SharedMut;

/// Packs all weights of a direction. Columns that don't exist are zero.
pub(super) fn pack(correlations: &Correlations, w: &[f32], packed: &mut [f32]) {
    let panel = Micro::current().columns;
    let strides = correlations.weight_strides();
    let panels = correlations.columns.div_ceil(panel);
    let items = correlations.groups * panels;
    let packed = SharedMut::new(packed);
    for index in 0..correlations.count() {
        let correlation = correlations.get(index);
        let len = correlation.taps() * correlations.depth * panel;
        let start = correlation.taps_before * correlations.depth * panel * items;
        parallel::for_each(items, 1, (), |item, ()| {
            let (group, first) = (item / panels, item % panels * panel);
            let columns = panel.min(correlations.columns - first);
            // SAFETY: items, and correlations, don't overlap.
            let to = unsafe { packed.slice(start + item * len, len) };
            let from = &w[group * strides.group + first * strides.column..];
            pack_panel(&correlation, &strides, from, columns, panel, to);
        });
    }
}

fn pack_panel(
    correlation: &Correlation,
    strides: &WeightStrides,
    from: &[f32],
    columns: usize,
    panel: usize,
    to: &mut [f32],
) {
    let taps = correlation.taps();
    if taps == 0 {
        return;
    }
    let depth = to.len() / panel / taps;
    for (tap, to) in to.chunks_exact_mut(depth * panel).enumerate() {
        let index = correlation.kernel_index(tap, strides.kernel[1]);
        for (channel, to) in to.chunks_exact_mut(panel).enumerate() {
            let start = channel * strides.channel + index;
            for (column, to) in to[..columns].iter_mut().enumerate() {
                *to = from[start + column * strides.column];
            }
            to[columns..].fill(0.0);
        }
    }
}
