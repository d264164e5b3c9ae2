//! Strided copies against plain index arithmetic.

use proptest::prelude::*;
use tallow_kernels::Error;
use tallow_kernels::strided::{Strided, gather, scatter};

/// All indices of a shape, in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![Vec::new()], |prefixes, &size| {
        let extend =
            |prefix: Vec<usize>| (0..size).map(move |index| [prefix.as_slice(), &[index]].concat());
        prefixes.into_iter().flat_map(extend).collect()
    })
}

fn place(index: &[usize], strides: &[usize], offset: usize) -> usize {
    offset + index.iter().zip(strides).map(|(i, s)| i * s).sum::<usize>()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A permuted part of an array goes out and comes back to the same places.
    #[test]
    fn permuted_parts(
        sizes in prop::collection::vec(1usize..6, 1..5),
        seed in any::<u64>(),
        offset in 0usize..3,
    ) {
        let rank = sizes.len();
        let mut order: Vec<usize> = (0..rank).collect();
        order.sort_by_key(|&axis| seed.rotate_left(axis as u32 * 7) % 11);
        let mut strides = vec![1; rank];
        for axis in (0..rank.saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * (sizes[axis + 1] + 1);
        }
        let shape: Vec<_> = order.iter().map(|&axis| sizes[axis]).collect();
        let strides: Vec<_> = order.iter().map(|&axis| strides[axis]).collect();
        let end = shape.iter().zip(&strides).map(|(n, s)| (n - 1) * s).sum::<usize>() + offset + 1;
        let x: Vec<f32> = (0..end).map(|i| i as f32).collect();

        let array = Strided::new(&shape, &strides, offset).unwrap();
        let mut y = vec![-1.0; shape.iter().product()];
        gather(&array, &x, &mut y).unwrap();
        let expected: Vec<f32> =
            indices(&shape).iter().map(|i| place(i, &strides, offset) as f32).collect();
        prop_assert_eq!(&y, &expected);

        let mut back = vec![-1.0; end];
        scatter(&array, &y, &mut back).unwrap();
        for (place, value) in back.into_iter().enumerate() {
            let touched = expected.contains(&(place as f32));
            prop_assert_eq!(value, if touched { place as f32 } else { -1.0 });
        }
    }
}

#[test]
fn a_stride_of_zero_repeats() {
    let array = Strided::new(&[2, 3], &[1, 0], 0).unwrap();
    let mut y = [0.0; 6];
    gather(&array, &[5.0, 7.0], &mut y).unwrap();
    assert_eq!(y, [5.0, 5.0, 5.0, 7.0, 7.0, 7.0]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let array = Strided::new(&[2, 2], &[2, 1], 1).unwrap();
    let short = gather(&array, &[0.0; 4], &mut [0.0; 4]).unwrap_err();
    assert!(matches!(
        short,
        Error::Length {
            expected: 5,
            found: 4,
            ..
        }
    ));
    let repeated = Strided::new(&[3, 2], &[0, 1], 0).unwrap();
    let error = scatter(&repeated, &[0.0; 6], &mut [0.0; 2]).unwrap_err();
    assert!(error.to_string().contains("share a place"), "{error}");
    assert!(Strided::new(&[2], &[1, 1], 0).is_err());
}
