//! Correlations with filters as they are: a task transforms some channels of its panel, multiplies all tiles with them,
//! and goes on. What is transformed stays in its core's cache; packed, it would go out to memory and come back.

use super::correlate::{Correlation, Output, Points};
use super::pack::LINE;
use super::products::Product;
use super::weights::PACK_ROWS;
use crate::parallel;
use crate::workspace::Workspace;

/// Most floats of transformed filters, of a task's products, and of the points of all tiles.
const FILTERS: usize = 40 * 1024;
const PRODUCTS: usize = 64 * 1024;
const POINTS: usize = 2 * 1024 * 1024;

impl Correlation<'_> {
    /// Finds the points of many tiles, then a task a panel multiplies them.
    pub(super) fn run_unpacked(
        &self,
        w: &[f32],
        zeros: &[f32],
        out: Output<'_>,
        workspace: &Workspace,
    ) {
        let (all, planes) = (self.inputs.count(), self.sizes().point_planes());
        let most = (PRODUCTS / (planes * self.packing.columns)).min(POINTS / (planes * self.row()));
        let tiles = all.div_ceil(all.div_ceil(most.max(1)));
        let mut values = workspace.take(self.points_len(tiles));
        for first in (0..all).step_by(tiles) {
            let points = self.points(tiles, first, &mut values);
            let block = first..all.min(first + tiles);
            self.transform_all(block.clone(), points, zeros);
            parallel::for_each(self.packing.panels(), 1, (), |panel, ()| {
                self.multiply_unpacked(w, panel, points, block.clone(), out, workspace);
            });
        }
    }

    /// Multiplies a block of tiles with a panel, and transforms the products to outputs.
    fn multiply_unpacked(
        &self,
        w: &[f32],
        panel: usize,
        points: Points,
        block: std::ops::Range<usize>,
        out: Output<'_>,
        workspace: &Workspace,
    ) {
        let (packing, sizes) = (&self.packing, self.sizes());
        let columns = packing.columns;
        let chunk = (FILTERS / (sizes.weight_planes() * columns)).next_multiple_of(PACK_ROWS);
        let chunk = chunk.min(packing.depth.next_multiple_of(PACK_ROWS));
        let (plane, filters_plane) = (block.len() * columns + LINE, chunk * columns + LINE);
        let mut products = workspace.take(sizes.point_planes() * plane);
        let mut filters = workspace.take(sizes.weight_planes() * filters_plane);
        for first in (0..packing.depth).step_by(chunk) {
            let depth = chunk.min(packing.depth - first);
            for row in (0..depth).step_by(PACK_ROWS) {
                let rows = first + row..first + depth.min(row + PACK_ROWS);
                let out = filters[row * columns..].as_mut_ptr();
                // SAFETY: the filters hold a chunk of rows for every point, and are this task's own.
                unsafe { packing.pack_rows(w, panel, rows, out, filters_plane) };
            }
            let len = (block.len() - 1) * points.row + depth;
            for weight in 0..sizes.weight_planes() {
                for point in sizes.sharing(weight) {
                    let args = Product {
                        rows: block.len(),
                        depth,
                        panels: 1,
                        a: points.values.at(point * points.plane + first, len),
                        a_stride: points.row,
                        b: filters[weight * filters_plane..].as_ptr(),
                        b_panel: 0,
                        ahead: filters_plane,
                        out: products[point * plane..][..plane].as_mut_ptr(),
                        out_stride: columns,
                        accumulate: first > 0,
                    };
                    // SAFETY: the product is of a level of this CPU; the operands hold all rows and columns, and nobody
                    // writes to points now.
                    unsafe { (packing.product)(&args) };
                }
            }
        }
        let column = panel * columns;
        let channels = column..packing.channels.min(column + columns);
        for (index, tile) in block.enumerate() {
            let products = (&products[index * columns..], plane);
            self.store(tile, products, channels.clone(), out);
        }
    }
}
