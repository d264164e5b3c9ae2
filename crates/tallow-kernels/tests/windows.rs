//! Pools and interpolation against PyTorch's values, indices and gradients
//! (`golden/make_golden.py`), and what PyTorch has no case for.

mod support;

use support::*;
use tallow_kernels::Error;
use tallow_kernels::interpolate::{self, Interpolate2d, Mode};
use tallow_kernels::pool::*;

const GOLDEN: &str = include_str!("golden/windows.txt");

/// One line of the file.
struct Case {
    name: String,
    numbers: Vec<usize>,
    x: Vec<f32>,
    y: Vec<f64>,
    indices: Vec<u32>,
    dy: Vec<f32>,
    dx: Vec<f64>,
}

fn numbers<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> Vec<T> {
    text.split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect()
}

impl Case {
    fn parse(line: &str) -> Self {
        let parts: Vec<_> = line.split(';').collect();
        let (name, geometry) = parts[0].split_once(' ').unwrap();
        let (y, dx): (Vec<f64>, Vec<f64>) = (numbers(parts[1]), numbers(parts[3]));
        Self {
            name: name.to_owned(),
            numbers: numbers(geometry),
            x: (0..dx.len())
                .map(|i| (i * 37 % 101) as f32 / 8.0 - 6.0)
                .collect(),
            dy: (0..y.len())
                .map(|i| (i * 29 % 53) as f32 / 16.0 - 1.0)
                .collect(),
            y,
            indices: numbers(parts[2]),
            dx,
        }
    }

    /// Output, indices and input gradient of our kernels.
    fn run(&self) -> (Vec<f32>, Vec<u32>, Vec<f32>) {
        let mut y = vec![f32::NAN; self.y.len()];
        let mut indices = vec![u32::MAX; self.indices.len()];
        let mut dx = vec![f32::NAN; self.dx.len()];
        let (x, dy, n) = (&self.x, &self.dy, &self.numbers);
        let window = || {
            let pair = |at: usize| [n[at], n[at + 1]];
            Pool2dGeometry::new(
                n[0],
                pair(1),
                pair(3),
                pair(5),
                pair(7),
                pair(9),
                n[11] == 1,
            )
            .unwrap()
        };
        let bins = || AdaptivePool2dGeometry {
            planes: n[0],
            in_size: [n[1], n[2]],
            out_size: [n[3], n[4]],
        };
        match self.name.as_str() {
            "max_pool2d" => {
                max_pool2d(&window(), x, &mut y, &mut indices).unwrap();
                max_pool2d_backward(&window(), &indices, dy, &mut dx).unwrap();
            }
            "avg_pool2d" => {
                avg_pool2d(&window(), n[12] == 1, x, &mut y).unwrap();
                avg_pool2d_backward(&window(), n[12] == 1, dy, &mut dx).unwrap();
            }
            "adaptive_avg_pool2d" => {
                adaptive_avg_pool2d(&bins(), x, &mut y).unwrap();
                adaptive_avg_pool2d_backward(&bins(), dy, &mut dx).unwrap();
            }
            "adaptive_max_pool2d" => {
                adaptive_max_pool2d(&bins(), x, &mut y, &mut indices).unwrap();
                adaptive_max_pool2d_backward(&bins(), &indices, dy, &mut dx).unwrap();
            }
            "interpolate" => {
                let mode = match n[5] {
                    0 => Mode::Nearest,
                    mode => Mode::Bilinear {
                        align_corners: mode == 2,
                    },
                };
                let AdaptivePool2dGeometry {
                    planes,
                    in_size,
                    out_size,
                } = bins();
                let geometry = Interpolate2d {
                    planes,
                    in_size,
                    out_size,
                    mode,
                };
                interpolate::forward(&geometry, x, &mut y).unwrap();
                interpolate::backward(&geometry, dy, &mut dx).unwrap();
            }
            name => panic!("no kernel for {name}"),
        }
        (y, indices, dx)
    }
}

#[test]
fn values_indices_and_gradients_are_pytorchs() {
    let cases: Vec<_> = GOLDEN.lines().map(Case::parse).collect();
    assert_eq!(cases.len(), 72);
    at_every_level(|_| {
        for case in &cases {
            println!("{} {:?}", case.name, case.numbers);
            let (y, indices, dx) = case.run();
            assert_close(&y, &case.y, 1e-6);
            assert_eq!(indices, case.indices);
            assert_close(&dx, &case.dx, 2e-6);
        }
    });
}

