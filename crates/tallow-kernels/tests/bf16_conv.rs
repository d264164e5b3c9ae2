//! Convolution in bfloat16 against plain loops in f64 over operands that were rounded first, on every SIMD level, for any
//! number of threads.

use proptest::prelude::*;
use tallow_kernels::Error;
use tallow_kernels::bf16;
use tallow_kernels::channels_last::conv::{self, Algorithm, Direction, Finish};
use tallow_kernels::conv::Conv2dGeometry;
use tallow_kernels::simd::{Level, with_level};
use tallow_kernels::workspace::Workspace;

#[allow(dead_code, reason = "the bias has no gradient of its own here")]
mod reference;
mod support;

use support::data;

const ALGORITHM: Algorithm = Algorithm::Bf16;
const CLAMP: [f32; 2] = [-0.5, 12.0];

/// `[N, C, pixels]` as `[N, pixels, C]`.
fn channels_last<T: Copy>(values: &[T], channels: usize, pixels: usize) -> Vec<T> {
    let image = channels * pixels;
    (0..values.len())
        .map(|at| {
            let (start, at) = (at / image * image, at % image);
            values[start + at % channels * pixels + at / channels]
        })
        .collect()
}

fn rounded(x: &[f32]) -> Vec<f32> {
    let mut y = vec![0.0; x.len()];
    bf16::round(x, &mut y).unwrap();
    y
}

/// All operands, activations with their channels last. None of them is a bfloat16.
struct Case {
    geometry: Conv2dGeometry,
    x: Vec<f32>,
    w: Vec<f32>,
    bias: Vec<f32>,
    residual: Vec<f32>,
    dy: Vec<f32>,
    add: Vec<f32>,
}

#[derive(PartialEq)]
struct Results {
    y: Vec<f32>,
    dx: Vec<f32>,
    dw: Vec<f32>,
}

fn pack(geometry: &Conv2dGeometry, direction: Direction, w: &[f32]) -> Vec<f32> {
    let mut packed = vec![f32::NAN; conv::packed_len(geometry, direction, ALGORITHM)];
    conv::pack(geometry, direction, ALGORITHM, w, &mut packed).unwrap();
    packed
}

/// A workspace full of values that must not leak into results.
fn dirty_workspace() -> Workspace {
    let workspace = Workspace::new();
    let buffers: Vec<_> = (0..8)
        .map(|_| {
            let mut scratch = workspace.take(50_000);
            scratch.fill(f32::NAN);
            scratch
        })
        .collect();
    drop(buffers);
    workspace
}

impl Case {
    /// The operands, and the results of plain loops over rounded ones.
    fn new(geometry: Conv2dGeometry) -> (Self, [Vec<f64>; 3]) {
        let g = &geometry;
        let plane: usize = g.in_size.iter().product();
        let out: usize = g.out_size().iter().product();
        let taps: usize = g.kernel.iter().product();
        let weights = g.out_channels * g.in_channels / g.groups * taps;
        let x = data(1, g.batch * g.in_channels * plane, -1.0, 1.0);
        let w = data(2, weights, -1.0, 1.0);
        let bias = data(3, g.out_channels, -1.0, 1.0);
        let dy = data(4, g.batch * g.out_channels * out, -1.0, 1.0);
        let residual = data(5, dy.len(), -1.0, 1.0);
        let add = data(6, x.len(), -1.0, 1.0);
        let (x16, w16, dy16) = (rounded(&x), rounded(&w), rounded(&dy));
        let y = reference::forward(g, &x16, &w16, &bias);
        let dx = reference::backward_input(g, &w16, &dy16);
        let plus = |sums: Vec<f64>, channels, pixels, other: &[f32]| -> Vec<f64> {
            channels_last(&sums, channels, pixels)
                .iter()
                .zip(other)
                .map(|(sum, other)| sum + f64::from(*other))
                .collect()
        };
        let [low, high] = CLAMP.map(f64::from);
        let y = plus(y, g.out_channels, out, &residual);
        let expected = [
            y.iter().map(|y| y.clamp(low, high)).collect(),
            plus(dx, g.in_channels, plane, &add),
            reference::backward_weight(g, &x16, &dy16),
        ];
        let case = Self {
            x: channels_last(&x, g.in_channels, plane),
            dy: channels_last(&dy, g.out_channels, out),
            geometry,
            w,
            bias,
            residual,
            add,
        };
        (case, expected)
    }

