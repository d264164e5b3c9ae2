//! Convolution on channels-last slices against plain loops in f64, on every SIMD level, for any number of threads.

use proptest::prelude::*;
use tallow_kernels::channels_last::conv::{self, Algorithm, Direction, Finish};
use tallow_kernels::conv::Conv2dGeometry;
use tallow_kernels::simd::{Level, with_level};
use tallow_kernels::workspace::Workspace;
use tallow_kernels::{Error, Result};

mod reference;
mod support;

use support::data;

/// `[N, C, H, W]` as `[N, H, W, C]`.
fn channels_last<T: Copy>(values: &[T], channels: usize, plane: usize) -> Vec<T> {
    let images = values.chunks_exact((channels * plane).max(1));
    let pixel = |image: &[T], pixel| -> Vec<T> {
        (0..channels)
            .map(|channel| image[channel * plane + pixel])
            .collect()
    };
    images
        .flat_map(|image| {
            (0..plane)
                .flat_map(|at| pixel(image, at))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// All operands of a convolution, activations with their channels last.
#[derive(Debug)]
struct Case {
    geometry: Conv2dGeometry,
    x: Vec<f32>,
    w: Vec<f32>,
    bias: Vec<f32>,
    residual: Vec<f32>,
    dy: Vec<f32>,
    add: Vec<f32>,
}

#[derive(Debug, PartialEq)]
struct Results {
    y: Vec<f32>,
    dx: Vec<f32>,
    dw: Vec<f32>,
    db: Vec<f32>,
}

const CLAMP: [f32; 2] = [-0.5, 12.0];

/// A workspace full of values that must not leak into results.
fn dirty_workspace() -> Workspace {
    let workspace = Workspace::new();
    let dirty: Vec<_> = (0..8)
        .map(|_| {
            let mut scratch = workspace.take(100_000);
            scratch.fill(f32::NAN);
            scratch
        })
        .collect();
    drop(dirty);
    workspace
}

fn pack(geometry: &Conv2dGeometry, direction: Direction, w: &[f32]) -> Vec<f32> {
    let algorithm = Algorithm::Direct;
    let mut packed = vec![f32::NAN; conv::packed_len(geometry, direction, algorithm)];
    conv::pack(geometry, direction, algorithm, w, &mut packed).unwrap();
    packed
}

impl Case {
    /// The operands, and the results as plain loops compute them.
    fn new(geometry: Conv2dGeometry) -> (Self, [Vec<f64>; 4]) {
        let g = &geometry;
        let plane: usize = g.in_size.iter().product();
        let out: usize = g.out_size().iter().product();
        let taps: usize = g.kernel.iter().product();
        let x = data(1, g.batch * g.in_channels * plane, -1.0, 1.0);
        let w = data(
            2,
            g.out_channels * g.in_channels / g.groups * taps,
            -1.0,
            1.0,
        );
        let bias = data(3, g.out_channels, -1.0, 1.0);
        let dy = data(4, g.batch * g.out_channels * out, -1.0, 1.0);
        let residual = data(5, dy.len(), -1.0, 1.0);
        let add = data(6, x.len(), -1.0, 1.0);
        let y = channels_last(&reference::forward(g, &x, &w, &bias), g.out_channels, out);
        let dx = channels_last(&reference::backward_input(g, &w, &dy), g.in_channels, plane);
        let plus = |sum: &[f64], other: &[f32]| -> Vec<f64> {
            sum.iter()
                .zip(other)
                .map(|(sum, other)| sum + f64::from(*other))
                .collect()
        };
        let [low, high] = CLAMP.map(f64::from);
        let y = plus(&y, &residual)
            .into_iter()
            .map(|y| y.clamp(low, high))
            .collect();
        let dw = reference::backward_weight(g, &x, &dy);
        let db = reference::backward_bias(g, &dy);
        let expected = [y, plus(&dx, &add), dw, db];
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

    /// Runs all kernels.
    fn run(&self) -> Results {
        let workspace = dirty_workspace();
        let g = &self.geometry;
        let mut results = Results {
            y: vec![f32::NAN; self.dy.len()],
            dx: vec![f32::NAN; self.x.len()],
            dw: vec![f32::NAN; self.w.len()],
            db: vec![f32::NAN; self.bias.len()],
        };
        let finish = Finish {
            bias: Some(&self.bias),
            residual: Some(&self.residual),
            clamp: Some(CLAMP),
        };
        let algorithm = Algorithm::Direct;
        let packed = pack(g, Direction::Forward, &self.w);
        conv::forward(
            g,
            algorithm,
            &self.x,
            &packed,
            &finish,
            &mut results.y,
            &workspace,
        )
        .unwrap();
        let packed = pack(g, Direction::BackwardInput, &self.w);
        let (dy, add) = (&self.dy, Some(&self.add[..]));
        conv::backward_input(g, algorithm, &packed, dy, add, &mut results.dx, &workspace).unwrap();
        conv::backward_weight(g, algorithm, &self.x, dy, &mut results.dw, &workspace).unwrap();
        conv::backward_bias(g, dy, &mut results.db).unwrap();
        results
    }
}

fn in_pool<R: Send>(threads: usize, f: impl FnOnce() -> R + Send) -> R {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.unwrap().install(f)
}

/// Checks every result at every level with 1, 2 and 3 threads.
fn check(geometry: Conv2dGeometry) {
    let (case, expected) = Case::new(geometry);
    for level in Level::available() {
        let results = with_level(level, || {
            let results = in_pool(1, || case.run());
            for threads in [2, 3] {
                assert!(
                    in_pool(threads, || case.run()) == results,
                    "{geometry:?} at {level}: {threads} threads give other bits than one"
                );
            }
            results
        });
        let found = [&results.y, &results.dx, &results.dw, &results.db];
        for ((name, expected), found) in ["y", "dx", "dw", "db"].iter().zip(&expected).zip(found) {
            let error = relative_error(found, expected);
            assert!(
                error < 1e-5,
                "{name} of {geometry:?} at {level}: relative error {error}"
            );
        }
    }
}

/// The largest difference, relative to the largest value.
fn relative_error(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected
        .iter()
        .fold(1e-30f64, |max, value| max.max(value.abs()));
    let differences = found.iter().zip(expected).map(|(found, expected)| {
        let difference = (f64::from(*found) - expected).abs();
        if difference.is_nan() {
            f64::INFINITY
        } else {
            difference
        }
    });
    differences.fold(0.0, f64::max) / scale
}

/// Batch, channels, sizes, output channels; then kernel, stride, padding, dilation and groups.
fn geometry(
    (batch, in_channels, in_size, out_channels): (usize, usize, [usize; 2], usize),
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
) -> Conv2dGeometry {
    let channels = (in_channels, out_channels);
    Conv2dGeometry::new(
        batch, channels.0, in_size, channels.1, kernel, stride, padding, dilation, groups,
    )
    .unwrap()
}

fn square(
    sizes: (usize, usize, [usize; 2], usize),
    [kernel, stride, padding, dilation]: [usize; 4],
    groups: usize,
) -> Conv2dGeometry {
    geometry(
        sizes,
        [kernel; 2],
        [stride; 2],
        [padding; 2],
        [dilation; 2],
        groups,
    )
}

#[test]
fn a_cpu_with_bf16_gives_the_bits_of_one_with_avx512() {
    let geometry =
        Conv2dGeometry::new(2, 40, [9, 9], 70, [3, 3], [2, 2], [1, 1], [1, 1], 1).unwrap();
    let (case, _) = Case::new(geometry);
    let [without, with] =
        [Level::Avx512, Level::Avx512Bf16].map(|level| with_level(level, || case.run()));
    assert!(without == with);
}

#[test]
fn the_geometries_of_common_networks_agree_with_plain_loops() {
    for (sizes, [kernel, stride, padding]) in [
        ((3, 16, [8, 8], 24), [3, 1, 1]),
        ((2, 64, [16, 16], 64), [3, 1, 1]),
        ((1, 3, [32, 32], 64), [3, 1, 1]),
        ((2, 3, [37, 35], 16), [7, 2, 3]),
        ((2, 40, [9, 9], 70), [1, 1, 0]),
        ((2, 24, [9, 9], 30), [1, 2, 0]),
        ((2, 20, [16, 16], 33), [3, 2, 1]),
        ((9, 96, [4, 4], 130), [3, 1, 1]),
        // Small maps of many images, whose padding is skipped.
        ((33, 40, [4, 4], 40), [3, 1, 1]),
        ((17, 33, [5, 6], 35), [3, 2, 1]),
        ((200, 33, [2, 2], 32), [3, 1, 1]),
        ((5, 130, [7, 7], 65), [3, 1, 1]),
        ((1, 3, [32, 32], 48), [16, 16, 0]),
        ((1, 3, [35, 35], 20), [11, 4, 2]),
        ((4, 1, [28, 28], 6), [5, 1, 2]),
        ((4, 6, [14, 14], 16), [5, 1, 0]),
        ((2, 530, [5, 5], 7), [3, 1, 1]),
        ((2, 7, [5, 5], 530), [3, 2, 1]),
        ((300, 5, [1, 1], 9), [1, 1, 0]),
        ((2, 2, [1, 1], 5), [1, 1, 0]),
        ((2, 4, [3, 3], 600), [1, 2, 0]),
    ] {
        check(square(sizes, [kernel, stride, padding, 1], 1));
    }
}

#[test]
fn uncommon_strides_dilations_and_paddings_agree_with_plain_loops() {
    for (sizes, kernel, stride, padding, dilation) in [
        ((2, 6, [17, 13], 10), [5, 5], [1, 1], [4, 4], [2, 2]),
        ((2, 5, [19, 23], 9), [3, 3], [3, 3], [1, 1], [1, 1]),
        ((2, 5, [19, 23], 9), [3, 2], [2, 3], [0, 2], [3, 2]),
        ((2, 5, [18, 18], 9), [4, 4], [4, 4], [1, 2], [2, 6]),
        ((1, 7, [6, 40], 8), [1, 9], [1, 2], [0, 4], [1, 1]),
        ((1, 7, [40, 6], 8), [9, 1], [5, 1], [4, 0], [1, 1]),
        // Padding beyond what the kernel reaches: whole outputs of zeros.
        ((2, 3, [4, 5], 6), [3, 3], [1, 1], [7, 6], [1, 1]),
        ((2, 3, [4, 5], 6), [1, 1], [2, 2], [3, 3], [1, 1]),
        ((3, 300, [2, 2], 6), [1, 1], [1, 1], [3, 3], [1, 1]),
        // A stride that skips input pixels, whose gradient is zero, or that is larger than the image.
        ((2, 6, [11, 11], 7), [2, 2], [5, 4], [0, 1], [1, 1]),
        ((1, 2, [3, 3], 5), [3, 3], [9, 9], [0, 0], [1, 1]),
        ((2, 20, [2, 3], 17), [3, 3], [5, 7], [3, 3], [1, 1]),
        // A kernel of many taps, and rows of many pixels.
        ((1, 2, [40, 24], 5), [33, 17], [1, 1], [0, 3], [1, 1]),
        ((1, 2, [3, 300], 6), [3, 3], [1, 1], [1, 1], [1, 1]),
        ((1, 17, [3, 600], 6), [1, 3], [1, 1], [0, 1], [1, 1]),
    ] {
        check(geometry(sizes, kernel, stride, padding, dilation, 1));
    }
}

#[test]
fn groups_and_depthwise_agree_with_plain_loops() {
    for (sizes, parameters, groups) in [
        ((2, 16, [9, 9], 16), [3, 1, 1, 1], 16),
        ((2, 37, [15, 13], 37), [3, 2, 1, 1], 37),
        ((2, 6, [20, 20], 12), [5, 1, 4, 2], 6),
        ((3, 8, [7, 7], 8), [7, 1, 3, 1], 8),
        ((40, 3, [4, 4], 3), [3, 1, 1, 1], 3),
        ((2, 12, [10, 10], 8), [3, 1, 1, 1], 4),
        ((2, 24, [10, 10], 48), [3, 2, 1, 1], 2),
        ((2, 32, [6, 6], 32), [1, 1, 0, 1], 4),
        ((1, 2, [30, 30], 2), [19, 1, 9, 1], 2),
    ] {
        check(square(sizes, parameters, groups));
    }
}

#[test]
fn an_empty_batch_has_no_output_and_a_weight_gradient_of_zero() {
    for channels in [3, 20] {
        let (case, _) = Case::new(square((0, channels, [8, 8], 4), [3, 1, 1, 1], 1));
        let results = case.run();
        assert!(results.y.is_empty() && results.dx.is_empty());
        assert!(
            results
                .dw
                .iter()
                .chain(&results.db)
                .all(|value| *value == 0.0)
        );
    }
}

#[test]
fn every_part_of_the_finish_may_be_missing() {
    let (case, _) = Case::new(square((2, 20, [6, 6], 19), [3, 1, 1, 1], 1));
    let workspace = Workspace::new();
    let run = |finish: Finish<'_>| {
        let mut y = vec![f32::NAN; case.dy.len()];
        let packed = pack(&case.geometry, Direction::Forward, &case.w);
        conv::forward(
            &case.geometry,
            Algorithm::Direct,
            &case.x,
            &packed,
            &finish,
            &mut y,
            &workspace,
        )
        .unwrap();
        y
    };
    // Other tests may change the level between runs.
    with_level(Level::detected(), || {
        let sums = run(Finish::default());
        let bias = Some(&case.bias[..]);
        let residual = Some(&case.residual[..]);
        let biased = run(Finish {
            bias,
            ..Finish::default()
        });
        let added = run(Finish {
            residual,
            ..Finish::default()
        });
        let relu = run(Finish {
            clamp: Some([0.0, f32::INFINITY]),
            ..Finish::default()
        });
        for (i, sum) in sums.iter().enumerate() {
            assert_eq!(biased[i], sum + case.bias[i % case.bias.len()]);
            assert_eq!(added[i], sum + case.residual[i]);
            assert_eq!(relu[i], sum.max(0.0));
        }
    });
}

#[test]
fn packed_weights_hold_for_any_batch_and_image_size() {
    let (case, _) = Case::new(square((3, 20, [9, 9], 19), [3, 2, 1, 1], 1));
    let other = square((1, 20, [14, 11], 19), [3, 2, 1, 1], 1);
    with_level(Level::detected(), || {
        for direction in [Direction::Forward, Direction::BackwardInput] {
            let packed = pack(&case.geometry, direction, &case.w);
            assert_eq!(packed, pack(&other, direction, &case.w));
        }
    });
}

#[test]
fn the_data_gradient_without_addend_is_the_gradient() {
    let (case, _) = Case::new(square((2, 20, [9, 9], 19), [3, 2, 1, 1], 1));
    let workspace = Workspace::new();
    with_level(Level::detected(), || {
        let packed = pack(&case.geometry, Direction::BackwardInput, &case.w);
        let run = |add: Option<&[f32]>| {
            let mut dx = vec![f32::NAN; case.x.len()];
            let (g, dy) = (&case.geometry, &case.dy);
            conv::backward_input(g, Algorithm::Direct, &packed, dy, add, &mut dx, &workspace)
                .unwrap();
            dx
        };
        let expected: Vec<_> = run(None)
            .iter()
            .zip(&case.add)
            .map(|(dx, add)| dx + add)
            .collect();
        assert_eq!(run(Some(&case.add)), expected);
    });
}

#[test]
fn repeated_runs_on_one_workspace_need_no_more_memory() {
    for channels in [3, 32] {
        let (case, _) = Case::new(square((4, channels, [12, 12], 48), [3, 2, 1, 1], 1));
        let workspace = Workspace::new();
        let run = || {
            let g = &case.geometry;
            let packed = pack(g, Direction::Forward, &case.w);
            let mut y = vec![0.0; case.dy.len()];
            let mut dw = vec![0.0; case.w.len()];
            let (algorithm, finish) = (Algorithm::Direct, Finish::default());
            conv::forward(g, algorithm, &case.x, &packed, &finish, &mut y, &workspace).unwrap();
            conv::backward_weight(g, algorithm, &case.x, &case.dy, &mut dw, &workspace).unwrap();
            workspace.bytes()
        };
        // Buffers may trade places in the first runs; other tests may change the level.
        let runs = with_level(Level::detected(), || in_pool(1, || [(); 6].map(|()| run())));
        assert!(runs[0] > 0 && runs[4] == runs[5], "{runs:?}");
    }
}

#[test]
fn operands_of_other_lengths_are_refused_by_name() {
    let (case, _) = Case::new(square((1, 4, [5, 5], 6), [3, 1, 1, 1], 1));
    let workspace = Workspace::new();
    let g = &case.geometry;
    let algorithm = Algorithm::Direct;
    let operand = |result: Result<()>| match result {
        Err(Error::Length { operand, .. }) => operand,
        other => panic!("{other:?}"),
    };
    with_level(Level::detected(), || {
        let packed = pack(g, Direction::Forward, &case.w);
        let back = pack(g, Direction::BackwardInput, &case.w);
        let (x, w, dy) = (&case.x[..], &case.w[..], &case.dy[..]);
        let short = &dy[1..];
        let (mut y, mut dx, mut dw) = (dy.to_vec(), x.to_vec(), w.to_vec());
        let none = Finish::default();
        let forward = |x: &[f32], packed: &[f32], finish: &Finish<'_>, y: &mut [f32]| {
            operand(conv::forward(
                g, algorithm, x, packed, finish, y, &workspace,
            ))
        };
        assert_eq!(forward(&x[1..], &packed, &none, &mut y), "x");
        assert_eq!(forward(x, &packed[1..], &none, &mut y), "packed");
        assert_eq!(forward(x, &packed, &none, &mut y[1..]), "y");
        assert_eq!(
            forward(
                x,
                &packed,
                &Finish {
                    bias: Some(&w[..5]),
                    ..none
                },
                &mut y
            ),
            "bias"
        );
        assert_eq!(
            forward(
                x,
                &packed,
                &Finish {
                    residual: Some(short),
                    ..none
                },
                &mut y
            ),
            "residual"
        );
        let mut backward = |packed: &[f32], dy: &[f32], add: Option<&[f32]>, missing: usize| {
            operand(conv::backward_input(
                g,
                algorithm,
                packed,
                dy,
                add,
                &mut dx[missing..],
                &workspace,
            ))
        };
        assert_eq!(backward(&back[1..], dy, None, 0), "packed");
        assert_eq!(backward(&back, short, None, 0), "dy");
        assert_eq!(backward(&back, dy, Some(short), 0), "add");
        assert_eq!(backward(&back, dy, None, 1), "dx");
        let mut weight = |x: &[f32], dy: &[f32], missing: usize| {
            operand(conv::backward_weight(
                g,
                algorithm,
                x,
                dy,
                &mut dw[missing..],
                &workspace,
            ))
        };
        assert_eq!(weight(&x[1..], dy, 0), "x");
        assert_eq!(weight(x, short, 0), "dy");
        assert_eq!(weight(x, dy, 1), "dw");
        let mut room = packed.clone();
        let mut pack = |w: &[f32], missing: usize| {
            operand(conv::pack(
                g,
                Direction::Forward,
                algorithm,
                w,
                &mut room[missing..],
            ))
        };
        assert_eq!(pack(&w[1..], 0), "w");
        assert_eq!(pack(w, 1), "packed");
    });
    assert_eq!(
        operand(conv::backward_bias(g, &case.dy, &mut [0.0; 5])),
        "db"
    );
}

prop_compose! {
    fn any_geometry()(
        batch in 1usize..9,
        (groups, in_per_group, out_per_group) in (1usize..4, 1usize..22, 1usize..22),
        kernel in [1usize..6, 1usize..6],
        stride in [1usize..5, 1usize..5],
        padding in [0usize..5, 0usize..5],
        dilation in [1usize..4, 1usize..4],
        room in [0usize..12, 0usize..12],
    ) -> Conv2dGeometry {
        let in_size = [0, 1].map(|axis: usize| {
            let reach = dilation[axis] * (kernel[axis] - 1) + 1;
            (reach + room[axis]).saturating_sub(2 * padding[axis]).max(1)
        });
        let sizes = (batch, groups * in_per_group, in_size, groups * out_per_group);
        geometry(sizes, kernel, stride, padding, dilation, groups)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_geometry_agrees_with_plain_loops(geometry in any_geometry()) {
        check(geometry);
    }
}
