//! Rounding to bfloat16 by known bits, and matrix products of rounded operands against plain loops in f64.

use proptest::prelude::*;
use tallow_kernels::Error;
use tallow_kernels::bf16;
use tallow_kernels::gemm::{BatchSteps, GemmArgs};
use tallow_kernels::simd::{Level, with_level};

mod support;

use support::{assert_close, at_every_level, data, same_bits_for_any_threads};

fn rounded(x: &[f32]) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.len()];
    bf16::round(x, &mut y).unwrap();
    y
}

#[test]
fn known_numbers_round_to_known_bits() {
    // What PyTorch makes of them, which the last halves of the bits decide.
    let cases: [(u32, u32); 18] = [
        (0x0000_0000, 0x0000_0000),
        (0x8000_0000, 0x8000_0000),
        (0x3f80_0000, 0x3f80_0000),
        (0xc049_0fdb, 0xc049_0000),
        // Just below, at and just above the middle, above an even and an odd last bit.
        (0x3f80_7fff, 0x3f80_0000),
        (0x3f80_8000, 0x3f80_0000),
        (0x3f80_8001, 0x3f81_0000),
        (0x3f81_7fff, 0x3f81_0000),
        (0x3f81_8000, 0x3f82_0000),
        (0xbf81_8000, 0xbf82_0000),
        // A carry into the exponent.
        (0x3fff_ffff, 0x4000_0000),
        // The largest that stays finite, the first that doesn't, and the largest of all.
        (0x7f7f_7fff, 0x7f7f_0000),
        (0x7f7f_8000, 0x7f80_0000),
        (0xff7f_ffff, 0xff80_0000),
        (0x7f80_0000, 0x7f80_0000),
        (0xff80_0000, 0xff80_0000),
        // Subnormal numbers stay numbers, and round up to the smallest normal one.
        (0x0001_8000, 0x0002_0000),
        (0x007f_ffff, 0x0080_0000),
    ];
    at_every_level(|level| {
        let x: Vec<_> = cases.iter().map(|case| f32::from_bits(case.0)).collect();
        for (y, case) in rounded(&x).iter().zip(&cases) {
            assert_eq!(y.to_bits(), case.1, "{:#x} at {level}", case.0);
        }
    });
}

#[test]
fn every_nan_stays_nan() {
    // The second and third would become infinite and minus zero if their bits were rounded.
    let x = [0x7fc0_0000, 0x7f80_0001, 0xffff_ffff, 0xff80_0100].map(f32::from_bits);
    at_every_level(|level| {
        assert!(rounded(&x).iter().all(|y| y.is_nan()), "{level}");
    });
}

#[test]
fn a_result_of_another_length_is_refused() {
    assert_eq!(
        bf16::round(&[0.0; 3], &mut [0.0; 2]),
        Err(Error::Length {
            kernel: "bf16::round",
            operand: "y",
            expected: 3,
            found: 2
        })
    );
}

/// A product of `batch` matrices; `transposed` picks the storage of `a`, `b` and `c`.
#[derive(Debug, Clone, Copy)]
struct Product {
    batch: usize,
    shape: [usize; 3],
    transposed: [bool; 3],
    factors: [f32; 2],
}

/// Strides of a matrix stored by rows or by columns.
fn strides([rows, columns]: [usize; 2], transposed: bool) -> [usize; 2] {
    if transposed { [1, rows] } else { [columns, 1] }
}

impl Product {
    fn strides(&self) -> [[usize; 2]; 3] {
        let [m, n, k] = self.shape;
        [
            strides([m, k], self.transposed[0]),
            strides([k, n], self.transposed[1]),
            strides([m, n], self.transposed[2]),
        ]
    }

    fn run(&self, a: &[f32], b: &[f32], c: &mut [f32]) {
        let ([m, n, k], [a_s, b_s, c_s]) = (self.shape, self.strides());
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
            a_rs: a_s[0],
            a_cs: a_s[1],
            b,
            b_rs: b_s[0],
            b_cs: b_s[1],
            c,
            c_rs: c_s[0],
            c_cs: c_s[1],
            alpha: self.factors[0],
            beta: self.factors[1],
        };
        bf16::batched(self.batch, steps, args).unwrap();
    }

    /// The product of operands that were rounded first, in f64.
    fn expected(&self, a: &[f32], b: &[f32], old: &[f32]) -> Vec<f64> {
        let ([m, n, k], [a_s, b_s, c_s]) = (self.shape, self.strides());
        let (a, b) = (rounded(a), rounded(b));
        let [alpha, beta] = self.factors.map(f64::from);
        let mut c: Vec<_> = old.iter().map(|old| beta * f64::from(*old)).collect();
        for index in 0..self.batch {
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let term = |p: usize| {
                    let a = a[index * m * k + i * a_s[0] + p * a_s[1]];
                    let b = b[index * k * n + p * b_s[0] + j * b_s[1]];
                    f64::from(a) * f64::from(b)
                };
                let sum: f64 = (0..k).map(term).sum();
                c[index * m * n + i * c_s[0] + j * c_s[1]] += alpha * sum;
            }
        }
        c
    }

    fn check(&self) {
        let [m, n, k] = self.shape;
        let a = data(1, self.batch * m * k, -1.0, 1.0);
        let b = data(2, self.batch * k * n, -1.0, 1.0);
        let old = data(3, self.batch * m * n, -1.0, 1.0);
        let run = || {
            let mut c = old.clone();
            self.run(&a, &b, &mut c);
            c
        };
        let expected = self.expected(&a, &b, &old);
        at_every_level(|_| assert_close(&run(), &expected, 1e-6 * (k as f64).sqrt()));
        if !old.is_empty() {
            same_bits_for_any_threads(run);
        }
    }
}

