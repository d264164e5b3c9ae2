//! Matrix products against plain loops in f64, and workspaces.

use proptest::prelude::*;
use tallow_kernels::Error;
use tallow_kernels::gemm::{BatchSteps, GemmArgs, batched, gemm};

fn numbers(seed: usize, len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0)
        .collect()
}

/// A product of `batch` matrices; `layout` picks transposed storage for `a`, `b` and `c`.
#[derive(Debug, Clone, Copy)]
struct Product {
    batch: usize,
    shape: [usize; 3],
    transposed: [bool; 3],
    factors: [f32; 2],
}

/// Strides of a matrix stored by rows or by columns.
fn strides(rows: usize, columns: usize, transposed: bool) -> (usize, usize) {
    if transposed { (1, rows) } else { (columns, 1) }
}

impl Product {
    fn check(self) {
        let [m, n, k] = self.shape;
        let (a, b) = (
            numbers(1, self.batch * m * k),
            numbers(2, self.batch * k * n),
        );
        let old = numbers(3, self.batch * m * n);
        let run = |threads: usize| {
            let mut c = old.clone();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.unwrap().install(|| self.run(&a, &b, &mut c));
            c
        };
        let c = run(1);
        assert!(run(2) == c && run(3) == c, "{self:?}: threads change bits");
        let expected = self.expected(&a, &b, &old);
        let largest = expected
            .iter()
            .fold(1.0f64, |max, value| max.max(value.abs()));
        let tolerance = 1e-5 * largest;
        for (found, expected) in c.iter().zip(&expected) {
            let error = (f64::from(*found) - expected).abs();
            assert!(error < tolerance, "{self:?}: {found} instead of {expected}");
        }
    }

    fn run(self, a: &[f32], b: &[f32], c: &mut [f32]) {
        let [m, n, k] = self.shape;
        let (a_rs, a_cs) = strides(m, k, self.transposed[0]);
        let (b_rs, b_cs) = strides(k, n, self.transposed[1]);
        let (c_rs, c_cs) = strides(m, n, self.transposed[2]);
        let steps = BatchSteps {
            a: m * k,
            b: k * n,
            c: m * n,
        };
        let [alpha, beta] = self.factors;
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
            c,
            c_rs,
            c_cs,
            alpha,
            beta,
        };
        batched(self.batch, steps, args).unwrap();
    }

    fn expected(self, a: &[f32], b: &[f32], old: &[f32]) -> Vec<f64> {
        let [m, n, k] = self.shape;
        let (a_rs, a_cs) = strides(m, k, self.transposed[0]);
        let (b_rs, b_cs) = strides(k, n, self.transposed[1]);
        let (c_rs, c_cs) = strides(m, n, self.transposed[2]);
        let mut c: Vec<f64> = old
            .iter()
            .map(|old| f64::from(self.factors[1] * old))
            .collect();
        for index in 0..self.batch {
            let (a, b) = (&a[index * m * k..], &b[index * k * n..]);
            for i in 0..m {
                for j in 0..n {
                    let terms = (0..k).map(|p| {
                        f64::from(a[i * a_rs + p * a_cs]) * f64::from(b[p * b_rs + j * b_cs])
                    });
                    let sum: f64 = terms.sum();
                    c[index * m * n + i * c_rs + j * c_cs] += f64::from(self.factors[0]) * sum;
                }
            }
        }
        c
    }
}

#[test]
fn products_large_enough_to_be_cut_agree_with_plain_loops() {
    for (batch, shape) in [
        (1, [300, 40, 200]),
        (1, [7, 1000, 300]),
        (1, [200, 210, 220]),
        (1, [10, 20, 9000]),
        (3, [16, 16, 5000]),
        (40, [20, 20, 8]),
    ] {
        for transposed in [[false; 3], [true, false, false], [false, true, true]] {
            for factors in [[1.0, 0.0], [0.5, 1.0]] {
                Product {
                    batch,
                    shape,
                    transposed,
                    factors,
                }
                .check();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_small_product_agrees_with_plain_loops(
        batch in 0usize..4,
        shape in [0usize..40, 0usize..40, 0usize..60],
        transposed in any::<[bool; 3]>(),
        (alpha, beta) in (-2i8..3, -1i8..3),
    ) {
        let factors = [f32::from(alpha), f32::from(beta)];
        Product { batch, shape, transposed, factors }.check();
    }
}

#[test]
fn what_c_held_is_not_read_when_beta_is_zero() {
    for k in [0, 1, 5000] {
        let (a, b, mut c) = (vec![0.5; k], vec![2.0; k], [f32::NAN]);
        gemm(args([1, 1, k], &a, &b, &mut c)).unwrap();
        assert_eq!(c, [k as f32]);
    }
}

#[test]
fn a_step_of_zero_uses_one_matrix_for_all_products_and_heads_may_interleave() {
    // Two heads of width 2, stored `[row, head, width]`, times one shared matrix.
    let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let b = [0.0, 1.0, 1.0, 0.0];
    let mut c = [0.0; 8];
    let mut args = args([2, 2, 2], &a, &b, &mut c);
    (args.a_rs, args.c_rs) = (4, 4);
    batched(2, BatchSteps { a: 2, b: 0, c: 2 }, args).unwrap();
    assert_eq!(c, [2.0, 1.0, 4.0, 3.0, 6.0, 5.0, 8.0, 7.0]);
}

#[test]
fn matrices_beyond_their_slice_and_overlapping_results_are_refused() {
    let (a, b, mut c) = ([0.0; 6], [0.0; 6], [0.0; 4]);
    let error = gemm(args([2, 2, 4], &a, &b, &mut c)).unwrap_err();
    let expected = Error::Length {
        kernel: "gemm",
        operand: "a",
        expected: 8,
        found: 6,
    };
    assert_eq!(error, expected);
    let mut overlapping = args([2, 2, 3], &a, &b, &mut c);
    overlapping.c_rs = 1;
    let error = gemm(overlapping).unwrap_err();
    assert!(matches!(error, Error::Geometry { .. }), "{error:?}");
    assert!(error.to_string().contains("share a place"), "{error}");
    let mut same = args([2, 2, 3], &a, &b, &mut c);
    (same.m, same.n) = (2, 1);
    assert!(batched(2, BatchSteps { a: 0, b: 0, c: 0 }, same).is_err());
}

/// A row-major product with `beta` 0.
fn args<'a>([m, n, k]: [usize; 3], a: &'a [f32], b: &'a [f32], c: &'a mut [f32]) -> GemmArgs<'a> {
    GemmArgs {
        m,
        n,
        k,
        a,
        a_rs: k,
        a_cs: 1,
        b,
        b_rs: n,
        b_cs: 1,
        c,
        c_rs: n,
        c_cs: 1,
        alpha: 1.0,
        beta: 0.0,
    }
}
