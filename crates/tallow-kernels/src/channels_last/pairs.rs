//! Kernels of pairs of bfloat16 for any CPU, in tests alone: they run all that surrounds those of AVX-512 BF16, which few
//! CPUs have.

use std::cell::Cell;

use super::conv::{self, Algorithm, Direction, Finish};
use crate::bf16;
use crate::conv::Conv2dGeometry;
use crate::gemm::{self, BatchSteps, GemmArgs};
use crate::registers::{Lanes, Portable};
use crate::workspace::Workspace;

thread_local! {
    static FORCED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread's calls are to take the kernels of pairs.
pub(crate) fn forced() -> bool {
    FORCED.get()
}

/// Calls `f`, whose products of bfloat16 take the kernels of pairs.
fn with_pairs<R>(f: impl FnOnce() -> R) -> R {
    FORCED.set(true);
    let result = f();
    FORCED.set(false);
    result
}

/// Eight words of two bfloat16, or eight sums.
pub(crate) struct PortablePairs;

impl Lanes for PortablePairs {
    const COUNT: usize = 8;
    type Vector = [f32; 8];

    unsafe fn splat(value: f32) -> [f32; 8] {
        [value; 8]
    }

    unsafe fn load(from: *const f32) -> [f32; 8] {
        // SAFETY: as the caller promises.
        unsafe { Portable::load(from) }
    }

    unsafe fn store(to: *mut f32, value: [f32; 8]) {
        // SAFETY: as the caller promises.
        unsafe { Portable::store(to, value) }
    }

    unsafe fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        // SAFETY: every CPU can.
        unsafe { Portable::add(a, b) }
    }

    unsafe fn sub(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        // SAFETY: every CPU can.
        unsafe { Portable::sub(a, b) }
    }

    unsafe fn mul(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        // SAFETY: every CPU can.
        unsafe { Portable::mul(a, b) }
    }

    /// What `vdpbf16ps` does, but for the order of roundings.
    unsafe fn multiply_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        let low = |word: f32| f32::from_bits(word.to_bits() << 16);
        let high = |word: f32| f32::from_bits(word.to_bits() & 0xffff_0000);
        std::array::from_fn(|i| c[i] + high(a[i]) * high(b[i]) + low(a[i]) * low(b[i]))
    }

    unsafe fn max(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        // SAFETY: every CPU can.
        unsafe { Portable::max(a, b) }
    }

    unsafe fn min(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        // SAFETY: every CPU can.
        unsafe { Portable::min(a, b) }
    }
}

fn numbers(seed: usize, len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0)
        .collect()
}

fn rounded(x: &[f32]) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.len()];
    bf16::round(x, &mut y).unwrap();
    y
}

#[track_caller]
fn assert_close(found: &[f32], expected: &[f32]) {
    let scale = expected.iter().fold(1e-30, |max: f32, x| max.max(x.abs()));
    for (found, expected) in found.iter().zip(expected) {
        let close = (found - expected).abs() <= 1e-5 * scale;
        assert!(close, "{found} instead of {expected}");
    }
}

/// `y`, `dx` and `dw` of operands that are what `algorithm` takes.
fn run(g: &Conv2dGeometry, algorithm: Algorithm, [x, w, dy]: [&[f32]; 3]) -> [Vec<f32>; 3] {
    let workspace = Workspace::new();
    let pack = |direction| {
        let mut packed = vec![f32::NAN; conv::packed_len(g, direction, algorithm)];
        conv::pack(g, direction, algorithm, w, &mut packed).unwrap();
        packed
    };
    let [mut y, mut dx, mut dw] = [dy, x, w].map(|like| vec![f32::NAN; like.len()]);
    let (packed, finish) = (pack(Direction::Forward), Finish::default());
    conv::forward(g, algorithm, x, &packed, &finish, &mut y, &workspace).unwrap();
    let packed = pack(Direction::BackwardInput);
    conv::backward_input(g, algorithm, &packed, dy, None, &mut dx, &workspace).unwrap();
    conv::backward_weight(g, algorithm, x, dy, &mut dw, &workspace).unwrap();
    [y, dx, dw]
}

