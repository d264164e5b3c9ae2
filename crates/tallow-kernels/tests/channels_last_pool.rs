//! Pooling of channels-last data against the kernels for channels first, which are tested against PyTorch's numbers, at
//! every level, for any number of threads.

mod support;

use proptest::prelude::*;
use support::*;
use tallow_kernels::channels_last::{layout, pool as last};
use tallow_kernels::pool::{self as first, AdaptivePool2dGeometry, Pool2dGeometry};
use tallow_kernels::{ChannelShape, Error};

/// `[N, C, H, W]` in the other order.
fn to_last(channels: usize, [height, width]: [usize; 2], x: &[f32]) -> Vec<f32> {
    let spatial = height * width;
    let shape = ChannelShape::new(x.len() / (channels * spatial), channels, spatial);
    let mut y = vec![0.0; x.len()];
    layout::to_channels_last(&shape, x, &mut y).unwrap();
    y
}

/// Small integers, so that there are ties, and a NaN or an infinity here and there.
fn with_ties(len: usize, odd: bool) -> Vec<f32> {
    let mut x: Vec<f32> = data(1, len, -4.0, 4.0).iter().map(|x| x.round()).collect();
    if odd {
        for (i, x) in x.iter_mut().enumerate() {
            match i % 37 {
                5 => *x = f32::NAN,
                11..14 => *x = f32::NEG_INFINITY,
                20 => *x = f32::INFINITY,
                _ => {}
            }
        }
    }
    x
}

/// Equal numbers, or both NaN.
#[track_caller]
fn assert_same(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found == expected || (found.is_nan() && expected.is_nan());
        assert!(same, "element {i}: found {found}, expected {expected}");
    }
}

fn check_max(geometry: &Pool2dGeometry, channels: usize) {
    let (planes, in_size, out_size) = (geometry.planes, geometry.in_size, geometry.out_size());
    let x = with_ties(planes * in_size[0] * in_size[1], true);
    let dy = data(2, planes * out_size[0] * out_size[1], -1.0, 1.0);
    let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
    let mut indices = vec![0; dy.len()];
    first::max_pool2d(geometry, &x, &mut y, &mut indices).unwrap();
    first::max_pool2d_backward(geometry, &indices, &dy, &mut dx).unwrap();
    let (x, dx) = (
        to_last(channels, in_size, &x),
        to_last(channels, in_size, &dx),
    );
    let (y, dy) = (
        to_last(channels, out_size, &y),
        to_last(channels, out_size, &dy),
    );
    at_every_level(|_| {
        let mut found = vec![0.0; y.len()];
        last::max_pool2d(geometry, channels, &x, &mut found).unwrap();
        assert_same(&found, &y);
        let (mut bytes, mut floats) = (vec![0u8; y.len()], vec![f32::NAN; y.len()]);
        last::max_pool2d_positions(geometry, channels, &x, &mut found, &mut bytes).unwrap();
        assert_same(&found, &y);
        last::max_pool2d_positions(geometry, channels, &x, &mut found, &mut floats).unwrap();
        assert_same(&found, &y);
        let mut found = vec![f32::NAN; dx.len()];
        last::max_pool2d_backward(geometry, channels, &bytes, &dy, &mut found).unwrap();
        assert_same(&found, &dx);
        found.fill(f32::NAN);
        last::max_pool2d_backward(geometry, channels, &floats, &dy, &mut found).unwrap();
        assert_same(&found, &dx);
    });
}

fn check_average(geometry: &Pool2dGeometry, channels: usize, count_include_pad: bool) {
    let (planes, in_size, out_size) = (geometry.planes, geometry.in_size, geometry.out_size());
    let x = data(3, planes * in_size[0] * in_size[1], -1.0, 2.0);
    let dy = data(4, planes * out_size[0] * out_size[1], -1.0, 1.0);
    let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
    first::avg_pool2d(geometry, count_include_pad, &x, &mut y).unwrap();
    first::avg_pool2d_backward(geometry, count_include_pad, &dy, &mut dx).unwrap();
    let (x, dx) = (
        to_last(channels, in_size, &x),
        to_last(channels, in_size, &dx),
    );
    let (y, dy) = (
        to_last(channels, out_size, &y),
        to_last(channels, out_size, &dy),
    );
    at_every_level(|_| {
        let (mut found_y, mut found_dx) = (vec![f32::NAN; y.len()], vec![f32::NAN; x.len()]);
        last::avg_pool2d(geometry, channels, count_include_pad, &x, &mut found_y).unwrap();
        assert_same(&found_y, &y);
        last::avg_pool2d_backward(geometry, channels, count_include_pad, &dy, &mut found_dx)
            .unwrap();
        assert_close(&found_dx, &widen(&dx), 1e-6);
    });
}

