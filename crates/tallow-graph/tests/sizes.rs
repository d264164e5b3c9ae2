//! Output sizes against a count of the windows, for all geometries.

use proptest::prelude::*;
use tallow_graph::op::{Conv2d, MaxPool2d, Slice};
use tallow_graph::{Op, TensorType};

/// How many windows fit when each is placed and looked at.
fn count_windows(
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
) -> usize {
    let span = dilation * (kernel - 1) + 1;
    (0..)
        .map(|i| i * stride)
        .take_while(|start| start + span <= size + 2 * padding)
        .count()
}

/// As above, and one more that overhangs the padded end by less than a step, if it starts before the padding there.
fn count_windows_ceil(size: usize, kernel: usize, stride: usize, padding: usize) -> usize {
    let full = count_windows(size, kernel, stride, padding, 1);
    let start = full * stride;
    let overhang = start + kernel - (size + 2 * padding);
    full + usize::from(overhang < stride && start < size + padding)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn convolution_has_as_many_outputs_as_windows(
        size in [0usize..30, 0usize..30],
        kernel in [1usize..6, 1usize..6],
        stride in [1usize..5, 1usize..5],
        padding in [0usize..4, 0usize..4],
        dilation in [1usize..4, 1usize..4],
    ) {
        let op = Op::Conv2d(Conv2d { stride, padding, dilation, groups: 1 });
        let inputs = [
            TensorType::f32([2, 3, size[0], size[1]]),
            TensorType::f32([4, 3, kernel[0], kernel[1]]),
        ];
        let expected: Vec<usize> = (0..2)
            .map(|d| count_windows(size[d], kernel[d], stride[d], padding[d], dilation[d]))
            .collect();
        match op.infer(&inputs) {
            Ok(output) => prop_assert_eq!(&output.shape[2..], &expected[..]),
            Err(_) => prop_assert!(expected.contains(&0) || size.contains(&0)),
        }
    }

    #[test]
    fn pooling_has_as_many_outputs_as_windows(
        size in [0usize..30, 0usize..30],
        kernel in [1usize..6, 1usize..6],
        stride in [1usize..6, 1usize..6],
        padding in [0usize..3, 0usize..3],
        ceil_mode: bool,
    ) {
        let op = Op::MaxPool2d(MaxPool2d { kernel, stride, padding, ceil_mode });
        let found = op.infer(&[TensorType::f32([2, 3, size[0], size[1]])]);
        if (0..2).any(|d| padding[d] > kernel[d] / 2) {
            prop_assert!(found.is_err());
            return Ok(());
        }
        let expected: Vec<usize> = (0..2)
            .map(|d| match ceil_mode {
                true => count_windows_ceil(size[d], kernel[d], stride[d], padding[d]),
                false => count_windows(size[d], kernel[d], stride[d], padding[d], 1),
            })
            .collect();
        match found {
            Ok(output) => prop_assert_eq!(&output.shape[2..], &expected[..]),
            Err(_) => prop_assert!(expected.contains(&0) || size.contains(&0)),
        }
    }

    #[test]
    fn a_slice_has_as_many_elements_as_steps(size in 0usize..20, start in 0usize..25, end in 0usize..25, step in 1usize..6) {
        let op = Op::Slice(Slice { dim: 0, start, end, step });
        let found = op.infer(&[TensorType::f32([size])]);
        if start > end || end > size {
            prop_assert!(found.is_err());
        } else {
            let expected = (start..end).step_by(step).count();
            prop_assert_eq!(found.map(|ty| ty.shape), Ok(vec![expected]));
        }
    }

    #[test]
    fn broadcasting_agrees_with_looking_at_each_dimension(
        a in prop::collection::vec(0usize..4, 0..5),
        b in prop::collection::vec(0usize..4, 0..5),
    ) {
        let rank = a.len().max(b.len());
        let padded = |shape: &[usize]| [vec![1; rank - shape.len()], shape.to_vec()].concat();
        let pairs = padded(&a).into_iter().zip(padded(&b));
        let expected: Option<Vec<usize>> = pairs
            .map(|(x, y)| if x == y || y == 1 { Some(x) } else if x == 1 { Some(y) } else { None })
            .collect();
        let found = Op::Add.infer(&[TensorType::f32(a), TensorType::f32(b)]);
        prop_assert_eq!(found.ok().map(|ty| ty.shape), expected);
    }

    #[test]
    fn no_shape_or_attribute_panics(
        shape in prop::collection::vec(prop_oneof![0usize..5, Just(usize::MAX), any::<usize>()], 0..5),
        values in prop::array::uniform7(prop_oneof![0usize..5, Just(usize::MAX), any::<usize>()]),
    ) {
        let [a, b, c, d, e, f, g] = values;
        let x = TensorType::f32(shape);
        let weight = TensorType::f32([a, b, c, d]);
        let conv = Op::Conv2d(Conv2d { stride: [e, f], padding: [g, a], dilation: [b, c], groups: d });
        let pool = Op::MaxPool2d(MaxPool2d { kernel: [a, b], stride: [c, d], padding: [e, f], ceil_mode: g % 2 == 0 });
        let slice = Op::Slice(Slice { dim: a, start: b, end: c, step: d });
        for (op, inputs) in [
            (conv, vec![x.clone(), weight.clone()]),
            (pool, vec![x.clone()]),
            (slice, vec![x.clone()]),
            (Op::MatMul, vec![x.clone(), weight.clone()]),
            (Op::Add, vec![x, weight]),
        ] {
            if let Ok(output) = op.infer(&inputs) {
                let _ = op.flops(&inputs, &output);
            }
        }
    }
}