#[test]
fn convolutions_of_pairs_are_those_of_rounded_operands() {
    for ((batch, channels, size, filters), kernel, stride, padding, groups) in [
        ((2, 16, [8, 8], 24), [3, 3], [1, 1], [1, 1], 1),
        ((1, 1, [3, 4], 2), [1, 2], [1, 1], [0, 1], 1),
        ((3, 5, [7, 7], 9), [3, 3], [1, 1], [1, 1], 1),
        ((1, 17, [5, 5], 67), [3, 2], [2, 1], [0, 1], 1),
        ((2, 3, [37, 35], 16), [7, 7], [2, 2], [3, 3], 1),
        ((33, 41, [4, 4], 41), [3, 3], [1, 1], [1, 1], 1),
        ((37, 33, [2, 2], 33), [3, 3], [1, 1], [1, 1], 1),
        ((1, 2100, [3, 3], 5), [3, 3], [1, 1], [1, 1], 1),
        ((3, 9, [30, 29], 6), [1, 1], [1, 1], [0, 0], 1),
        ((2, 37, [8, 7], 37), [3, 3], [2, 2], [1, 1], 37),
        ((2, 12, [10, 10], 20), [3, 3], [1, 1], [1, 1], 4),
        ((2, 12, [10, 10], 12), [3, 3], [2, 3], [1, 2], 4),
    ] {
        let g = Conv2dGeometry::new(
            batch,
            channels,
            size,
            filters,
            kernel,
            stride,
            padding,
            [1, 1],
            groups,
        )
        .unwrap();
        let pixels = |size: [usize; 2]| batch * size[0] * size[1];
        let x = numbers(1, pixels(size) * channels);
        let w = numbers(2, filters * channels / groups * kernel[0] * kernel[1]);
        let dy = numbers(3, pixels(g.out_size()) * filters);
        let found = with_pairs(|| run(&g, Algorithm::Bf16, [&x, &w, &dy]));
        let operands = [&x, &w, &dy].map(|operand| rounded(operand));
        let expected = run(&g, Algorithm::Direct, [0, 1, 2].map(|i| &operands[i][..]));
        for (found, expected) in found.iter().zip(&expected) {
            assert_close(found, expected);
        }
    }
}

#[test]
fn matrix_products_of_pairs_are_those_of_rounded_operands() {
    for ([m, n, k], transposed) in [
        ([1, 1, 1], false),
        ([13, 70, 33], true),
        ([200, 9, 31], false),
        ([5, 19, 2100], true),
    ] {
        let (a, b) = (numbers(1, 2 * m * k), numbers(2, 2 * k * n));
        let strides = |rows, columns| if transposed { (1, rows) } else { (columns, 1) };
        let run = |multiply: &dyn Fn(usize, BatchSteps, GemmArgs<'_>) -> crate::Result<()>,
                   a: &[f32],
                   b: &[f32]| {
            let mut c = numbers(3, 2 * m * n);
            let ((a_rs, a_cs), (b_rs, b_cs)) = (strides(m, k), strides(k, n));
            let steps = BatchSteps {
                a: m * k,
                b: k * n,
                c: m * n,
            };
            let args = GemmArgs {
                m,
                n,
                k,
                a,
                a_rs,
                a_cs,
                b,
                b_rs,
                b_cs,
                c: &mut c,
                c_rs: n,
                c_cs: 1,
                alpha: 0.5,
                beta: -2.0,
            };
            multiply(2, steps, args).unwrap();
            c
        };
        let found = with_pairs(|| run(&bf16::batched, &a, &b));
        assert_close(&found, &run(&gemm::batched, &rounded(&a), &rounded(&b)));
    }
}
