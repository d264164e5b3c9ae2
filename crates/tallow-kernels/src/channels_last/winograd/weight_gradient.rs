//! Weight gradient: points of inputs and of gradients, multiplied and summed over tiles, then transformed to filters.
//!
//! The points of many tiles are found first; then each task sums a block of filters and channels at all points. Sums are
//! added up in chunks, each from zero, which keeps their error small.

use super::Tile;
use super::kernels::Kernels;
use super::pack::LINE;
use super::products::Reduction;
use super::tiles::{MAX_LANES, ToPoints};
use super::tiling::Tiling;
use super::weights::{TAPS, Unpack};
use crate::parallel;
use crate::shared::SharedMut;
use crate::workspace::Workspace;

/// Floats of points that tasks share, in the cache of all cores.
const SHARED_POINTS: usize = 4 * 1024 * 1024;

/// Tiles that are added up from zero before they meet the rest of the sum.
const CHUNK: usize = 96;

/// Filters and channels of a task.
const BLOCK: [usize; 2] = [32, 64];

/// The gradient with respect to 3x3 filters.
pub(super) struct WeightGradient<'a> {
    pub(super) tile: Tile,
    /// Tiles of `x`.
    pub(super) inputs: Tiling,
    /// The same tiles, of `dy`.
    pub(super) outputs: Tiling,
    pub(super) x: &'a [f32],
    pub(super) dy: &'a [f32],
    pub(super) channels: usize,
    pub(super) filters: usize,
}

/// Points of some tiles, `[point][tile][row]`.
#[derive(Clone, Copy)]
struct Points<'a> {
    row: usize,
    plane: usize,
    values: SharedMut<'a>,
}

impl<'a> Points<'a> {
    fn new(tiles: usize, row: usize, values: &'a mut [f32]) -> Self {
        let plane = tiles * row + LINE;
        let values = SharedMut::new(values);
        Self { row, plane, values }
    }
}

/// The part of the sums that a task works on.
struct Part {
    filters: std::ops::Range<usize>,
    channels: std::ops::Range<usize>,
    /// Panels that cover the channels.
    panels: usize,
}

