//! Forward and data gradient: tiles to points, products, points to tiles.
//!
//! Where the points of a dozen tiles stay in a core's cache, each task takes a block of tiles through all three steps and
//! shares nothing but the weights. With more channels, or fewer tiles, the points of many tiles are found first; then
//! tasks take blocks of tiles and channels, so that the weights are read once or a few times only.

use super::Finish;
use super::pack::{Filters, LINE, Packing};
use super::products::Product;
use super::tiles::{MAX_LANES, ToOutputs, ToPoints};
use super::tiling::{Inside, Tiling};
use super::transform::Sizes;
use crate::channels_last::int8::{Sink, Sums};
use crate::parallel;
use crate::shared::SharedMut;
use crate::workspace::Workspace;

/// Floats of points that a task keeps in its core's second-level cache.
const PRIVATE_POINTS: usize = 84 * 1024;

/// Floats of packed weights that tasks which keep points to themselves read, each all of them, from the cache of all cores.
const PRIVATE_WEIGHTS: usize = 3 * 512 * 1024;

/// Fewest rows that meet the same weights in such a task, in the mean over points.
const PRIVATE_ROWS: usize = 9;

/// Most tiles of such a task.
const PRIVATE_TILES: usize = 24;

/// Below this number of tasks, there are to be as many for each of two or four threads.
const FEW_BLOCKS: usize = 24;

/// Floats of products that a task keeps in its core's second-level cache.
const PRIVATE_PRODUCTS: usize = 96 * 1024;

/// Floats of points that tasks share, in the cache of all cores.
const SHARED_POINTS: usize = 2 * 1024 * 1024;

/// Columns that a task multiplies with at a time, at most.
const GROUP: usize = 64;

/// A correlation of images with packed 3x3 filters, or the transpose of one.
pub(super) struct Correlation<'a> {
    pub(super) packing: Packing,
    /// Tiles of `source`.
    pub(super) inputs: Tiling,
    /// The same tiles, of what is written.
    pub(super) outputs: Tiling,
    pub(super) source: &'a [f32],
    pub(super) filters: Filters<'a>,
    pub(super) finish: Finish<'a>,
}

/// Points of tiles `first..first + tiles`, `[point][tile][row]`.
#[derive(Clone, Copy)]
pub(super) struct Points<'a> {
    pub(super) first: usize,
    /// Floats of a tile at a point.
    pub(super) row: usize,
    /// Floats from one point to the next.
    pub(super) plane: usize,
    pub(super) values: SharedMut<'a>,
}

/// Where tasks bring the outputs of tiles.
#[derive(Clone, Copy)]
pub(super) enum Output<'a> {
    /// Each writes to its own part of `[N, H', W', O]`.
    Shared(SharedMut<'a>),
    /// Whole numbers are finished before they are stored.
    Sink(&'a Sink<'a>),
}

/// How the work is cut.
struct Plan {
    /// Whether tasks keep points to themselves.
    private: bool,
    /// Tiles whose points are found together.
    points: usize,
    /// Tiles that are multiplied together.
    tiles: usize,
    /// Panels that are multiplied together.
    panels: usize,
}

