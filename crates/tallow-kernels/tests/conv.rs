//! Convolution against plain loops in f64, on every SIMD level, for any number of threads.

use proptest::prelude::*;
use tallow_kernels::conv::{self, Conv2dGeometry};
use tallow_kernels::simd::{Level, with_level};
use tallow_kernels::workspace::Workspace;

mod reference;

/// Numbers in -1..1 that look random and differ by `seed`.
fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// All operands of a convolution, and room for its results.
#[derive(Debug, Clone, PartialEq)]
struct Case {
    geometry: Conv2dGeometry,
    x: Vec<f32>,
    w: Vec<f32>,
    bias: Vec<f32>,
    dy: Vec<f32>,
}

#[derive(Debug, Clone, PartialEq)]
struct Results {
    y: Vec<f32>,
    dx: Vec<f32>,
    dw: Vec<f32>,
    db: Vec<f32>,
}

impl Case {
    fn new(geometry: Conv2dGeometry) -> Self {
        let g = &geometry;
        let out: usize = g.out_size().iter().product();
        let taps: usize = g.kernel.iter().product();
        Self {
            x: numbers(1, g.batch * g.in_channels * g.in_size[0] * g.in_size[1]),
            w: numbers(2, g.out_channels * g.in_channels / g.groups * taps),
            bias: numbers(3, g.out_channels),
            dy: numbers(4, g.batch * g.out_channels * out),
            geometry,
        }
    }

    /// Runs all four kernels, on a workspace full of values that must not leak into results.
    fn run(&self) -> Results {
        let workspace = Workspace::new();
        let dirty: Vec<_> = (0..6)
            .map(|_| {
                let mut scratch = workspace.take(100_000);
                scratch.fill(f32::NAN);
                scratch
            })
            .collect();
        drop(dirty);
        let g = &self.geometry;
        let mut results = Results {
            y: vec![f32::NAN; self.dy.len()],
            dx: vec![f32::NAN; self.x.len()],
            dw: vec![f32::NAN; self.w.len()],
            db: vec![f32::NAN; self.bias.len()],
        };
        let bias = Some(&self.bias[..]);
        conv::forward(g, &self.x, &self.w, bias, &mut results.y, &workspace).unwrap();
        conv::backward_input(g, &self.w, &self.dy, &mut results.dx, &workspace).unwrap();
        conv::backward_weight(g, &self.x, &self.dy, &mut results.dw, &workspace).unwrap();
        conv::backward_bias(g, &self.dy, &mut results.db).unwrap();
        results
    }
}

fn in_pool<R: Send>(threads: usize, f: impl FnOnce() -> R + Send) -> R {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.unwrap().install(f)
}

