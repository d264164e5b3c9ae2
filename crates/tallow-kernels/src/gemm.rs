//! Matrix products over strided slices, through the `gemm` crate.
//!
//! The crate's own threading cuts the work by the number of threads. Here the product is cut into
//! blocks by its shape alone, each computed by one task, so that results are the same to the bit
//! for any number of threads. A long sum for few outputs is cut as well, into parts that are
//! joined in order.

use crate::error::{Error, Result};
use crate::parallel;
use crate::shared::SharedMut;
use crate::workspace::Workspace;

/// `c = alpha * a * b + beta * c`, with `a: [m, k]`, `b: [k, n]` and `c: [m, n]`.
///
/// Element `(i, j)` of a matrix is at `i * rs + j * cs` of its slice: for row-major storage the
/// row stride is the number of columns and the column stride 1; swapping the two transposes.
#[derive(Debug)]
pub struct GemmArgs<'a> {
    /// Rows of `a` and `c`.
    pub m: usize,
    /// Columns of `b` and `c`.
    pub n: usize,
    /// Columns of `a` and rows of `b`: the length of the sums.
    pub k: usize,
    /// Left factor.
    pub a: &'a [f32],
    /// Row stride of `a`.
    pub a_rs: usize,
    /// Column stride of `a`.
    pub a_cs: usize,
    /// Right factor.
    pub b: &'a [f32],
    /// Row stride of `b`.
    pub b_rs: usize,
    /// Column stride of `b`.
    pub b_cs: usize,
    /// Result; its elements must all lie in different places.
    pub c: &'a mut [f32],
    /// Row stride of `c`.
    pub c_rs: usize,
    /// Column stride of `c`.
    pub c_cs: usize,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of what `c` holds; at 0 it is not read, so that it may hold anything.
    pub beta: f32,
}

/// Steps, in elements, from one product of a batch to the next.
#[derive(Debug, Clone, Copy)]
pub struct BatchSteps {
    /// Step of `a`; 0 to use one matrix for all products.
    pub a: usize,
    /// Step of `b`; 0 to use one matrix for all products.
    pub b: usize,
    /// Step of `c`.
    pub c: usize,
}

/// One matrix product.
///
/// # Errors
/// [`Error::Length`] where a matrix reaches beyond its slice, [`Error::Geometry`] where elements
/// of `c` share a place.
///
/// ```
/// use tallow_kernels::gemm::{GemmArgs, gemm};
///
/// // [2, 3] times [3, 1], row-major.
/// let (a, b, mut c) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 0.0, -1.0], [0.0; 2]);
/// gemm(GemmArgs {
///     m: 2, n: 1, k: 3,
///     a: &a, a_rs: 3, a_cs: 1,
///     b: &b, b_rs: 1, b_cs: 1,
///     c: &mut c, c_rs: 1, c_cs: 1,
///     alpha: 1.0, beta: 0.0,
/// })?;
/// assert_eq!(c, [-2.0, -2.0]);
/// # Ok::<(), tallow_kernels::Error>(())
/// ```
pub fn gemm(args: GemmArgs<'_>) -> Result<()> {
    batched(1, BatchSteps { a: 0, b: 0, c: 0 }, args)
}

/// `batch` products of one shape, the `i`th on the slices from `i` steps on.
///
/// # Errors
/// As [`gemm()`].
pub fn batched(batch: usize, steps: BatchSteps, args: GemmArgs<'_>) -> Result<()> {
    if batch == 0 || args.m == 0 || args.n == 0 {
        return Ok(());
    }
    check(batch, steps, &args)?;
    if args.k == 0 {
        scale(batch, steps.c, args);
        return Ok(());
    }
    let cut = Cut::new(batch, &args);
    let job = Job {
        a: args.a,
        b: args.b,
        c: SharedMut::new(args.c),
        steps,
        dims: [args.m, args.n, args.k],
        a_strides: [args.a_rs, args.a_cs],
        b_strides: [args.b_rs, args.b_cs],
        c_strides: [args.c_rs, args.c_cs],
        factors: [args.alpha, args.beta],
        cut,
    };
    if cut.parts == 1 {
        let blocks = cut.blocks[0] * cut.blocks[1];
        parallel::for_each(batch * blocks, cut.grain, (), |first, ()| {
            for task in first..(first + cut.grain).min(batch * blocks) {
                job.block(task / blocks, task % blocks);
            }
        });
    } else {
        job.in_parts(batch);
    }
    Ok(())
}