impl Correlation<'_> {
    pub(super) fn run(&self, out: &mut [f32], workspace: &Workspace) {
        if !out.is_empty() {
            self.run_to(Output::Shared(SharedMut::new(out)), workspace);
        }
    }

    /// As [`Correlation::run`], to wherever tasks bring their outputs.
    pub(super) fn run_to(&self, out: Output<'_>, workspace: &Workspace) {
        let mut zeros = workspace.take(self.packing.depth);
        zeros.fill(0.0);
        let packed = match self.filters {
            Filters::Packed(packed) => packed,
            Filters::Raw(w) => return self.run_unpacked(w, &zeros, out, workspace),
        };
        let plan = self.plan();
        if plan.private {
            self.run_private(&plan, packed, &zeros, out, workspace);
        } else {
            self.run_shared(&plan, packed, &zeros, out, workspace);
        }
    }

    fn plan(&self) -> Plan {
        let tiles = self.inputs.count();
        let tile_points = self.sizes().point_planes() * self.row();
        let columns = self.packing.columns;
        let sizes = self.sizes();
        let mut block = (PRIVATE_POINTS / tile_points).min(PRIVATE_TILES);
        if block >= 6 {
            block -= block % 6;
        }
        let rows = block * sizes.point_planes() / sizes.weight_planes();
        let weights_stay = self.packing.len() <= PRIVATE_WEIGHTS;
        if rows >= PRIVATE_ROWS && weights_stay && tiles >= 8 * block {
            let mut blocks = tiles.div_ceil(block);
            if blocks < FEW_BLOCKS {
                blocks = blocks.next_multiple_of(4);
            }
            let block = tiles.div_ceil(blocks);
            return Plan {
                private: true,
                points: block,
                tiles: block,
                panels: (GROUP / 2 / columns).max(1),
            };
        }
        let mut panels = (GROUP / columns).max(1);
        let block = PRIVATE_PRODUCTS / (self.sizes().point_planes() * GROUP);
        let blocks = tiles.div_ceil(block);
        while panels > 1 && self.packing.panels().div_ceil(panels) * blocks < 16 {
            panels /= 2;
        }
        let points = (SHARED_POINTS / tile_points / block).max(1) * block;
        Plan {
            private: false,
            points: points.min(tiles),
            tiles: tiles.div_ceil(blocks),
            panels,
        }
    }

    /// Every task takes a block of tiles from inputs to outputs.
    fn run_private(
        &self,
        plan: &Plan,
        packed: &[f32],
        zeros: &[f32],
        out: Output<'_>,
        workspace: &Workspace,
    ) {
        let tiles = self.inputs.count();
        let groups = self.packing.panels().div_ceil(plan.panels);
        parallel::for_each(tiles.div_ceil(plan.tiles), 1, (), |block, ()| {
            let first = block * plan.tiles;
            let block = first..tiles.min(first + plan.tiles);
            let mut values = workspace.take(self.points_len(plan.points));
            let points = self.points(plan.points, first, &mut values);
            for tile in block.clone() {
                self.transform(tile, points, zeros);
            }
            for group in 0..groups {
                self.multiply(plan, packed, points, block.clone(), group, out, workspace);
            }
        });
    }

    /// Tasks find the points of many tiles together, then take blocks of tiles and channels.
    fn run_shared(
        &self,
        plan: &Plan,
        packed: &[f32],
        zeros: &[f32],
        out: Output<'_>,
        workspace: &Workspace,
    ) {
        let tiles = self.inputs.count();
        let groups = self.packing.panels().div_ceil(plan.panels);
        let mut values = workspace.take(self.points_len(plan.points));
        for first in (0..tiles).step_by(plan.points) {
            let points = self.points(plan.points, first, &mut values);
            let end = tiles.min(first + plan.points);
            self.transform_all(first..end, points, zeros);
            let blocks = (end - first).div_ceil(plan.tiles);
            parallel::for_each(groups * blocks, 1, (), |item, ()| {
                let (group, block) = (item / blocks, first + item % blocks * plan.tiles);
                let block = block..end.min(block + plan.tiles);
                self.multiply(plan, packed, points, block, group, out, workspace);
            });
        }
    }

    pub(super) fn sizes(&self) -> &'static Sizes {
        &self.packing.algorithm.sizes
    }

    /// Floats of a tile at a point: the channels, rounded up to whole registers.
    pub(super) fn row(&self) -> usize {
        self.packing.depth.next_multiple_of(MAX_LANES)
    }

    pub(super) fn points_len(&self, tiles: usize) -> usize {
        self.sizes().point_planes() * (tiles * self.row() + LINE)
    }

    pub(super) fn points<'a>(
        &self,
        tiles: usize,
        first: usize,
        values: &'a mut [f32],
    ) -> Points<'a> {
        Points {
            first,
            row: self.row(),
            plane: tiles * self.row() + LINE,
            values: SharedMut::new(values),
        }
    }

    /// Finds the points of tiles, in tasks.
    pub(super) fn transform_all(
        &self,
        tiles: std::ops::Range<usize>,
        points: Points,
        zeros: &[f32],
    ) {
        let grain = parallel::grain(self.sizes().point_planes() * self.row());
        parallel::for_each(tiles.len(), grain, tiles, |_, range| {
            for tile in range {
                self.transform(tile, points, zeros);
            }
        });
    }

    /// Finds the points of a tile.
    pub(super) fn transform(&self, tile: usize, points: Points, zeros: &[f32]) {
        let sizes = self.sizes();
        let len = (sizes.point_planes() - 1) * points.plane + points.row;
        let args = ToPoints {
            pixels: &self.inputs.pixels(tile, sizes.inputs, self.source, zeros),
            first: 0,
            channels: self.packing.depth,
            out: points.values.at((tile - points.first) * points.row, len),
            plane: points.plane,
        };
        // SAFETY: the algorithm is of a level of this CPU, pixels and points hold all channels, and no two tiles share
        // points.
        unsafe { (self.packing.algorithm.input)(&args) };
    }

    /// Multiplies a block of tiles with a group of panels, and transforms the products to outputs.
    fn multiply(
        &self,
        plan: &Plan,
        packed: &[f32],
        points: Points,
        block: std::ops::Range<usize>,
        group: usize,
        out: Output<'_>,
        workspace: &Workspace,
    ) {
        let packing = &self.packing;
        let first = group * plan.panels;
        let panels = plan.panels.min(packing.panels() - first);
        let row = panels * packing.columns;
        let plane = block.len() * row + LINE;
        let sizes = self.sizes();
        let mut products = workspace.take(sizes.point_planes() * plane);
        let packed = &packed[first * packing.panel()..][..panels * packing.panel()];
        let from = (block.start - points.first) * points.row;
        let len = (block.len() - 1) * points.row + packing.depth;
        for weight in 0..sizes.weight_planes() {
            for point in sizes.sharing(weight) {
                let args = Product {
                    rows: block.len(),
                    depth: packing.depth,
                    panels,
                    a: points.values.at(point * points.plane + from, len),
                    a_stride: points.row,
                    b: packed[weight * packing.plane()..].as_ptr(),
                    b_panel: packing.panel(),
                    ahead: packing.plane(),
                    out: products[point * plane..][..plane].as_mut_ptr(),
                    out_stride: row,
                    accumulate: false,
                };
                // SAFETY: the product is of a level of this CPU; the operands hold all rows and columns, and nobody writes
                // to points now.
                unsafe { (packing.product)(&args) };
            }
        }
        for (index, tile) in block.enumerate() {
            let column = first * packing.columns;
            let products = (&products[index * row..], plane);
            self.store(
                tile,
                products,
                column..packing.channels.min(column + row),
                out,
            );
        }
    }

    /// Transforms a tile of products to outputs.
    pub(super) fn store(
        &self,
        tile: usize,
        (products, plane): (&[f32], usize),
        channels: std::ops::Range<usize>,
        out: Output<'_>,
    ) {
        let tile = self.outputs.inside(tile, self.sizes().outputs);
        match out {
            Output::Shared(out) => self.store_shared(&tile, (products, plane), channels, out),
            Output::Sink(sink) => self.store_sums(&tile, (products, plane), channels, sink),
        }
    }

    /// Sums of whole numbers: nothing is added to them, nor are they clamped, before they are finished.
    fn store_sums(
        &self,
        tile: &Inside,
        (products, plane): (&[f32], usize),
        channels: std::ops::Range<usize>,
        sink: &Sink<'_>,
    ) {
        const OUTPUTS: usize = 2;
        let mut sums = [0.0; OUTPUTS * OUTPUTS * GROUP];
        let count = channels.len();
        let args = ToOutputs {
            points: products.as_ptr(),
            plane,
            channels: count,
            out: sums[..OUTPUTS * OUTPUTS * count].as_mut_ptr(),
            residual: std::ptr::null(),
            bias: std::ptr::null(),
            clamp: [f32::NEG_INFINITY, f32::INFINITY],
            strides: [OUTPUTS * count, count],
            first: tile.first,
            end: tile.end,
        };
        // SAFETY: the algorithm is of a level of this CPU and has tiles of two by two; products hold whole registers, and
        // there is room for the channels of all outputs.
        unsafe { (self.packing.algorithm.output)(&args) };
        let [rows, columns] = [0, 1].map(|axis| tile.end[axis] - tile.first[axis]);
        for row in 0..rows {
            sink.store(Sums {
                pixels: [tile.pixel + row * self.outputs.width(), columns],
                channels: [channels.start, count],
                values: &sums[row * OUTPUTS * count..],
                stride: count,
            });
        }
    }

    fn store_shared(
        &self,
        tile: &Inside,
        (products, plane): (&[f32], usize),
        channels: std::ops::Range<usize>,
        out: SharedMut,
    ) {
        let [rows, columns] = [0, 1].map(|axis| tile.end[axis] - tile.first[axis]);
        let width = self.outputs.width();
        let pixel = self.packing.channels;
        let start = tile.pixel * pixel + channels.start;
        let len = ((rows - 1) * width + columns - 1) * pixel + channels.len();
        let null = std::ptr::null();
        let args = ToOutputs {
            points: products.as_ptr(),
            plane,
            channels: channels.len(),
            out: out.at(start, len),
            residual: self
                .finish
                .residual
                .map_or(null, |values| values[start..][..len].as_ptr()),
            bias: self
                .finish
                .bias
                .map_or(null, |values| values[channels.clone()].as_ptr()),
            clamp: self
                .finish
                .clamp
                .unwrap_or([f32::NEG_INFINITY, f32::INFINITY]),
            strides: [width * pixel, pixel],
            first: tile.first,
            end: tile.end,
        };
        // SAFETY: the algorithm is of a level of this CPU; products hold whole registers, the outputs were just checked, and
        // no two tasks share any.
        unsafe { (self.packing.algorithm.output)(&args) };
    }
}