impl WeightGradient<'_> {
    pub(super) fn run(&self, dw: &mut [f32], workspace: &Workspace) {
        let tiles = self.inputs.count();
        if tiles == 0 {
            dw.fill(0.0);
            return;
        }
        let points = self.tile.points();
        let (x_row, dy_row) = self.rows();
        let most = (SHARED_POINTS / (points * (x_row + dy_row))).max(1);
        // Rounds of equal length, of whole chunks where there are several.
        let rounds = tiles.div_ceil(most);
        let round = if rounds > 1 {
            tiles.div_ceil(rounds).next_multiple_of(CHUNK)
        } else {
            tiles
        };
        let several = round < tiles;
        let mut x_values = workspace.take(points * (round * x_row + LINE));
        let mut dy_values = workspace.take(points * (round * dy_row + LINE));
        let parts = self.parts();
        let part_len = points * self.sums_plane();
        let mut sums = workspace.take(if several { parts * part_len } else { 0 });
        let (sums, dw) = (SharedMut::new(&mut sums), SharedMut::new(dw));
        for first in (0..tiles).step_by(round) {
            let x = Points::new(round, x_row, &mut x_values);
            let dy = Points::new(round, dy_row, &mut dy_values);
            let end = tiles.min(first + round);
            self.transform(first..end, x, dy, workspace);
            parallel::for_each(parts, 1, (), |index, ()| {
                let part = self.part(index);
                if several {
                    // SAFETY: every part has its own sums.
                    let sums = unsafe { sums.slice(index * part_len, part_len) };
                    self.sum(&part, (x, dy), end - first, first > 0, sums);
                    if end == tiles {
                        self.store(&part, sums, dw);
                    }
                } else {
                    let mut sums = workspace.take(part_len);
                    self.sum(&part, (x, dy), tiles, false, &mut sums);
                    self.store(&part, &sums, dw);
                }
            });
        }
    }

    /// Floats of a tile at a point, of inputs and of gradients; odd numbers of lines, which fall into all cache sets.
    fn rows(&self) -> (usize, usize) {
        let panel = Kernels::current().columns.max(MAX_LANES);
        let odd = |row: usize| {
            row + if (row / LINE).is_multiple_of(2) {
                LINE
            } else {
                0
            }
        };
        (
            odd(self.channels.next_multiple_of(panel)),
            odd(self.filters.next_multiple_of(MAX_LANES)),
        )
    }

    /// Floats of a part's sums at a point.
    fn sums_plane(&self) -> usize {
        BLOCK[0] * BLOCK[1] + LINE
    }

    fn parts(&self) -> usize {
        self.filters.div_ceil(BLOCK[0]) * self.channels.div_ceil(BLOCK[1])
    }

    fn part(&self, index: usize) -> Part {
        let across = self.channels.div_ceil(BLOCK[1]);
        let (filter, channel) = (index / across * BLOCK[0], index % across * BLOCK[1]);
        let channels = channel..self.channels.min(channel + BLOCK[1]);
        Part {
            filters: filter..self.filters.min(filter + BLOCK[0]),
            panels: channels.len().div_ceil(Kernels::current().columns),
            channels,
        }
    }

    /// Finds the points of inputs and gradients.
    fn transform(
        &self,
        tiles: std::ops::Range<usize>,
        x: Points,
        dy: Points,
        workspace: &Workspace,
    ) {
        let points = self.tile.points();
        let mut zeros = workspace.take(self.channels + self.filters);
        zeros.fill(0.0);
        let (x_zeros, dy_zeros) = zeros.split_at(self.channels);
        let kernels = Kernels::current().tile(self.tile);
        let first = tiles.start;
        let grain = parallel::grain(points * (x.row + dy.row));
        parallel::for_each(tiles.len(), grain, tiles, |_, tiles| {
            for tile in tiles {
                let at = |points: Points| {
                    let len = (self.tile.points() - 1) * points.plane + points.row;
                    (
                        points.values.at((tile - first) * points.row, len),
                        points.plane,
                    )
                };
                let extent = self.tile.extent();
                let (out, plane) = at(x);
                let inputs = ToPoints {
                    pixels: self.inputs.pixels(tile, extent, self.x, x_zeros),
                    channels: self.channels,
                    out,
                    plane,
                };
                let extent = self.tile.outputs();
                let (out, plane) = at(dy);
                let gradients = ToPoints {
                    pixels: self.outputs.pixels(tile, extent, self.dy, dy_zeros),
                    channels: self.filters,
                    out,
                    plane,
                };
                // SAFETY: `current` is a level of this CPU, pixels and points hold all channels, and no two tiles
                // share points.
                unsafe {
                    (kernels.input)(&inputs);
                    (kernels.gradient)(&gradients);
                }
            }
        });
    }

    /// Adds up a part's products over tiles.
    fn sum(
        &self,
        part: &Part,
        (x, dy): (Points, Points),
        tiles: usize,
        add: bool,
        sums: &mut [f32],
    ) {
        let kernels = Kernels::current();
        let row = part.panels * kernels.columns;
        for point in 0..self.tile.points() {
            let out = &mut sums[point * self.sums_plane()..][..part.filters.len() * row];
            for first in (0..tiles).step_by(CHUNK) {
                let depth = CHUNK.min(tiles - first);
                let at = |points: Points, column: usize, columns: usize| {
                    let start = point * points.plane + first * points.row + column;
                    points.values.at(start, (depth - 1) * points.row + columns)
                };
                let args = Reduction {
                    depth,
                    rows: part.filters.len(),
                    panels: part.panels,
                    a: at(dy, part.filters.start, part.filters.len()),
                    a_stride: dy.row,
                    b: at(x, part.channels.start, row),
                    b_stride: x.row,
                    out: out.as_mut_ptr(),
                    out_stride: row,
                    accumulate: add || first > 0,
                };
                // SAFETY: `current` is a level of this CPU; the operands hold all rows and columns, and nobody writes
                // to points now.
                unsafe { (kernels.reduction)(&args) };
            }
        }
    }

    /// Transforms a part's sums to gradients of its filters.
    fn store(&self, part: &Part, sums: &[f32], dw: SharedMut) {
        let kernels = Kernels::current();
        let row = part.panels * kernels.columns;
        for (index, filter) in part.filters.clone().enumerate() {
            let start = (filter * self.channels + part.channels.start) * TAPS;
            let args = Unpack {
                sums: sums[index * row..].as_ptr(),
                plane: self.sums_plane(),
                filters: part.channels.len(),
                out: dw.at(start, part.channels.len() * TAPS),
            };
            // SAFETY: `current` is a level of this CPU; sums hold whole registers, and no two parts share gradients.
            unsafe { (kernels.tile(self.tile).unpack)(&args) };
        }
    }
}
