//! The order of axes against plain loops, at every level, for any number of threads.

mod support;

use proptest::prelude::*;
use support::*;
use tallow_kernels::channels_last::layout::{to_channels_first, to_channels_last};
use tallow_kernels::{ChannelShape, Error};

fn check(batch: usize, channels: usize, spatial: usize) {
    let shape = ChannelShape::new(batch, channels, spatial);
    let x = data(1, batch * channels * spatial, -1.0, 1.0);
    let mut expected = vec![0.0; x.len()];
    for n in 0..batch {
        for c in 0..channels {
            for s in 0..spatial {
                expected[(n * spatial + s) * channels + c] = x[(n * channels + c) * spatial + s];
            }
        }
    }
    at_every_level(|level| {
        let (mut last, mut first) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
        to_channels_last(&shape, &x, &mut last).unwrap();
        assert!(last == expected, "{shape:?} to channels last at {level}");
        to_channels_first(&shape, &last, &mut first).unwrap();
        assert!(first == x, "{shape:?} to channels first at {level}");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn elements_go_where_plain_loops_put_them(
        batch in 0..4usize, channels in 0..70usize, spatial in 0..90usize,
    ) {
        check(batch, channels, spatial);
    }
}

#[test]
fn large_images_and_few_channels_too() {
    for channels in [1, 2, 3, 4, 5, 8] {
        check(3, channels, 12_345);
    }
    check(2, 65, 1_000);
    check(70, 600, 3);
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    let shape = ChannelShape::new(3, 40, 700);
    let x = data(2, 3 * 40 * 700, -1.0, 1.0);
    same_bits_for_any_threads(|| {
        let mut y = vec![f32::NAN; x.len()];
        to_channels_last(&shape, &x, &mut y).unwrap();
        y
    });
}

#[test]
fn a_wrong_length_is_an_error() {
    let shape = ChannelShape::new(1, 2, 3);
    let error = to_channels_last(&shape, &[0.0; 6], &mut [0.0; 5]);
    assert!(matches!(error, Err(Error::Length { operand: "y", .. })));
    let error = to_channels_first(&shape, &[0.0; 7], &mut [0.0; 6]);
    assert!(matches!(error, Err(Error::Length { operand: "x", .. })));
}
