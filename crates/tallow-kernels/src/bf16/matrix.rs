//! Matrix products of operands that are rounded to bfloat16, as `torch.matmul` under `torch.autocast`, less the rounding of
//! its result.
//!
//! Where the CPU multiplies pairs, both operands are copied: `a` as rows of pairs, `b` as panels of them. A task takes a
//! block of rows and one panel, and sums aside, part of the terms by part, so that `c` may have any strides. Elsewhere
//! rounded copies go through the kernels of [`gemm`](crate::gemm).

use super::{pair, pair_neighbours, pair_two_rows, pair_with_zeros, round};
use crate::channels_last::micro::{MAX_ROWS, Micro, Product};
use crate::error::Result;
use crate::gemm::{self, BatchSteps, GemmArgs};
use crate::parallel;
use crate::shared::SharedMut;
use crate::simd::dispatch;
use crate::workspace::Workspace;

/// Rows of a task, in tiles of the micro-kernel.
const ROWS: usize = 16 * MAX_ROWS;
/// Pairs that are summed in one go: a panel of them stays in the L2 cache while the tiles of a task pass.
const DEPTH: usize = 512;

/// As [`gemm::gemm()`] on `a: [m, k]` and `b: [k, n]` rounded to bfloat16; products are summed in `f32`, and `c`, `alpha` and
/// `beta` are not rounded.
///
/// # Errors
/// As [`gemm::gemm()`].
///
/// ```
/// use tallow_kernels::bf16;
/// use tallow_kernels::gemm::GemmArgs;
///
/// // [2, 2] times [2, 1], row-major: 3.1415927 is rounded to 3.140625.
/// let (a, b, mut c) = ([3.1415927, 0.0, 1.0, 2.0], [1.0, -0.5], [0.0; 2]);
/// bf16::gemm(GemmArgs {
///     m: 2, n: 1, k: 2,
///     a: &a, a_rs: 2, a_cs: 1,
///     b: &b, b_rs: 1, b_cs: 1,
///     c: &mut c, c_rs: 1, c_cs: 1,
///     alpha: 1.0, beta: 0.0,
/// })?;
/// assert_eq!(c, [3.140625, 0.0]);
/// # Ok::<(), tallow_kernels::Error>(())
/// ```
pub fn gemm(args: GemmArgs<'_>) -> Result<()> {
    batched(1, BatchSteps { a: 0, b: 0, c: 0 }, args)
}

/// `batch` products of one shape, the `i`th on the slices from `i` steps on.
///
/// # Errors
/// As [`gemm::gemm()`].
pub fn batched(batch: usize, steps: BatchSteps, args: GemmArgs<'_>) -> Result<()> {
    if batch == 0 || args.m == 0 || args.n == 0 || args.k == 0 {
        return gemm::batched(batch, steps, args);
    }
    gemm::check(batch, steps, &args)?;
    let (m, n, k) = (args.m, args.n, args.k);
    let a = Operand {
        values: args.a,
        count: if steps.a == 0 { 1 } else { batch },
        step: steps.a,
        strides: [args.a_rs, args.a_cs],
        sizes: [m, k],
    };
    let b = Operand {
        values: args.b,
        count: if steps.b == 0 { 1 } else { batch },
        step: steps.b,
        strides: [args.b_rs, args.b_cs],
        sizes: [k, n],
    };
    let micro = Micro::bf16();
    let workspace = Workspace::global();
    if !micro.pairs {
        let mut rounded = [&a, &b].map(|operand| workspace.take(operand.reach()));
        for (operand, rounded) in [&a, &b].iter().zip(&mut rounded) {
            round(&operand.values[..rounded.len()], rounded)?;
        }
        let [a, b] = &rounded;
        return gemm::batched(batch, steps, GemmArgs { a, b, ..args });
    }
    let pairs = k.div_ceil(2);
    let mut rows = workspace.take(a.count * m * pairs);
    let mut panels = workspace.take(b.count * n.div_ceil(micro.columns) * pairs * micro.columns);
    pack_rows(&a, &mut rows);
    pack_panels(&b, micro.columns, &mut panels);
    let job = Job {
        micro,
        rows: &rows,
        panels: &panels,
        c: SharedMut::new(args.c),
        shared: [steps.a == 0, steps.b == 0],
        c_step: steps.c,
        c_strides: [args.c_rs, args.c_cs],
        sizes: [m, n, pairs],
        factors: [args.alpha, args.beta],
    };
    let tasks = batch * m.div_ceil(ROWS) * n.div_ceil(micro.columns);
    parallel::for_each(tasks, 1, (), |task, ()| job.task(task, workspace));
    Ok(())
}

/// Matrices of one size in a slice.
struct Operand<'a> {
    values: &'a [f32],
    count: usize,
    /// Elements from one matrix to the next.
    step: usize,
    strides: [usize; 2],
    sizes: [usize; 2],
}

impl Operand<'_> {
    /// Elements up to the last one of the last matrix.
    fn reach(&self) -> usize {
        let axis = |axis: usize| (self.sizes[axis] - 1) * self.strides[axis];
        (self.count - 1) * self.step + axis(0) + axis(1) + 1
    }

    /// What lies from an element of a matrix on.
    fn from(&self, index: usize, [row, column]: [usize; 2]) -> &[f32] {
        &self.values[index * self.step + row * self.strides[0] + column * self.strides[1]..]
    }
}

/// Copies `a` as `[count][m][pairs]`.
fn pack_rows(a: &Operand<'_>, to: &mut [f32]) {
    let ([m, k], stride) = (a.sizes, a.strides[1]);
    let pairs = k.div_ceil(2);
    let rows = parallel::rows(to, pairs);
    parallel::for_each(a.count * m, parallel::grain(k), rows, |first, to| {
        for (row, to) in (first..).zip(to.data.chunks_exact_mut(pairs)) {
            let from = a.from(row / m, [row % m, 0]);
            if stride == 1 {
                pair_neighbours(&from[..k], to);
            } else {
                pair_run(from, stride, k, to);
            }
        }
    });
}