#[test]
fn products_are_those_of_rounded_operands() {
    for (batch, shape, transposed) in [
        (1, [1, 1, 1], [false; 3]),
        (1, [7, 5, 3], [false; 3]),
        (1, [13, 70, 33], [false, true, false]),
        (1, [97, 130, 64], [true, false, true]),
        (3, [6, 64, 17], [true, true, false]),
        // More rows than a task has, and more terms than are summed in one go.
        (1, [200, 65, 31], [false, false, false]),
        (2, [5, 9, 2100], [false, true, true]),
        (1, [4, 6, 0], [false; 3]),
        (1, [0, 6, 4], [false; 3]),
    ] {
        Product {
            batch,
            shape,
            transposed,
            factors: [0.5, -2.0],
        }
        .check();
    }
}

#[test]
fn old_values_are_not_read_at_a_factor_of_zero_and_one_operand_may_serve_a_batch() {
    let a = data(1, 3 * 5, -1.0, 1.0);
    let b = data(2, 2 * 5 * 4, -1.0, 1.0);
    let multiply = |batch, b: &[f32], c: &mut [f32]| {
        let steps = BatchSteps { a: 0, b: 20, c: 12 };
        let args = GemmArgs {
            m: 3,
            n: 4,
            k: 5,
            a: &a,
            a_rs: 5,
            a_cs: 1,
            b,
            b_rs: 4,
            b_cs: 1,
            c,
            c_rs: 4,
            c_cs: 1,
            alpha: 1.0,
            beta: 0.0,
        };
        bf16::batched(batch, steps, args).unwrap();
    };
    for level in Level::available() {
        with_level(level, || {
            let (mut together, mut apart) = ([f32::NAN; 24], [f32::NAN; 24]);
            multiply(2, &b, &mut together);
            multiply(1, &b[..20], &mut apart[..12]);
            multiply(1, &b[20..], &mut apart[12..]);
            assert_eq!(together, apart, "{level}");
            assert!(together.iter().all(|value| value.is_finite()));
        });
    }
}

#[test]
fn matrices_that_reach_beyond_their_slices_are_refused() {
    fn args<'a>(a: &'a [f32], b: &'a [f32], c: &'a mut [f32]) -> GemmArgs<'a> {
        GemmArgs {
            m: 2,
            n: 2,
            k: 3,
            a,
            a_rs: 3,
            a_cs: 1,
            b,
            b_rs: 2,
            b_cs: 1,
            c,
            c_rs: 2,
            c_cs: 1,
            alpha: 1.0,
            beta: 0.0,
        }
    }
    let (a, b) = ([0.0; 6], [0.0; 6]);
    let operand = |result| match result {
        Err(Error::Length { operand, .. }) => operand,
        other => panic!("{other:?}"),
    };
    assert_eq!(operand(bf16::gemm(args(&a[1..], &b, &mut [0.0; 4]))), "a");
    assert_eq!(operand(bf16::gemm(args(&a, &b, &mut [0.0; 3]))), "c");
    assert!(bf16::gemm(args(&a, &b, &mut [0.0; 4])).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Of two neighbours among bfloat16 the nearer one is chosen.
    #[test]
    fn no_other_number_is_nearer(bits in any::<u32>()) {
        let x = f32::from_bits(bits);
        prop_assume!(x.is_finite());
        let y = rounded(&[x])[0];
        prop_assert_eq!(y.to_bits() & 0xffff, 0);
        prop_assert_eq!(rounded(&[y])[0].to_bits(), y.to_bits());
        let [below, above] = [bits & 0xffff_0000, (bits & 0xffff_0000) + 0x1_0000].map(f32::from_bits);
        prop_assert!(y.to_bits() == below.to_bits() || y.to_bits() == above.to_bits());
        if above.is_finite() {
            let distance = |other: f32| (f64::from(x) - f64::from(other)).abs();
            prop_assert!(distance(y) <= distance(below) && distance(y) <= distance(above));
        }
    }

    #[test]
    fn any_product_is_that_of_rounded_operands(
        batch in 1usize..4,
        shape in [1usize..30, 1usize..140, 1usize..40],
        transposed in any::<[bool; 3]>(),
        factors in [-2.0f32..2.0, -2.0f32..2.0],
    ) {
        Product { batch, shape, transposed, factors }.check();
    }
}