/// Multiply-adds of a block at least, where the matrix is large enough.
const BLOCK_WORK: usize = 1 << 21;
/// Rows and columns of a block at least.
const BLOCK_SIDE: usize = 96;
/// Terms of a part of a sum at least.
const PART: usize = 2048;
/// Tasks to aim for.
const TASKS: usize = 16;

/// How products are cut into tasks.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Blocks of rows and of columns, and their sides.
    blocks: [usize; 2],
    sides: [usize; 2],
    /// Parts of the sum, and terms of one.
    parts: usize,
    part: usize,
    /// Small products that a task takes in a row.
    grain: usize,
}

impl Cut {
    fn new(batch: usize, args: &GemmArgs<'_>) -> Self {
        let work = args.m.saturating_mul(args.n).saturating_mul(args.k);
        let most = (work / BLOCK_WORK).clamp(1, TASKS.div_ceil(batch));
        let mut blocks = [1, 1];
        let mut sides = [args.m, args.n];
        while blocks[0] * blocks[1] < most {
            let axis = usize::from(sides[1] > sides[0]);
            if sides[axis] < 2 * BLOCK_SIDE {
                break;
            }
            let dims = [args.m, args.n];
            sides[axis] = dims[axis].div_ceil(2 * blocks[axis]).next_multiple_of(16);
            blocks[axis] = dims[axis].div_ceil(sides[axis]);
        }
        let tasks = batch * blocks[0] * blocks[1];
        let parts = (args.k / PART).clamp(1, TASKS.div_ceil(tasks));
        let part = args.k.div_ceil(parts);
        Self {
            blocks,
            sides,
            parts,
            part,
            grain: (BLOCK_WORK / 4 / work.max(1)).max(1),
        }
    }
}

#[derive(Clone, Copy)]
struct Job<'a> {
    a: &'a [f32],
    b: &'a [f32],
    c: SharedMut<'a>,
    steps: BatchSteps,
    dims: [usize; 3],
    a_strides: [usize; 2],
    b_strides: [usize; 2],
    c_strides: [usize; 2],
    factors: [f32; 2],
    cut: Cut,
}

impl Job<'_> {
    /// Computes one block of one product, whole sums.
    fn block(&self, index: usize, block: usize) {
        let ([m, n, k], sides) = (self.dims, self.cut.sides);
        let row = block / self.cut.blocks[1] * sides[0];
        let column = block % self.cut.blocks[1] * sides[1];
        let (rows, columns) = (sides[0].min(m - row), sides[1].min(n - column));
        let [alpha, beta] = self.factors;
        // SAFETY: `check` saw that all elements of all three matrices lie in their slices and
        // that those of `c` are all different, and each block belongs to one task.
        unsafe {
            multiply(
                [rows, columns, k],
                self.a
                    .as_ptr()
                    .add(index * self.steps.a + row * self.a_strides[0]),
                self.a_strides,
                self.b
                    .as_ptr()
                    .add(index * self.steps.b + column * self.b_strides[1]),
                self.b_strides,
                self.c.at(
                    index * self.steps.c + row * self.c_strides[0] + column * self.c_strides[1],
                    1,
                ),
                self.c_strides,
                [alpha, beta],
            );
        }
    }

    /// Computes the parts of all sums aside, and joins them in order.
    fn in_parts(&self, batch: usize) {
        let ([m, n, k], cut) = (self.dims, self.cut);
        let mut sums = Workspace::global().take(batch * cut.parts * m * n);
        let columns = cut.sides[1];
        let blocks = cut.blocks[0] * cut.blocks[1];
        let parts = SharedMut::new(&mut sums);
        parallel::for_each(batch * cut.parts * blocks, 1, (), |task, ()| {
            let (product, block) = (task / blocks, task % blocks);
            let (index, first) = (product / cut.parts, product % cut.parts * cut.part);
            let row = block / cut.blocks[1] * cut.sides[0];
            let column = block % cut.blocks[1] * columns;
            let shape = [
                cut.sides[0].min(m - row),
                columns.min(n - column),
                cut.part.min(k - first),
            ];
            let a = index * self.steps.a + row * self.a_strides[0] + first * self.a_strides[1];
            let b = index * self.steps.b + first * self.b_strides[0] + column * self.b_strides[1];
            let c = parts.at(product * m * n + row * n + column, 1);
            // SAFETY: as in `block`; the parts' matrices are `[m, n]` each.
            unsafe {
                let (a, b) = (self.a.as_ptr().add(a), self.b.as_ptr().add(b));
                multiply(
                    shape,
                    a,
                    self.a_strides,
                    b,
                    self.b_strides,
                    c,
                    [n, 1],
                    [1.0, 0.0],
                );
            }
        });
        for (index, parts) in sums.chunks_exact(cut.parts * m * n).enumerate() {
            for element in 0..m * n {
                let sum: f32 = parts.iter().skip(element).step_by(m * n).sum();
                let (row, column) = (element / n, element % n);
                let at = row * self.c_strides[0] + column * self.c_strides[1];
                // SAFETY: the only reference to an element of `c` at this time.
                let c = unsafe { self.c.slice(index * self.steps.c + at, 1) };
                let old = if self.factors[1] == 0.0 {
                    0.0
                } else {
                    self.factors[1] * c[0]
                };
                c[0] = self.factors[0] * sum + old;
            }
        }
    }
}

