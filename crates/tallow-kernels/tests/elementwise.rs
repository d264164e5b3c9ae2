//! Element by element arithmetic, broadcasting, sums and embeddings.

mod support;

use proptest::prelude::*;
use support::*;
use tallow_kernels::broadcast::{Binary, binary, broadcast_shape};
use tallow_kernels::embedding::{embedding, embedding_backward};
use tallow_kernels::{ChannelShape, Error, elementwise, reduce};

type Slices = fn(&[f32], &[f32], &mut [f32]) -> tallow_kernels::Result<()>;
type Single = fn(f32, f32) -> f32;

#[test]
fn arithmetic_is_that_of_single_numbers() {
    let (a, b) = (data(1, 70_001, -2.0, 2.0), data(2, 70_001, 0.5, 2.0));
    let cases: [(Slices, Single); 4] = [
        (elementwise::add, |a, b| a + b),
        (elementwise::sub, |a, b| a - b),
        (elementwise::mul, |a, b| a * b),
        (elementwise::div, |a, b| a / b),
    ];
    at_every_level(|_| {
        for (kernel, single) in cases {
            let mut y = vec![f32::NAN; a.len()];
            kernel(&a, &b, &mut y).unwrap();
            assert!(
                a.iter()
                    .zip(&b)
                    .zip(&y)
                    .all(|((&a, &b), &y)| y == single(a, b))
            );
            assert!(kernel(&a, &b[1..], &mut y).is_err());
            assert!(kernel(&a, &b, &mut y[1..]).is_err());
        }
        let mut y = a.clone();
        elementwise::add_assign(&mut y, &b).unwrap();
        assert!(a.iter().zip(&b).zip(&y).all(|((a, b), &y)| y == a + b));
        let mut y = a.clone();
        elementwise::mul_assign(&mut y, &b).unwrap();
        assert!(a.iter().zip(&b).zip(&y).all(|((a, b), &y)| y == a * b));
        let mut y = b.clone();
        elementwise::axpy(0.3, &a, &mut y).unwrap();
        let expected: Vec<f64> = a
            .iter()
            .zip(&b)
            .map(|(&a, &b)| f64::from(0.3f32) * f64::from(a) + f64::from(b))
            .collect();
        assert_close(&y, &expected, 1.2e-7);
        elementwise::scale(&a, 3.0, &mut y).unwrap();
        assert!(a.iter().zip(&y).all(|(a, &y)| y == a * 3.0));
        elementwise::scale_assign(&mut y, 0.5);
        assert!(a.iter().zip(&y).all(|(a, &y)| y == a * 3.0 * 0.5));
        elementwise::add_scalar(&a, 3.0, &mut y).unwrap();
        assert!(a.iter().zip(&y).all(|(a, &y)| y == a + 3.0));
        elementwise::clamp(&a, -1.0, 0.5, &mut y).unwrap();
        assert!(a.iter().zip(&y).all(|(a, &y)| y == a.clamp(-1.0, 0.5)));
    });
    let mut y = [0.0];
    elementwise::clamp(&[f32::NAN], 0.0, 1.0, &mut y).unwrap();
    assert!(y[0].is_nan());
}

#[test]
fn a_value_a_channel_reaches_exactly_its_channel() {
    at_every_level(|_| {
        for [n, c, s] in [
            [3, 5, 1],
            [2, 3, 7],
            [1, 2, 40_000],
            [0, 3, 4],
            [3, 0, 4],
            [3, 4, 0],
        ] {
            let shape = ChannelShape::new(n, c, s);
            let (x, b) = (data(3, n * c * s, -1.0, 1.0), data(4, c, -1.0, 1.0));
            let (mut sum, mut product) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
            elementwise::add_per_channel(&shape, &x, &b, &mut sum).unwrap();
            elementwise::mul_per_channel(&shape, &x, &b, &mut product).unwrap();
            for (i, &x) in x.iter().enumerate() {
                let b = b[i / s % c];
                assert_eq!((sum[i], product[i]), (x + b, x * b));
            }
        }
    });
    let shape = ChannelShape::new(1, 2, 2);
    let error = elementwise::add_per_channel(&shape, &[0.0; 4], &[0.0; 4], &mut [0.0; 4]);
    assert!(matches!(
        error,
        Err(Error::Length {
            operand: "b",
            expected: 2,
            found: 4,
            ..
        })
    ));
}

