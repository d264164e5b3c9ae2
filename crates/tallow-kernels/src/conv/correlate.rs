//! Runs correlations: cuts outputs into tasks, and hands each to the algorithm that suits.
//!
//! A task takes a block of pixels, counted through the batch so that small images fill blocks
//! together, and some of the rows (the channels that come out) of a group. Tasks write different
//! outputs, and how the work is cut follows from the shape and the SIMD level: results don't
//! depend on threads.
//!
//! Where outputs fall into phases with a correlation each, a task computes all phases of its
//! pixels aside and then interleaves them: each line of the output is written once, whole.

use super::direct;
use super::grid::{Block, Cursor, Pixel};
use super::implicit_gemm;
use super::micro::Kernels;
use super::pack::WeightView;
use super::window::Correlation;
use crate::parallel;
use crate::shared::SharedMut;
use crate::workspace::Workspace;

/// What is computed: `[images, groups * rows, size]`.
///
/// The output pixel `(y, x)` belongs to grid pixel `(y / steps[0], x / steps[1])` and to phase
/// `(y % steps[0], x % steps[1])`.
pub(super) struct Outputs {
    pub(super) images: usize,
    pub(super) groups: usize,
    /// Output channels of a group.
    pub(super) rows: usize,
    pub(super) size: [usize; 2],
    /// Output pixels from one grid pixel to the next.
    pub(super) steps: [usize; 2],
    /// Taps of all phases together.
    pub(super) taps: usize,
}

impl Outputs {
    /// Phases that have pixels.
    fn phases(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.steps[axis].min(self.size[axis]))
    }

    /// Grid pixels of all images.
    fn pixels(&self) -> usize {
        let grid = [0, 1].map(|axis| self.size[axis].div_ceil(self.steps[axis]));
        self.images * grid[0] * grid[1]
    }

    fn cursor(&self, first: usize) -> Cursor {
        let [rows, columns] = [0, 1].map(|axis| self.size[axis].div_ceil(self.steps[axis]));
        Cursor::new(rows, columns, first)
    }

    /// Position of a row's plane in an image.
    fn plane(&self, image: usize, group: usize, row: usize) -> usize {
        let channel = (image * self.groups + group) * self.rows + row;
        channel * self.size[0] * self.size[1]
    }
}

/// How one phase is computed.
pub(super) struct Phase<'a> {
    pub(super) reads: Correlation<'a>,
    pub(super) weights: WeightView<'a>,
}

/// Where a task's sums go: row `r` at pixel `(y, x)` of an image is `values[origin + image *
/// image_stride + r * row_stride + y * line + x]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Destination<'a> {
    pub(super) values: SharedMut<'a>,
    /// Modulo the size of an address: the first pixel's position is not negative, but that of
    /// pixel 0 may be.
    origin: usize,
    image_stride: usize,
    pub(super) row_stride: usize,
    line: usize,
}

impl Destination<'_> {
    /// Position of a pixel in row 0.
    pub(super) fn position(&self, pixel: Pixel) -> usize {
        let at = pixel.image * self.image_stride + pixel.y * self.line + pixel.x;
        self.origin.wrapping_add(at)
    }

    /// Whether the rows of a grid of so many columns follow each other without a gap.
    pub(super) fn is_dense(&self, columns: usize) -> bool {
        self.line == columns
    }
}

/// The part of the outputs that a task computes.
pub(super) struct Part<'b> {
    pub(super) group: usize,
    /// Rows of the group, from the first one up to the end.
    pub(super) rows: (usize, usize),
    pub(super) block: &'b Block,
}

/// Computes all outputs. `phase` gives the phases by number, row by row, or `None` for one of
/// zeros; their correlations must have the same grid.
pub(super) fn correlate<'a>(
    outputs: &Outputs,
    phase: impl Fn([usize; 2]) -> Option<Phase<'a>> + Sync,
    bias: Option<&[f32]>,
    values: &mut [f32],
    workspace: &Workspace,
) {
    if outputs.images == 0 {
        return;
    }
    let kernels = Kernels::current();
    let taps = outputs.taps / outputs.phases().iter().product::<usize>();
    let direct = direct::suits(outputs.rows, outputs.groups, taps);
    let packed = (!direct).then(|| implicit_gemm::pack(outputs, &phase, kernels, workspace));
    let job = Job {
        outputs,
        phase: &phase,
        bias,
        values: SharedMut::new(values),
        kernels,
        packed: packed.as_deref(),
        workspace,
    };
    let cut = Cut::new(outputs, kernels, direct);
    parallel::for_each(
        outputs.groups * cut.blocks * cut.parts,
        1,
        (),
        |task, ()| {
            job.run(&cut, task);
        },
    );
}

