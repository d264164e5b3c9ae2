//! How a product of rows with packed weights is cut: into tasks for threads, and into blocks for the caches.
//!
//! Everything follows from shapes and the SIMD level, so that results don't depend on the number of threads.

use std::ops::Range;

use super::correlation::Correlations;
use crate::channels_last::micro::Micro;

/// Most pixels of a task: their rows of a block of channels, and the pointers to them, fit into the L2 cache.
const PIXELS: usize = 192;
/// Fewest pixels of a task that is still worth its pointers.
const FEWEST_PIXELS: usize = 48;
/// Floats of packed weights that stay in the L2 cache while a task's blocks of pixels pass.
const WEIGHTS: usize = 80 * 1024;
/// Floats of a panel that are multiplied before a tile is stored: they stream from the L2 cache for every tile.
const PANEL: usize = 16 * 1024;
/// Terms that a tile's sum should have before it is stored; shorter sums spend their time on loads and stores.
const TERMS: usize = 512;
/// Tasks that are enough to keep many threads busy.
const TASKS: usize = 16;
/// Multiplications that are worth handing to a thread.
const WORK: usize = 512 * 1024;

/// The cuts of one call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// Pixels of a task, of the correlation that has the most.
    pub(super) pixels: usize,
    pub(super) pixel_blocks: usize,
    /// Panels of a task.
    pub(super) panels: usize,
    pub(super) panel_blocks: usize,
    /// Channels of a tap that are summed before a tile is stored.
    pub(super) channels: usize,
    /// One position of all images before the next position.
    pub(super) images_inner: bool,
}

impl Plan {
    pub(super) fn new(correlations: &Correlations, images_inner: bool, micro: &Micro) -> Self {
        let correlation = correlations.get(0);
        let total = correlation.grid() * correlations.images;
        let terms = (correlation.taps() * correlations.depth).max(1);
        let all_panels = correlations.columns.div_ceil(micro.columns);
        let widest = WEIGHTS / (terms * micro.columns);
        let mut panels = widest.max(64usize.div_ceil(micro.columns)).min(all_panels);
        // Tiles of interleaved images are cut at their ends, and so are tasks.
        let unit = if images_inner && correlations.images <= PIXELS {
            correlations.images
        } else {
            micro.rows
        };
        let mut pixels = (PIXELS / unit * unit).min(total);
        let tasks = |pixels: usize, panels: usize| {
            correlations.groups * total.div_ceil(pixels) * all_panels.div_ceil(panels)
        };
        let work = |pixels: usize, panels: usize| pixels * terms * panels * micro.columns;
        while tasks(pixels, panels) < TASKS && work(pixels, panels) > WORK {
            if panels > 1 && total <= PIXELS {
                panels = panels.div_ceil(2);
            } else if pixels > FEWEST_PIXELS {
                pixels = pixels.div_ceil(2);
            } else {
                break;
            }
        }
        let units = total.div_ceil(unit);
        let others = correlations.groups * all_panels.div_ceil(panels);
        let fewest = total.div_ceil((PIXELS / unit * unit).max(unit));
        let blocks = even_blocks(units, [fewest, total.div_ceil(pixels)], others);
        let pixels = units.div_ceil(blocks) * unit;
        Self {
            pixels,
            pixel_blocks: total.div_ceil(pixels),
            panels,
            panel_blocks: all_panels.div_ceil(panels),
            channels: channels(correlations.depth, micro),
            images_inner,
        }
    }

    /// Taps that are summed before a tile is stored: several where channels are few, but no more than those of a
    /// kernel's row, `width`, where tiles skip taps at the edges.
    pub(super) fn taps(&self, taps: usize, width: usize, depth: usize, micro: &Micro) -> usize {
        let most = (block_terms(micro) / depth).max(1);
        if self.channels < depth || taps == 0 {
            return 1;
        }
        if self.images_inner && most >= width {
            return width;
        }
        taps.div_ceil(taps.div_ceil(most))
    }

    /// Part `index` of `total` things in parts of `size`.
    pub(super) fn part(index: usize, size: usize, total: usize) -> Range<usize> {
        (index * size).min(total)..((index + 1) * size).min(total)
    }
}

/// About as many blocks of `units` as `blocks`, but not fewer than `fewest`, so that two and four threads have about the same to do; each block is there
/// `others` times.
fn even_blocks(units: usize, [fewest, blocks]: [usize; 2], others: usize) -> usize {
    if blocks * others > 2 * TASKS {
        return blocks;
    }
    // What threads spend, of which some wait for the one that has most to do.
    let spent = |blocks: usize| {
        let each = units.div_ceil(blocks);
        let of = |threads: usize| threads * (blocks * others).div_ceil(threads) * each;
        of(2) + of(4)
    };
    let fewest = (2 * blocks).div_ceil(3).max(fewest);
    (fewest..=blocks + blocks / 2)
        .min_by_key(|&n| spent(n))
        .unwrap_or(blocks)
}

fn block_terms(micro: &Micro) -> usize {
    (PANEL / micro.columns).max(TERMS)
}

/// Channels in even parts of at most a block's terms.
fn channels(depth: usize, micro: &Micro) -> usize {
    depth.div_ceil(depth.div_ceil(block_terms(micro)))
}