fn max_of(geometry: &Pool2dGeometry, x: &[f32]) -> (Vec<f32>, Vec<u32>) {
    let [height, width] = geometry.out_size();
    let len = geometry.planes * height * width;
    let (mut y, mut indices) = (vec![0.0; len], vec![0; len]);
    max_pool2d(geometry, x, &mut y, &mut indices).unwrap();
    (y, indices)
}

fn square(
    planes: usize,
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Pool2dGeometry {
    let twice = |n| [n, n];
    let (stride, padding) = (twice(stride), twice(padding));
    Pool2dGeometry::new(
        planes,
        twice(size),
        twice(kernel),
        stride,
        padding,
        [1, 1],
        false,
    )
    .unwrap()
}

#[test]
fn the_first_of_equal_maxima_takes_the_gradient() {
    at_every_level(|_| {
        for (size, stride) in [(40, 2), (40, 1), (42, 3)] {
            let geometry = square(2, size, 3, stride, 1);
            let x = vec![1.0; 2 * size * size];
            let (y, indices) = max_of(&geometry, &x);
            let [height, width] = geometry.out_size();
            for (i, (&y, &index)) in y.iter().zip(&indices).enumerate() {
                let (row, col) = (i / width % height, i % width);
                let first = |at: usize| (at * stride).saturating_sub(1);
                assert_eq!((y, index as usize), (1.0, first(row) * size + first(col)));
            }
            let mut dx = vec![f32::NAN; x.len()];
            max_pool2d_backward(&geometry, &indices, &vec![1.0; y.len()], &mut dx).unwrap();
            assert_eq!(dx.iter().sum::<f32>(), y.len() as f32);
        }
    });
}

#[test]
fn a_nan_wins_over_everything_in_its_windows() {
    at_every_level(|_| {
        for stride in [1, 2, 3] {
            let geometry = square(1, 24, 3, stride, 1);
            let mut x = data(1, 24 * 24, -1.0, 1.0);
            x[10 * 24 + 9] = f32::NAN;
            let (y, indices) = max_of(&geometry, &x);
            let [_, width] = geometry.out_size();
            for (i, y) in y.iter().enumerate() {
                let covers =
                    |at: usize, pixel: usize| (at * stride..at * stride + 3).contains(&(pixel + 1));
                let has_nan = covers(i / width, 10) && covers(i % width, 9);
                assert_eq!(y.is_nan(), has_nan, "window {i} at stride {stride}");
                if has_nan {
                    assert_eq!(indices[i], 10 * 24 + 9);
                }
            }
        }
        let bins = AdaptivePool2dGeometry {
            planes: 1,
            in_size: [2, 2],
            out_size: [1, 1],
        };
        let (mut y, mut index) = ([0.0], [9]);
        adaptive_max_pool2d(&bins, &[1.0, f32::NAN, 3.0, 2.0], &mut y, &mut index).unwrap();
        assert!(y[0].is_nan() && index == [1]);
    });
}

#[test]
fn nothing_but_negative_infinity_is_still_a_maximum() {
    let geometry = square(1, 4, 2, 2, 1);
    let (y, indices) = max_of(&geometry, &[f32::NEG_INFINITY; 16]);
    assert_eq!(y, [f32::NEG_INFINITY; 9]);
    assert_eq!(indices, [0, 1, 3, 4, 5, 7, 12, 13, 15]);
}

#[test]
fn sizes_that_have_no_output_are_errors_that_say_why() {
    let new = |size, kernel, stride, padding, dilation| {
        Pool2dGeometry::new(1, size, kernel, stride, padding, dilation, false)
    };
    for (geometry, word) in [
        (new([2, 4], [3, 3], [1, 1], [0, 0], [1, 1]), "doesn't fit"),
        (
            new([4, 4], [2, 2], [1, 1], [2, 0], [1, 1]),
            "more than half",
        ),
        (
            new([4, 4], [2, 0], [1, 1], [0, 0], [1, 1]),
            "kernel width is 0",
        ),
        (
            new([4, 4], [2, 2], [0, 1], [0, 0], [1, 1]),
            "stride height is 0",
        ),
        (
            new([4, 0], [2, 2], [1, 1], [0, 0], [1, 1]),
            "input width is 0",
        ),
        (
            new([4, 4], [2, 2], [1, 1], [0, 0], [0, 1]),
            "dilation height is 0",
        ),
        (
            new([4, usize::MAX], [2, 2], [1, 1], [0, 0], [1, 1]),
            "more than",
        ),
        (
            new(
                [4, 4],
                [2, usize::MAX],
                [1, 1],
                [0, usize::MAX],
                [1, usize::MAX],
            ),
            "more than",
        ),
        // In the second of three windows the taps lie at -1 and 2.
        (
            new([2, 2], [2, 2], [1, 1], [1, 1], [3, 3]),
            "holds no pixel",
        ),
    ] {
        let message = geometry.expect_err(word).to_string();
        assert!(message.contains(word), "{message}");
    }
    let dilated = new([5, 5], [2, 2], [1, 1], [0, 0], [2, 2]).unwrap();
    let average = avg_pool2d(&dilated, true, &[0.0; 25], &mut [0.0; 9]);
    assert!(matches!(
        average,
        Err(Error::Geometry {
            kernel: "avg_pool2d",
            ..
        })
    ));
    let bins = AdaptivePool2dGeometry {
        planes: 1,
        in_size: [2, 2],
        out_size: [0, 1],
    };
    assert!(adaptive_avg_pool2d(&bins, &[0.0; 4], &mut []).is_err());
    let mode = Mode::Nearest;
    let resize = Interpolate2d {
        planes: 1,
        in_size: [0, 2],
        out_size: [1, 1],
        mode,
    };
    assert!(interpolate::forward(&resize, &[], &mut [0.0]).is_err());
    let huge = Interpolate2d {
        planes: 1,
        in_size: [1, 1],
        out_size: [1 << 25, 1],
        mode,
    };
    assert!(interpolate::forward(&huge, &[0.0], &mut [0.0]).is_err());
}

#[test]
fn slices_of_other_lengths_and_foreign_indices_are_errors() {
    let geometry = square(2, 4, 2, 2, 0);
    let (mut y, mut indices, mut dx) = ([0.0; 8], [0; 8], [0.0; 32]);
    let short = max_pool2d(&geometry, &[0.0; 31], &mut y, &mut indices);
    assert_eq!(
        short.unwrap_err(),
        Error::Length {
            kernel: "max_pool2d",
            operand: "x",
            expected: 32,
            found: 31
        }
    );
    assert!(max_pool2d(&geometry, &[0.0; 32], &mut y, &mut indices[1..]).is_err());
    assert!(avg_pool2d(&geometry, true, &[0.0; 32], &mut y[1..]).is_err());
    assert!(avg_pool2d_backward(&geometry, true, &[0.0; 8], &mut dx[1..]).is_err());
    let foreign = max_pool2d_backward(&geometry, &[0, 0, 0, 0, 0, 16, 99, 0], &[0.0; 8], &mut dx);
    let expected = Error::Index {
        kernel: "max_pool2d_backward",
        row: 5,
        value: 16,
        bound: 16,
    };
    assert_eq!(foreign.unwrap_err(), expected);
}

#[test]
fn bits_depend_neither_on_threads_nor_on_the_width_of_a_register() {
    let planes = 67;
    let x = data(2, planes * 31 * 33, -1.0, 1.0);
    let compute = || {
        let mut out = Vec::new();
        let (kernel, padding) = ([3, 3], [1, 1]);
        let pool =
            Pool2dGeometry::new(planes, [31, 33], kernel, [2, 2], padding, [1, 1], false).unwrap();
        let (y, indices) = max_of(&pool, &x);
        let mut dx = vec![0.0; x.len()];
        max_pool2d_backward(&pool, &indices, &y, &mut dx).unwrap();
        out.extend_from_slice(&dx);
        let mut averages = y.clone();
        avg_pool2d(&pool, true, &x, &mut averages).unwrap();
        avg_pool2d_backward(&pool, true, &averages, &mut dx).unwrap();
        out.extend([y, averages, dx.clone()].concat());
        for out_size in [[1, 1], [5, 4]] {
            let bins = AdaptivePool2dGeometry {
                planes,
                in_size: [31, 33],
                out_size,
            };
            let mut y = vec![0.0; planes * out_size[0] * out_size[1]];
            adaptive_avg_pool2d(&bins, &x, &mut y).unwrap();
            adaptive_avg_pool2d_backward(&bins, &y, &mut dx).unwrap();
            out.extend([y, dx.clone()].concat());
        }
        let mode = Mode::Bilinear {
            align_corners: false,
        };
        let resize = Interpolate2d {
            planes,
            in_size: [31, 33],
            out_size: [47, 90],
            mode,
        };
        let mut y = vec![0.0; planes * 47 * 90];
        interpolate::forward(&resize, &x, &mut y).unwrap();
        interpolate::backward(&resize, &y, &mut dx).unwrap();
        out.extend([y, dx].concat());
        out
    };
    same_bits_for_any_threads(compute);
    same_bits_for_fused_levels(compute);
}