/// Offset of element `i` of `out` in a tensor of `shape` that is stretched to `out`.
fn stretched(i: usize, out: &[usize], shape: &[usize]) -> usize {
    let (mut i, mut offset, mut stride) = (i, 0, 1);
    for (back, &size) in out.iter().rev().enumerate() {
        let at = i % size;
        i /= size;
        if let Some(&own) = shape.iter().rev().nth(back) {
            offset += if own == 1 { 0 } else { at * stride };
            stride *= own;
        }
    }
    offset
}

fn check_broadcast(a_shape: &[usize], b_shape: &[usize]) {
    let (a, b) = (
        data(5, a_shape.iter().product(), -2.0, 2.0),
        data(6, b_shape.iter().product(), 0.5, 2.0),
    );
    let out = broadcast_shape(a_shape, b_shape).unwrap();
    let mut y = vec![f32::NAN; out.iter().product()];
    let cases: [(Binary, Single); 4] = [
        (Binary::Add, |a, b| a + b),
        (Binary::Sub, |a, b| a - b),
        (Binary::Mul, |a, b| a * b),
        (Binary::Div, |a, b| a / b),
    ];
    for (op, single) in cases {
        binary(op, &a, a_shape, &b, b_shape, &mut y).unwrap();
        for (i, &y) in y.iter().enumerate() {
            let (a, b) = (
                a[stretched(i, &out, a_shape)],
                b[stretched(i, &out, b_shape)],
            );
            assert_eq!(y, single(a, b), "{a_shape:?} {op:?} {b_shape:?} at {i}");
        }
    }
}