    fn run(&self) -> Results {
        let workspace = dirty_workspace();
        let g = &self.geometry;
        let mut y = vec![f32::NAN; self.dy.len()];
        let mut dx = vec![f32::NAN; self.x.len()];
        let mut dw = vec![f32::NAN; self.w.len()];
        let finish = Finish {
            bias: Some(&self.bias),
            residual: Some(&self.residual),
            clamp: Some(CLAMP),
        };
        let packed = pack(g, Direction::Forward, &self.w);
        conv::forward(g, ALGORITHM, &self.x, &packed, &finish, &mut y, &workspace).unwrap();
        let packed = pack(g, Direction::BackwardInput, &self.w);
        let (dy, add) = (&self.dy, Some(&self.add[..]));
        conv::backward_input(g, ALGORITHM, &packed, dy, add, &mut dx, &workspace).unwrap();
        conv::backward_weight(g, ALGORITHM, &self.x, dy, &mut dw, &workspace).unwrap();
        Results { y, dx, dw }
    }
}

fn in_pool<R: Send>(threads: usize, f: impl FnOnce() -> R + Send) -> R {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.unwrap().install(f)
}

fn check(geometry: Conv2dGeometry) {
    let (case, expected) = Case::new(geometry);
    for level in Level::available() {
        let results = with_level(level, || {
            let results = in_pool(1, || case.run());
            assert!(
                in_pool(2, || case.run()) == results,
                "{geometry:?} at {level}: 2 threads give other bits than one"
            );
            results
        });
        let found = [&results.y, &results.dx, &results.dw];
        for ((name, expected), found) in ["y", "dx", "dw"].iter().zip(&expected).zip(found) {
            let error = relative_error(found, expected);
            assert!(
                error < 1e-5,
                "{name} of {geometry:?} at {level}: relative error {error}"
            );
        }
    }
}

/// The largest difference, relative to the largest value; NaN counts as infinite.
fn relative_error(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1e-30f64, |max, x| max.max(x.abs()));
    let error = |(found, expected): (&f32, &f64)| (f64::from(*found) - expected).abs() / scale;
    found.iter().zip(expected).map(error).fold(0.0, |max, x| {
        if x.is_nan() {
            f64::INFINITY
        } else {
            max.max(x)
        }
    })
}

/// Batch, channels, sizes, output channels; then kernel, stride, padding, dilation; then groups.
fn square(
    (batch, in_channels, in_size, out_channels): (usize, usize, [usize; 2], usize),
    [kernel, stride, padding, dilation]: [usize; 4],
    groups: usize,
) -> Conv2dGeometry {
    Conv2dGeometry::new(
        batch,
        in_channels,
        in_size,
        out_channels,
        [kernel; 2],
        [stride; 2],
        [padding; 2],
        [dilation; 2],
        groups,
    )
    .unwrap()
}

#[test]
fn convolutions_are_those_of_rounded_operands() {
    for (sizes, parameters) in [
        ((2, 16, [8, 8], 24), [3, 1, 1, 1]),
        // Odd channels on either side, and a number of pixels that isn't even.
        ((3, 5, [7, 7], 9), [3, 1, 1, 1]),
        ((1, 17, [5, 5], 67), [3, 1, 1, 1]),
        ((2, 33, [9, 9], 31), [1, 2, 0, 1]),
        ((2, 20, [16, 15], 33), [3, 2, 1, 1]),
        ((1, 7, [1, 1], 1), [1, 1, 0, 1]),
        // Few channels, whose rows are copied with their padding.
        ((2, 3, [37, 35], 16), [7, 2, 3, 1]),
        ((4, 1, [12, 12], 6), [5, 1, 2, 1]),
        // Small maps of many images, whose padding is skipped.
        ((33, 40, [4, 4], 40), [3, 1, 1, 1]),
        ((17, 33, [5, 6], 35), [3, 2, 1, 1]),
        ((37, 33, [2, 2], 33), [3, 1, 1, 1]),
        // More channels than a block has, and more pixels.
        ((1, 1100, [3, 3], 7), [3, 1, 1, 1]),
        ((2, 7, [5, 5], 530), [3, 2, 1, 1]),
        ((3, 9, [30, 29], 6), [1, 1, 0, 1]),
        // Kernels and padding beyond the image.
        ((2, 3, [4, 5], 6), [3, 1, 7, 1]),
        ((2, 6, [17, 13], 10), [5, 1, 4, 2]),
    ] {
        check(square(sizes, parameters, 1));
    }
}

#[test]
fn groups_of_even_and_odd_channels_are_paired_apart() {
    for (sizes, parameters, groups) in [
        ((2, 16, [9, 9], 16), [3, 1, 1, 1], 16),
        ((2, 37, [8, 7], 37), [3, 2, 1, 1], 37),
        ((2, 12, [10, 10], 20), [3, 1, 1, 1], 4),
        ((2, 24, [10, 10], 6), [3, 2, 1, 1], 2),
        ((2, 40, [6, 6], 40), [1, 1, 0, 1], 8),
    ] {
        check(square(sizes, parameters, groups));
    }
}