fn check_adaptive(geometry: &AdaptivePool2dGeometry, channels: usize) {
    let AdaptivePool2dGeometry {
        planes,
        in_size,
        out_size,
    } = *geometry;
    let x = with_ties(planes * in_size[0] * in_size[1], false);
    let dy = data(2, planes * out_size[0] * out_size[1], -1.0, 1.0);
    let [mut max, mut average] = [0; 2].map(|_| vec![0.0; dy.len()]);
    let [mut max_dx, mut average_dx] = [0; 2].map(|_| vec![0.0; x.len()]);
    let mut indices = vec![0; dy.len()];
    first::adaptive_max_pool2d(geometry, &x, &mut max, &mut indices).unwrap();
    first::adaptive_max_pool2d_backward(geometry, &indices, &dy, &mut max_dx).unwrap();
    first::adaptive_avg_pool2d(geometry, &x, &mut average).unwrap();
    first::adaptive_avg_pool2d_backward(geometry, &dy, &mut average_dx).unwrap();
    let of_input = |x: &[f32]| to_last(channels, in_size, x);
    let of_output = |y: &[f32]| to_last(channels, out_size, y);
    let (x, dy) = (of_input(&x), of_output(&dy));
    at_every_level(|_| {
        let (mut y, mut dx) = (vec![f32::NAN; dy.len()], vec![f32::NAN; x.len()]);
        let mut positions = vec![f32::NAN; dy.len()];
        last::adaptive_max_pool2d(geometry, channels, &x, &mut y).unwrap();
        assert_same(&y, &of_output(&max));
        y.fill(f32::NAN);
        last::adaptive_max_pool2d_positions(geometry, channels, &x, &mut y, &mut positions)
            .unwrap();
        assert_same(&y, &of_output(&max));
        last::adaptive_max_pool2d_backward(geometry, channels, &positions, &dy, &mut dx).unwrap();
        assert_close(&dx, &widen(&of_input(&max_dx)), 1e-6);
        last::adaptive_avg_pool2d(geometry, channels, &x, &mut y).unwrap();
        assert_close(&y, &widen(&of_output(&average)), 1e-6);
        dx.fill(f32::NAN);
        last::adaptive_avg_pool2d_backward(geometry, channels, &dy, &mut dx).unwrap();
        assert_close(&dx, &widen(&of_input(&average_dx)), 1e-6);
    });
}