/// Copies `b` as `[count][panels][pairs][columns]`, with zeros where columns are missing.
fn pack_panels(b: &Operand<'_>, columns: usize, to: &mut [f32]) {
    let [k, n] = b.sizes;
    let panels = n.div_ceil(columns);
    let size = k.div_ceil(2) * columns;
    let operands = parallel::rows(to, size);
    parallel::for_each(
        b.count * panels,
        parallel::grain(size),
        operands,
        |first, to| {
            for (panel, to) in (first..).zip(to.data.chunks_exact_mut(size)) {
                let column = panel % panels * columns;
                let width = columns.min(n - column);
                for (row, to) in (0..k).step_by(2).zip(to.chunks_exact_mut(columns)) {
                    let (to, missing) = to.split_at_mut(width);
                    let upper = b.from(panel / panels, [row, column]);
                    let lower = (row + 1 < k).then(|| b.from(panel / panels, [row + 1, column]));
                    pair_across(upper, lower, b.strides[1], to);
                    missing.fill(0.0);
                }
            }
        },
    );
}

dispatch! {
    /// Pairs of neighbours that lie a stride apart, the last one with zero where there is no other.
    fn pair_run<I>(from: &[f32], stride: usize, count: usize, to: &mut [f32]) -> () {
        for (to, at) in to.iter_mut().zip((0..count).step_by(2)) {
            let second = if at + 1 < count { from[(at + 1) * stride] } else { 0.0 };
            *to = pair(from[at * stride], second);
        }
    }
}

/// Pairs of one row with the next, whose elements lie a stride apart; with zeros where there is no next row.
fn pair_across(upper: &[f32], lower: Option<&[f32]>, stride: usize, to: &mut [f32]) {
    match (lower, stride) {
        (Some(lower), 1) => pair_two_rows(upper, lower, to),
        (None, 1) => pair_with_zeros(upper, to),
        _ => {
            for (j, to) in to.iter_mut().enumerate() {
                let second = lower.map_or(0.0, |lower| lower[j * stride]);
                *to = pair(upper[j * stride], second);
            }
        }
    }
}

/// What all tasks of a call share.
struct Job<'a> {
    micro: &'static Micro,
    /// `[count][m][pairs]` and `[count][panels][pairs][columns]`.
    rows: &'a [f32],
    panels: &'a [f32],
    c: SharedMut<'a>,
    /// Whether all products read the same `a`, and the same `b`.
    shared: [bool; 2],
    c_step: usize,
    c_strides: [usize; 2],
    /// Rows, columns, and pairs of a sum.
    sizes: [usize; 3],
    factors: [f32; 2],
}

impl Job<'_> {
    /// Task number `task`, counted through products, panels and blocks of rows.
    fn task(&self, task: usize, workspace: &Workspace) {
        let [m, n, pairs] = self.sizes;
        let columns = self.micro.columns;
        let (blocks, panels) = (m.div_ceil(ROWS), n.div_ceil(columns));
        let (rest, block) = (task / blocks, task % blocks);
        let (index, panel) = (rest / panels, rest % panels);
        let matrix = |axis: usize| if self.shared[axis] { 0 } else { index };
        let first = block * ROWS;
        let count = ROWS.min(m - first);
        let rows = &self.rows[(matrix(0) * m + first) * pairs..][..count * pairs];
        let size = pairs * columns;
        let panel_values = &self.panels[(matrix(1) * panels + panel) * size..][..size];
        let mut sums = workspace.take(count * columns);
        for start in (0..pairs).step_by(DEPTH) {
            let terms = start..pairs.min(start + DEPTH);
            let panel = &panel_values[start * columns..terms.end * columns];
            for row in (0..count).step_by(self.micro.rows) {
                let tile = self.micro.rows.min(count - row);
                let mut from = [std::ptr::null(); MAX_ROWS];
                let mut out = [std::ptr::null_mut(); MAX_ROWS];
                for i in 0..tile {
                    from[i] = rows[(row + i) * pairs..][terms.clone()].as_ptr();
                    out[i] = sums[(row + i) * columns..][..columns].as_mut_ptr();
                }
                let args = Product {
                    taps: 1,
                    depth: terms.len(),
                    rows: from.as_ptr(),
                    rows_stride: 0,
                    b: panel.as_ptr(),
                    out: out.as_ptr(),
                    columns,
                    accumulate: start > 0,
                    finish: None,
                };
                // SAFETY: the level is in force; rows, panel and sums were cut to the terms and columns that are read and
                // written.
                unsafe { (self.micro.product)(tile, &args) };
            }
        }
        let sums = sums.chunks_exact(columns).enumerate();
        for (i, sums) in sums {
            let at = index * self.c_step + (first + i) * self.c_strides[0];
            let column = panel * columns;
            self.store(
                at + column * self.c_strides[1],
                &sums[..columns.min(n - column)],
            );
        }
    }

    /// Stores part of a row of `c`.
    fn store(&self, at: usize, sums: &[f32]) {
        let [alpha, beta] = self.factors;
        for (j, sum) in sums.iter().enumerate() {
            // SAFETY: `check` saw that no two elements of `c` have the same place, and each belongs to one task.
            let c = unsafe { self.c.slice(at + j * self.c_strides[1], 1) };
            // At zero the old value isn't read: it may be anything.
            let old = if beta == 0.0 { 0.0 } else { beta * c[0] };
            c[0] = alpha * sum + old;
        }
    }
}