/// All phases of the outputs, row by row.
pub(super) fn phases(outputs: &Outputs) -> impl Iterator<Item = [usize; 2]> + use<> {
    let [rows, columns] = outputs.phases();
    (0..rows * columns).map(move |phase| [phase / columns, phase % columns])
}

/// Tasks to aim for, so that any usual number of threads finds about equal shares.
const TASKS: usize = 16;
/// Most pixels of a block.
const BLOCK: usize = 256;
const DIRECT_BLOCK: usize = 2048;
/// Panels of a block, and rows of a part, at least: fewer would repeat more reading of weights,
/// and packing of pixels, than they share out.
const LEAST_PANELS: usize = 4;
const LEAST_ROWS: usize = 96;
/// Most floats of the phases of a task, so that they stay in the L2 cache.
const ASIDE: usize = 48 * 1024;

/// How outputs are cut into tasks.
struct Cut {
    /// Pixels of a block, and blocks of a group.
    block: usize,
    blocks: usize,
    /// Rows of a part, and parts of a group.
    part: usize,
    parts: usize,
}

impl Cut {
    fn new(outputs: &Outputs, kernels: &Kernels, direct: bool) -> Self {
        let phases: usize = outputs.phases().iter().product();
        let pixels = outputs.pixels();
        let rows = outputs.rows.next_multiple_of(kernels.rows);
        let most = if direct { DIRECT_BLOCK } else { BLOCK };
        let most = match phases {
            1 => most,
            _ => most.min(ASIDE / (phases * rows.min(LEAST_ROWS))),
        };
        let least = LEAST_PANELS * kernels.columns;
        // Pixels are shared out first, and rows only where there are too few of them.
        let block = pixels
            .div_ceil(TASKS.div_ceil(outputs.groups))
            .clamp(least, most.max(least))
            .next_multiple_of(kernels.columns);
        let blocks = pixels.div_ceil(block);
        let wanted = TASKS.div_ceil(outputs.groups * blocks);
        let part = match phases {
            1 => rows.div_ceil(wanted).max(LEAST_ROWS),
            _ => LEAST_ROWS,
        };
        let part = part.next_multiple_of(kernels.rows).min(rows);
        Self {
            block,
            blocks,
            part,
            parts: outputs.rows.div_ceil(part),
        }
    }
}

struct Job<'a, F> {
    outputs: &'a Outputs,
    phase: &'a F,
    bias: Option<&'a [f32]>,
    values: SharedMut<'a>,
    kernels: &'static Kernels,
    /// The weights of all phases as [`implicit_gemm`] packs them, where it is the algorithm.
    packed: Option<&'a [f32]>,
    workspace: &'a Workspace,
}