prop_compose! {
    fn windows()(
        batch in 0..3usize,
        channels in 1..40usize,
        in_size in [1..14usize, 1..14usize],
        kernel in [1..5usize, 1..5usize],
        stride in [1..4usize, 1..4usize],
        dilation in [1..3usize, 1..3usize],
        padding in [0..3usize, 0..3usize],
        ceil_mode in any::<bool>(),
    ) -> (Option<Pool2dGeometry>, usize) {
        let padding = [padding[0].min(kernel[0] / 2), padding[1].min(kernel[1] / 2)];
        let planes = batch * channels;
        let geometry =
            Pool2dGeometry::new(planes, in_size, kernel, stride, padding, dilation, ceil_mode);
        (geometry.ok(), channels)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn windows_are_those_of_channels_first(
        (geometry, channels) in windows(), count_include_pad in any::<bool>(),
    ) {
        if let Some(geometry) = geometry {
            check_max(&geometry, channels);
            let geometry = Pool2dGeometry { dilation: [1, 1], ..geometry };
            if geometry.check().is_ok() {
                check_average(&geometry, channels, count_include_pad);
            }
        }
    }

    #[test]
    fn bins_are_those_of_channels_first(
        batch in 0..3usize,
        channels in 1..40usize,
        in_size in [1..14usize, 1..14usize],
        out_size in prop_oneof![Just([1, 1]), [1..16usize, 1..16usize]],
    ) {
        check_adaptive(&AdaptivePool2dGeometry { planes: batch * channels, in_size, out_size }, channels);
    }
}

#[test]
fn common_poolings_of_many_channels() {
    let window = |kernel: usize, stride: usize, padding: usize| {
        let pair = |size: usize| [size, size];
        Pool2dGeometry::new(
            2 * 200,
            [15, 16],
            pair(kernel),
            pair(stride),
            pair(padding),
            [1, 1],
            false,
        )
        .unwrap()
    };
    for geometry in [window(2, 2, 0), window(3, 2, 1), window(3, 1, 1)] {
        check_max(&geometry, 200);
        check_average(&geometry, 200, true);
        check_average(&geometry, 200, false);
    }
    for out_size in [[1, 1], [7, 7]] {
        let geometry = AdaptivePool2dGeometry {
            planes: 2 * 300,
            in_size: [16, 16],
            out_size,
        };
        check_adaptive(&geometry, 300);
    }
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    let geometry =
        Pool2dGeometry::new(2 * 48, [40, 40], [3, 3], [2, 2], [1, 1], [1, 1], false).unwrap();
    let global = AdaptivePool2dGeometry {
        planes: 2 * 48,
        in_size: [40, 40],
        out_size: [1, 1],
    };
    let x = data(1, 2 * 48 * 1600, -1.0, 1.0);
    let dy = data(2, 2 * 48 * 400, -1.0, 1.0);
    same_bits_for_any_threads(|| {
        let mut positions = vec![0u8; dy.len()];
        let [mut max, mut average] = [0; 2].map(|_| vec![0.0; dy.len()]);
        let [mut max_dx, mut average_dx] = [0; 2].map(|_| vec![0.0; x.len()]);
        let mut mean = vec![0.0; 2 * 48];
        last::max_pool2d_positions(&geometry, 48, &x, &mut max, &mut positions).unwrap();
        last::max_pool2d_backward(&geometry, 48, &positions, &dy, &mut max_dx).unwrap();
        last::avg_pool2d(&geometry, 48, true, &x, &mut average).unwrap();
        last::avg_pool2d_backward(&geometry, 48, true, &dy, &mut average_dx).unwrap();
        last::adaptive_avg_pool2d(&global, 48, &x, &mut mean).unwrap();
        [max, average, max_dx, average_dx, mean].concat()
    });
}

#[test]
fn what_does_not_fit_is_an_error() {
    let geometry = Pool2dGeometry::new(6, [4, 4], [2, 2], [2, 2], [0, 0], [1, 1], false).unwrap();
    let (x, mut y) = ([0.0; 96], [0.0; 24]);
    let error = last::max_pool2d(&geometry, 4, &x, &mut y);
    assert!(matches!(error, Err(Error::Geometry { .. })));
    let error = last::max_pool2d(&geometry, 0, &x, &mut y);
    assert!(matches!(error, Err(Error::Geometry { .. })));
    let error = last::max_pool2d(&geometry, 3, &x[1..], &mut y);
    assert!(matches!(error, Err(Error::Length { operand: "x", .. })));
    let error = last::max_pool2d_positions(&geometry, 3, &x, &mut y, &mut [0u8; 23]);
    assert!(matches!(
        error,
        Err(Error::Length {
            operand: "positions",
            ..
        })
    ));
    let dilated = Pool2dGeometry {
        dilation: [2, 2],
        ..geometry
    };
    let error = last::avg_pool2d(&dilated, 3, true, &x, &mut y);
    assert!(matches!(error, Err(Error::Geometry { .. })));
    let wide = AdaptivePool2dGeometry {
        planes: 1,
        in_size: [17, 17],
        out_size: [1, 1],
    };
    let error = last::adaptive_max_pool2d_positions(&wide, 1, &[0.0; 289], &mut [0.0], &mut [0u8]);
    assert!(error.unwrap_err().to_string().contains("use `f32`"));
}