/// Checks every result at every level with 1, 2 and 3 threads.
fn check(geometry: Conv2dGeometry) {
    let case = Case::new(geometry);
    let expected = [
        (
            "y",
            reference::forward(&geometry, &case.x, &case.w, &case.bias),
        ),
        (
            "dx",
            reference::backward_input(&geometry, &case.w, &case.dy),
        ),
        (
            "dw",
            reference::backward_weight(&geometry, &case.x, &case.dy),
        ),
        ("db", reference::backward_bias(&geometry, &case.dy)),
    ];
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
        for ((name, expected), found) in expected.iter().zip(found) {
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
    Conv2dGeometry::new(
        batch,
        in_channels,
        in_size,
        out_channels,
        kernel,
        stride,
        padding,
        dilation,
        groups,
    )
    .unwrap()
}

#[test]
fn the_geometries_of_common_networks_agree_with_plain_loops() {
    for (sizes, kernel, stride, padding) in [
        ((3, 16, [8, 8], 24), 3, 1, 1),
        ((2, 64, [16, 16], 64), 3, 1, 1),
        ((1, 3, [32, 32], 64), 3, 1, 1),
        ((2, 3, [37, 35], 16), 7, 2, 3),
        ((2, 40, [9, 9], 70), 1, 1, 0),
        ((2, 24, [9, 9], 30), 1, 2, 0),
        ((2, 20, [16, 16], 33), 3, 2, 1),
        ((9, 96, [4, 4], 130), 3, 1, 1),
        ((5, 130, [7, 7], 65), 3, 1, 1),
        ((1, 3, [32, 32], 48), 16, 16, 0),
        ((1, 3, [35, 35], 20), 11, 4, 2),
        ((4, 1, [28, 28], 6), 5, 1, 2),
        ((4, 6, [14, 14], 16), 5, 1, 0),
        ((3, 260, [5, 5], 7), 3, 1, 1),
        ((300, 5, [1, 1], 9), 1, 1, 0),
        ((2, 2, [1, 1], 5), 1, 1, 0),
    ] {
        check(geometry(
            sizes,
            [kernel; 2],
            [stride; 2],
            [padding; 2],
            [1; 2],
            1,
        ));
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
        // A stride that skips input pixels, whose gradient is zero.
        ((2, 6, [11, 11], 7), [2, 2], [5, 4], [0, 1], [1, 1]),
        ((1, 2, [3, 3], 5), [3, 3], [9, 9], [0, 0], [1, 1]),
        // A kernel of more taps than a slice of the sum holds.
        ((1, 2, [40, 24], 5), [33, 17], [1, 1], [0, 3], [1, 1]),
        ((1, 2, [3, 300], 6), [3, 3], [1, 1], [1, 1], [1, 1]),
        ((1, 5, [3, 600], 6), [1, 3], [1, 1], [0, 1], [1, 1]),
    ] {
        check(geometry(sizes, kernel, stride, padding, dilation, 1));
    }
}

#[test]
fn groups_and_depthwise_agree_with_plain_loops() {
    for (sizes, kernel, stride, padding, dilation, groups) in [
        ((2, 16, [9, 9], 16), 3, 1, 1, 1, 16),
        ((2, 16, [15, 13], 16), 3, 2, 1, 1, 16),
        ((2, 6, [20, 20], 12), 5, 1, 4, 2, 6),
        ((3, 8, [7, 7], 8), 7, 1, 3, 1, 8),
        ((40, 3, [4, 4], 3), 3, 1, 1, 1, 3),
        ((2, 12, [10, 10], 8), 3, 1, 1, 1, 4),
        ((2, 24, [10, 10], 48), 3, 2, 1, 1, 2),
        ((2, 32, [6, 6], 32), 1, 1, 0, 1, 4),
        ((1, 2, [60, 60], 2), 3, 1, 1, 1, 2),
        ((1, 2, [30, 30], 2), 19, 1, 9, 1, 2),
        ((2, 300, [5, 5], 2), 3, 1, 1, 1, 1),
    ] {
        check(geometry(
            sizes,
            [kernel; 2],
            [stride; 2],
            [padding; 2],
            [dilation; 2],
            groups,
        ));
    }
}

#[test]
fn an_empty_batch_has_no_output_and_a_weight_gradient_of_zero() {
    let case = Case::new(geometry(
        (0, 3, [8, 8], 4),
        [3, 3],
        [1, 1],
        [1, 1],
        [1, 1],
        1,
    ));
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

#[test]
fn forward_without_bias_adds_nothing() {
    let case = Case::new(geometry(
        (2, 5, [6, 6], 9),
        [3, 3],
        [1, 1],
        [1, 1],
        [1, 1],
        1,
    ));
    let mut y = vec![f32::NAN; case.dy.len()];
    let workspace = Workspace::global();
    conv::forward(&case.geometry, &case.x, &case.w, None, &mut y, workspace).unwrap();
    let zeros = vec![0.0; case.bias.len()];
    let expected = reference::forward(&case.geometry, &case.x, &case.w, &zeros);
    assert!(relative_error(&y, &expected) < 1e-5);
}

#[test]
fn gradients_are_the_adjoints_of_forward() {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
        products.sum()
    };
    for (stride, dilation, groups) in [(1, 1, 1), (2, 1, 1), (1, 2, 2), (3, 2, 4), (2, 1, 8)] {
        let sizes = (3, 16, [21, 18], 24);
        let g = geometry(sizes, [3, 4], [stride; 2], [2, 1], [dilation; 2], groups);
        let mut case = Case::new(g);
        case.bias.fill(0.0);
        let results = case.run();
        let expected = dot(&results.y, &case.dy);
        for found in [dot(&results.dx, &case.x), dot(&results.dw, &case.w)] {
            let scale = (case.dy.len() as f64).sqrt() * 10.0;
            assert!(
                (found - expected).abs() < 1e-5 * scale,
                "{g:?}: {found} instead of {expected}"
            );
        }
    }
}

#[test]
fn repeated_runs_on_one_workspace_give_the_same_bits_and_need_no_more_memory() {
    let case = Case::new(geometry(
        (4, 32, [12, 12], 48),
        [3, 3],
        [2, 2],
        [1, 1],
        [1, 1],
        1,
    ));
    let workspace = Workspace::new();
    let run = || {
        let mut y = vec![0.0; case.dy.len()];
        conv::forward(&case.geometry, &case.x, &case.w, None, &mut y, &workspace).unwrap();
        (y, workspace.bytes())
    };
    // Buffers may trade places in the first runs; other tests may change the level.
    let runs = with_level(Level::detected(), || in_pool(1, || [(); 5].map(|()| run())));
    assert!(runs.iter().all(|(y, _)| *y == runs[0].0));
    assert!(
        runs[0].1 > 0 && runs[3].1 == runs[4].1,
        "{:?}",
        runs.map(|run| run.1)
    );
}

prop_compose! {
    fn any_geometry()(
        batch in 1usize..4,
        (groups, in_per_group, out_per_group) in (1usize..5, 1usize..9, 1usize..14),
        kernel in [1usize..6, 1usize..6],
        stride in [1usize..5, 1usize..5],
        padding in [0usize..5, 0usize..5],
        dilation in [1usize..4, 1usize..4],
        room in [0usize..20, 0usize..20],
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
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_geometry_agrees_with_plain_loops(geometry in any_geometry()) {
        check(geometry);
    }
}
