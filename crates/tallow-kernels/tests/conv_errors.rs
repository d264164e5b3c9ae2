//! Convolutions that can't be are refused with the reason.

use tallow_kernels::Error;
use tallow_kernels::conv::{self, Conv2dGeometry};
use tallow_kernels::workspace::Workspace;

#[test]
fn impossible_geometries_are_refused_with_a_reason() {
    let good = Conv2dGeometry::new(1, 4, [8, 8], 6, [3, 3], [1, 1], [0, 0], [1, 1], 2).unwrap();
    type Change = fn(&mut Conv2dGeometry);
    let rows: [(Change, &str); 10] = [
        (|g| g.in_size = [2, 8], "kernel of height 3"),
        (|g| g.dilation = [1, 4], "dilation 4"),
        (|g| g.in_size = [0, 0], "input height is 0"),
        (|g| g.kernel = [0, 3], "kernel height is 0"),
        (|g| g.stride = [1, 0], "horizontal stride is 0"),
        (|g| g.groups = 0, "groups is 0"),
        (|g| g.groups = 3, "in_channels is 4, which 3 groups"),
        (|g| g.groups = 4, "out_channels is 6, which 4 groups"),
        (|g| g.padding = [0, usize::MAX], "horizontal padding is"),
        (|g| g.batch = usize::MAX, "more elements than memory"),
    ];
    for (change, reason) in rows {
        let mut geometry = good;
        change(&mut geometry);
        let error = geometry.check().unwrap_err();
        assert!(matches!(error, Error::Geometry { .. }), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
        let result = conv::backward_bias(&geometry, &[], &mut []);
        assert_eq!(result, Err(error));
    }
}

#[test]
fn slices_of_other_lengths_are_refused_by_name() {
    let g = &Conv2dGeometry::new(1, 2, [4, 4], 3, [3, 3], [1, 1], [1, 1], [1, 1], 1).unwrap();
    let ws = Workspace::global();
    let (x, w, dy) = ([0.0; 32], [0.0; 54], [0.0; 48]);
    let (mut y, mut dx, mut short) = (dy, x, [0.0; 5]);
    for (result, kernel, operand, expected) in [
        (
            conv::forward(g, &w, &w, None, &mut y, ws),
            "conv2d",
            "x",
            32,
        ),
        (
            conv::forward(g, &x, &x, None, &mut y, ws),
            "conv2d",
            "w",
            54,
        ),
        (
            conv::forward(g, &x, &w, Some(&w), &mut y, ws),
            "conv2d",
            "bias",
            3,
        ),
        (
            conv::forward(g, &x, &w, None, &mut short, ws),
            "conv2d",
            "y",
            48,
        ),
        (
            conv::backward_input(g, &w, &x, &mut dx, ws),
            "conv2d_backward_input",
            "dy",
            48,
        ),
        (
            conv::backward_weight(g, &x, &dy, &mut short, ws),
            "conv2d_backward_weight",
            "dw",
            54,
        ),
        (
            conv::backward_bias(g, &dy, &mut short),
            "conv2d_backward_bias",
            "db",
            3,
        ),
    ] {
        match result {
            Err(Error::Length {
                kernel: found_kernel,
                operand: found_operand,
                expected: found_expected,
                ..
            }) => assert_eq!(
                (found_kernel, found_operand, found_expected),
                (kernel, operand, expected)
            ),
            other => panic!("{kernel} with a wrong {operand}: {other:?}"),
        }
    }
}