#[test]
fn shapes_stretch_as_in_numpy() {
    assert_eq!(broadcast_shape(&[2, 1, 3], &[4, 1]).unwrap(), [2, 4, 3]);
    assert_eq!(broadcast_shape(&[], &[4]).unwrap(), [4]);
    assert_eq!(broadcast_shape(&[0], &[1]).unwrap(), [0]);
    let error = broadcast_shape(&[2, 3], &[2, 4]).unwrap_err().to_string();
    assert!(
        error.contains("[2, 3]") && error.contains("[2, 4]"),
        "{error}"
    );
    assert!(broadcast_shape(&[1; 9], &[1]).is_err());
    for (a, b) in [
        (&[2, 3, 4][..], &[2, 3, 4][..]),
        (&[2, 3, 4], &[4]),
        (&[4], &[2, 3, 4]),
        (&[2, 3, 4], &[3, 1]),
        (&[2, 3, 4], &[]),
        (&[], &[]),
        (&[1, 1], &[1]),
        (&[2, 1, 5, 1], &[1, 3, 1, 4]),
        (&[7, 1], &[1, 300]),
        (&[0, 3], &[3]),
        (&[3, 300, 80], &[300, 1]),
    ] {
        check_broadcast(a, b);
    }
    let short = binary(Binary::Add, &[0.0; 3], &[2, 2], &[0.0], &[1], &mut [0.0; 4]);
    assert!(matches!(
        short,
        Err(Error::Length {
            operand: "a",
            expected: 4,
            found: 3,
            ..
        })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_pair_of_fitting_shapes_stretches(
        sizes in prop::collection::vec((1usize..5, 0u8..4), 0..6), cut in 0usize..6
    ) {
        // 0: both have the axis, 1: a repeats, 2: b repeats, 3: both have size 1.
        let a: Vec<usize> =
            sizes.iter().map(|&(size, kind)| if kind % 2 == 1 { 1 } else { size }).collect();
        let b: Vec<usize> =
            sizes.iter().map(|&(size, kind)| if kind >= 2 { 1 } else { size }).collect();
        check_broadcast(&a, &b[cut.min(b.len())..]);
        check_broadcast(&a[cut.min(a.len())..], &b);
    }
}

#[test]
fn sums_run_over_the_named_axis() {
    at_every_level(|_| {
        for [outer, len, inner] in [
            [1, 1, 1],
            [3, 5, 1],
            [2, 70, 1],
            [1, 9, 3],
            [2, 33, 16],
            [3, 4, 130],
            [1, 5_000, 70],
            [4, 0, 2],
            [0, 3, 2],
            [2, 3, 0],
        ] {
            let x = data(7, outer * len * inner, -1.0, 1.0);
            let mut expected = vec![0.0; outer * inner];
            for (i, &x) in x.iter().enumerate() {
                expected[i / inner / len * inner + i % inner] += 0.25 * f64::from(x);
            }
            let mut y = vec![f32::NAN; expected.len()];
            reduce::sum_axis([outer, len, inner], &x, 0.25, &mut y).unwrap();
            assert_close(&y, &expected, 1e-7);
        }
        for [n, c, s] in [
            [3, 5, 1],
            [2, 3, 7],
            [40, 33, 17],
            [2, 3, 20_000],
            [0, 2, 3],
            [2, 3, 0],
        ] {
            let x = data(8, n * c * s, -1.0, 1.0);
            let mut expected = vec![0.0; c];
            x.iter()
                .enumerate()
                .for_each(|(i, &x)| expected[i / s % c] += f64::from(x));
            let mut y = vec![f32::NAN; c];
            reduce::sum_per_channel(&ChannelShape::new(n, c, s), &x, &mut y).unwrap();
            assert_close(&y, &expected, 1e-7);
        }
    });
    assert!(reduce::sum_axis([2, 2, 2], &[0.0; 8], 1.0, &mut [0.0; 3]).is_err());
    assert!(reduce::sum_axis([usize::MAX, 2, 2], &[0.0; 8], 1.0, &mut [0.0; 4]).is_err());
}

#[test]
fn totals_keep_the_digits_of_long_sums() {
    at_every_level(|_| {
        let x = data(9, 300_001, 0.0, 1.0);
        let exact: f64 = widen(&x).iter().sum();
        assert!((reduce::sum(&x) / exact - 1.0).abs() < 1e-12);
        let squares: f64 = widen(&x).iter().map(|x| x * x).sum();
        assert!((reduce::sum_squares(&x) / squares - 1.0).abs() < 1e-12);
        assert!((reduce::dot(&x, &x).unwrap() / squares - 1.0).abs() < 1e-12);
    });
    assert_eq!(reduce::sum(&[]), 0.0);
    assert!(reduce::dot(&[1.0], &[]).is_err());
}

#[test]
fn sums_do_not_depend_on_threads_or_levels() {
    let x = data(10, 900 * 401, -1.0, 1.0);
    let compute = || {
        let (mut rows, mut columns, mut channels) = (vec![0.0; 900], vec![0.0; 401], vec![0.0; 20]);
        reduce::sum_axis([900, 401, 1], &x, 1.0, &mut rows).unwrap();
        reduce::sum_axis([1, 900, 401], &x, 1.0, &mut columns).unwrap();
        reduce::sum_per_channel(&ChannelShape::new(45, 20, 401), &x, &mut channels).unwrap();
        [rows, columns, channels, vec![reduce::sum(&x) as f32]].concat()
    };
    same_bits_for_any_threads(compute);
    same_bits_for_fused_levels(compute);
}

#[test]
fn embeddings_are_rows_and_their_gradients_sums_of_rows() {
    let [vocabulary, width] = [1_000, 37];
    let weight = data(11, vocabulary * width, -1.0, 1.0);
    let ids: Vec<u32> = (0..5_000).map(|i| i * i % 997).collect();
    let mut y = vec![f32::NAN; ids.len() * width];
    embedding([vocabulary, width], &ids, &weight, &mut y).unwrap();
    let dy = data(12, y.len(), -1.0, 1.0);
    let mut expected = vec![0.0; weight.len()];
    for ((&id, y), dy) in ids.iter().zip(y.chunks(width)).zip(dy.chunks(width)) {
        let row = id as usize * width;
        assert_eq!(y, &weight[row..row + width]);
        for (sum, &dy) in expected[row..].iter_mut().zip(dy) {
            *sum += f64::from(dy);
        }
    }
    let compute = || {
        let mut d_weight = vec![f32::NAN; weight.len()];
        embedding_backward([vocabulary, width], &ids, &dy, &mut d_weight).unwrap();
        d_weight
    };
    assert_close(&compute(), &expected, 1e-5);
    same_bits_for_any_threads(compute);
}

#[test]
fn a_number_outside_the_table_is_an_error_that_names_its_place() {
    let error = embedding([2, 1], &[1, 0, 2], &[0.0; 2], &mut [0.0; 3]).unwrap_err();
    assert_eq!(
        error,
        Error::Index {
            kernel: "embedding",
            row: 2,
            value: 2,
            bound: 2
        }
    );
    assert!(embedding_backward([2, 1], &[2], &[0.0], &mut [0.0; 2]).is_err());
    assert!(embedding([2, 1], &[1], &[0.0; 3], &mut [0.0]).is_err());
    assert!(embedding([2, 1], &[1], &[0.0; 2], &mut [0.0; 2]).is_err());
}