impl<'a, F: Fn([usize; 2]) -> Option<Phase<'a>>> Job<'_, F> {
    fn run(&self, cut: &Cut, task: usize) {
        let outputs = self.outputs;
        let (rest, part) = (task / cut.parts, task % cut.parts);
        let (group, index) = (rest / cut.blocks, rest % cut.blocks);
        let pixels = (
            index * cut.block,
            ((index + 1) * cut.block).min(outputs.pixels()),
        );
        let rows = (part * cut.part, ((part + 1) * cut.part).min(outputs.rows));
        if outputs.steps == [1, 1] {
            let writes = Destination {
                values: self.values,
                origin: outputs.plane(0, group, 0),
                image_stride: outputs.plane(1, 0, 0),
                row_stride: outputs.size[0] * outputs.size[1],
                line: outputs.size[1],
            };
            if let Some(phase) = (self.phase)([0, 0]) {
                self.sum(&phase, 0, (group, rows, pixels), &writes);
            }
        } else {
            self.run_phases(group, rows, pixels);
        }
    }

    /// Computes a part of one phase whose packed weights begin at `packed`.
    fn sum(
        &self,
        phase: &Phase<'_>,
        packed: usize,
        (group, rows, pixels): (usize, (usize, usize), (usize, usize)),
        writes: &Destination<'_>,
    ) {
        let block = &phase.reads.block(pixels.0, pixels.1);
        let part = Part { group, rows, block };
        let channels = group * self.outputs.rows..(group + 1) * self.outputs.rows;
        let bias = self.bias.map(|bias| &bias[channels]);
        if let Some(weights) = self.packed {
            let len = self.outputs.rows * phase.reads.depth();
            let sum = implicit_gemm::Sum {
                reads: &phase.reads,
                weights: &weights[packed + group * len..][..len],
                bias,
                kernels: self.kernels,
                workspace: self.workspace,
            };
            sum.run(&part, writes);
        } else {
            let sum = direct::Sum {
                reads: &phase.reads,
                weights: &phase.weights,
                bias,
                kernels: self.kernels,
                workspace: self.workspace,
            };
            sum.run(&part, writes);
        }
    }

    fn run_phases(&self, group: usize, rows: (usize, usize), pixels: (usize, usize)) {
        let outputs = self.outputs;
        let grid = outputs.pixels() / outputs.images;
        let block = pixels.1 - pixels.0;
        let len = (rows.1 - rows.0) * block;
        let columns = outputs.size[1].div_ceil(outputs.steps[1]);
        let mut aside = self.workspace.take(phases(outputs).count() * len);
        let mut packed = 0;
        for (phase, sums) in phases(outputs).zip(aside.chunks_exact_mut(len)) {
            let Some(phase) = (self.phase)(phase) else {
                sums.fill(0.0);
                continue;
            };
            let writes = Destination {
                values: SharedMut::new(sums),
                origin: 0usize.wrapping_sub(pixels.0 + rows.0 * block),
                image_stride: grid,
                row_stride: block,
                line: columns,
            };
            self.sum(&phase, packed, (group, rows, pixels), &writes);
            packed += outputs.groups * outputs.rows * phase.reads.depth();
        }
        self.interleave(group, rows, pixels, &aside);
    }

    /// Writes the phases of a part, `[phases][rows][pixels]`, to the output.
    fn interleave(
        &self,
        group: usize,
        rows: (usize, usize),
        pixels: (usize, usize),
        aside: &[f32],
    ) {
        let outputs = self.outputs;
        let ([height, width], [step_y, step_x]) = (outputs.size, outputs.steps);
        let [phases_y, phases_x] = outputs.phases();
        let block = pixels.1 - pixels.0;
        let len = (rows.1 - rows.0) * block;
        for row in rows.0..rows.1 {
            let sums = &aside[(row - rows.0) * block..];
            let mut cursor = outputs.cursor(pixels.0);
            cursor.runs(block, false, |lane, pixel, length| {
                let plane = outputs.plane(pixel.image, group, row);
                for phase_y in 0..phases_y.min(height - pixel.y * step_y) {
                    let x = pixel.x * step_x;
                    let line = plane + (pixel.y * step_y + phase_y) * width + x;
                    // SAFETY: this task alone writes these rows of these pixels.
                    let to = unsafe { self.values.slice(line, (length * step_x).min(width - x)) };
                    let phase = |x: usize| &sums[(phase_y * phases_x + x) * len + lane..][..length];
                    interleave(step_x, phases_x, phase, to);
                }
            });
        }
    }
}

/// `to[i * step + phase] = sums(phase)[i]`
fn interleave<'s>(step: usize, phases: usize, sums: impl Fn(usize) -> &'s [f32], to: &mut [f32]) {
    if (step, phases) == (2, 2) {
        let (even, odd) = (sums(0), sums(1));
        let (pairs, last) = to.as_chunks_mut::<2>();
        for (pair, values) in pairs.iter_mut().zip(even.iter().zip(odd)) {
            *pair = [*values.0, *values.1];
        }
        if let [last] = last {
            *last = even[pairs.len()];
        }
        return;
    }
    for phase in 0..phases.min(to.len()) {
        let to = to[phase..].iter_mut().step_by(step);
        to.zip(sums(phase)).for_each(|(to, sum)| *to = *sum);
    }
}