#[test]
fn an_empty_batch_has_no_output_and_a_weight_gradient_of_zero() {
    let (case, _) = Case::new(square((0, 5, [8, 8], 4), [3, 1, 1, 1], 1));
    let results = case.run();
    assert!(results.y.is_empty() && results.dx.is_empty());
    assert!(results.dw.iter().all(|value| *value == 0.0));
}

#[test]
fn infinities_stay_with_the_pixels_that_read_them() {
    let g = square((1, 3, [3, 3], 2), [1, 1, 0, 1], 1);
    let (mut case, _) = Case::new(g);
    case.x[4 * 3 + 2] = f32::INFINITY;
    for level in Level::available() {
        let results = with_level(level, || case.run());
        for (pixel, y) in results.y.chunks_exact(2).enumerate() {
            let at_bounds = y.iter().all(|y| CLAMP.contains(y));
            assert!(y.iter().all(|y| !y.is_nan()), "pixel {pixel} at {level}");
            assert!(pixel != 4 || at_bounds, "{y:?} at {level}");
        }
        for dw in results.dw.chunks_exact(3) {
            assert!(dw[0].is_finite() && dw[1].is_finite(), "{dw:?} at {level}");
            assert!(dw[2].is_infinite(), "{dw:?} at {level}");
        }
    }
}

#[test]
fn operands_of_other_lengths_are_refused() {
    let (case, _) = Case::new(square((1, 3, [5, 5], 5), [3, 1, 1, 1], 1));
    let (g, workspace) = (&case.geometry, Workspace::new());
    let refused = |result| matches!(result, Err(Error::Length { .. }));
    with_level(Level::detected(), || {
        let packed = pack(g, Direction::Forward, &case.w);
        let back = pack(g, Direction::BackwardInput, &case.w);
        let (x, dy, none) = (&case.x[..], &case.dy[..], Finish::default());
        let (mut y, mut dx, mut dw) = (dy.to_vec(), x.to_vec(), case.w.clone());
        let forward = |x: &[f32], packed: &[f32], y: &mut [f32]| {
            refused(conv::forward(g, ALGORITHM, x, packed, &none, y, &workspace))
        };
        assert!(forward(&x[1..], &packed, &mut y));
        assert!(forward(x, &packed[1..], &mut y));
        assert!(forward(x, &packed, &mut y[1..]));
        assert!(!forward(x, &packed, &mut y));
        let mut backward = |packed: &[f32], dy: &[f32]| {
            refused(conv::backward_input(
                g, ALGORITHM, packed, dy, None, &mut dx, &workspace,
            ))
        };
        assert!(backward(&back[1..], dy) && backward(&back, &dy[1..]) && !backward(&back, dy));
        let mut weight = |x: &[f32], dy: &[f32]| {
            refused(conv::backward_weight(
                g, ALGORITHM, x, dy, &mut dw, &workspace,
            ))
        };
        assert!(weight(&x[1..], dy) && weight(x, &dy[1..]) && !weight(x, dy));
    });
}

#[test]
fn repeated_runs_on_one_workspace_need_no_more_memory() {
    let (case, _) = Case::new(square((2, 19, [9, 9], 21), [3, 1, 1, 1], 1));
    let workspace = Workspace::new();
    let run = || {
        let g = &case.geometry;
        let (mut y, mut dw) = (case.dy.clone(), case.w.clone());
        let packed = pack(g, Direction::Forward, &case.w);
        let none = Finish::default();
        conv::forward(g, ALGORITHM, &case.x, &packed, &none, &mut y, &workspace).unwrap();
        conv::backward_weight(g, ALGORITHM, &case.x, &case.dy, &mut dw, &workspace).unwrap();
        workspace.bytes()
    };
    // Buffers may trade places in the first runs.
    let runs = with_level(Level::detected(), || in_pool(1, || [(); 8].map(|()| run())));
    assert!(runs[0] > 0 && runs[6] == runs[7], "{runs:?}");
}

prop_compose! {
    fn any_geometry()(
        batch in 1usize..4,
        (groups, in_per_group, out_per_group) in (1usize..4, 1usize..22, 1usize..22),
        kernel in [1usize..5, 1usize..5],
        stride in [1usize..4, 1usize..4],
        padding in [0usize..4, 0usize..4],
        dilation in [1usize..3, 1usize..3],
        room in [0usize..8, 0usize..8],
    ) -> Conv2dGeometry {
        let in_size = [0, 1].map(|axis: usize| {
            let reach = dilation[axis] * (kernel[axis] - 1) + 1;
            (reach + room[axis]).saturating_sub(2 * padding[axis]).max(1)
        });
        Conv2dGeometry::new(
            batch, groups * in_per_group, in_size, groups * out_per_group, kernel, stride, padding, dilation, groups,
        ).unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_geometry_is_that_of_rounded_operands(geometry in any_geometry()) {
        check(geometry);
    }
}