/// `c = beta * c`: what is left where the sums have no terms.
fn scale(batch: usize, step: usize, args: GemmArgs<'_>) {
    for index in 0..batch {
        for row in 0..args.m {
            for column in 0..args.n {
                let c = &mut args.c[index * step + row * args.c_rs + column * args.c_cs];
                *c = if args.beta == 0.0 {
                    0.0
                } else {
                    args.beta * *c
                };
            }
        }
    }
}

/// A product on the calling thread.
///
/// # Safety
/// The matrices must be valid for their shape and strides, and `c` exclusively.
unsafe fn multiply(
    [m, n, k]: [usize; 3],
    a: *const f32,
    a_strides: [usize; 2],
    b: *const f32,
    b_strides: [usize; 2],
    c: *mut f32,
    c_strides: [usize; 2],
    [alpha, beta]: [f32; 2],
) {
    let strides = |strides: [usize; 2]| strides.map(|stride| stride as isize);
    let ([a_rs, a_cs], [b_rs, b_cs]) = (strides(a_strides), strides(b_strides));
    let [c_rs, c_cs] = strides(c_strides);
    let read = beta != 0.0;
    // SAFETY: as the caller promises. (The crate calls the factor of the old value `alpha`.)
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c,
            c_cs,
            c_rs,
            read,
            a,
            a_cs,
            a_rs,
            b,
            b_cs,
            b_rs,
            beta,
            alpha,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Checks that the matrices lie in their slices, and that elements of `c` have places of their own.
pub(crate) fn check(batch: usize, steps: BatchSteps, args: &GemmArgs<'_>) -> Result<()> {
    const KERNEL: &str = "gemm";
    let (m, n, k) = (args.m, args.n, args.k);
    let a = [(batch, steps.a), (m, args.a_rs), (k, args.a_cs)];
    let b = [(batch, steps.b), (k, args.b_rs), (n, args.b_cs)];
    let c = [(batch, steps.c), (m, args.c_rs), (n, args.c_cs)];
    let operands = [
        ("a", a, args.a.len()),
        ("b", b, args.b.len()),
        ("c", c, args.c.len()),
    ];
    for (operand, axes, found) in operands {
        let expected = extent(&axes).unwrap_or(usize::MAX);
        if found < expected {
            return Err(Error::Length {
                kernel: KERNEL,
                operand,
                expected,
                found,
            });
        }
    }
    let mut axes = c;
    axes.sort_by_key(|&(_, stride)| stride);
    let mut reach = 1;
    for (size, stride) in axes.into_iter().filter(|&(size, _)| size > 1) {
        if stride < reach {
            return Err(Error::Geometry {
                kernel: KERNEL,
                problem: format!(
                    "elements of `c` would share a place: sizes and strides of batch, rows and \
                     columns are {c:?}; choose strides that keep them apart"
                ),
            });
        }
        reach += (size - 1) * stride;
    }
    Ok(())
}

/// Elements from the first to the last one addressed, or `None` where there are too many.
fn extent(axes: &[(usize, usize)]) -> Option<usize> {
    if axes.iter().any(|&(size, _)| size == 0) {
        return Some(0);
    }
    axes.iter().try_fold(1usize, |total, &(size, stride)| {
        total.checked_add((size - 1).checked_mul(stride)?)
    })
}
