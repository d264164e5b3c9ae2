//! Winograd's convolution against plain loops in f64, on every SIMD level, for any number of threads.

use proptest::prelude::*;
use tallow_kernels::Error;
use tallow_kernels::channels_last::winograd::{self, Direction, Finish, Tile};
use tallow_kernels::conv::Conv2dGeometry;
use tallow_kernels::simd::{Level, with_level};
use tallow_kernels::workspace::Workspace;

#[allow(dead_code, reason = "the bias has no gradient of its own here")]
mod reference;

const TILES: [Tile; 2] = [Tile::Two, Tile::Four];

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

/// `[N, H, W, C]` as `[N, C, H, W]`, which the reference works on.
fn channels_first(values: &[f32], channels: usize, [height, width]: [usize; 2]) -> Vec<f32> {
    let plane = height * width;
    let from = |index: usize| {
        let (image, rest) = (index / (channels * plane), index % (channels * plane));
        (image * plane + rest % plane) * channels + rest / plane
    };
    (0..values.len()).map(|index| values[from(index)]).collect()
}

/// `[N, C, H, W]` as `[N, H, W, C]`.
fn channels_last(values: &[f64], channels: usize, [height, width]: [usize; 2]) -> Vec<f64> {
    let plane = height * width;
    let from = |index: usize| {
        let (image, rest) = (index / (channels * plane), index % (channels * plane));
        (image * channels + rest % channels) * plane + rest / channels
    };
    (0..values.len()).map(|index| values[from(index)]).collect()
}

/// A workspace full of values that must not leak into results.
fn dirty_workspace() -> Workspace {
    let workspace = Workspace::new();
    let dirty: Vec<_> = (0..6)
        .map(|_| {
            let mut scratch = workspace.take(100_000);
            scratch.fill(f32::NAN);
            scratch
        })
        .collect();
    drop(dirty);
    workspace
}

/// All operands of a convolution.
struct Case {
    geometry: Conv2dGeometry,
    x: Vec<f32>,
    w: Vec<f32>,
    bias: Vec<f32>,
    dy: Vec<f32>,
    residual: Vec<f32>,
    add: Vec<f32>,
}

#[derive(Debug, Clone, PartialEq)]
struct Results {
    y: Vec<f32>,
    finished: Vec<f32>,
    unpacked: [Vec<f32>; 2],
    dx: Vec<f32>,
    added: Vec<f32>,
    dw: Vec<f32>,
}

const CLAMP: [f32; 2] = [-0.5, 2.0];

impl Case {
    fn new(geometry: Conv2dGeometry) -> Self {
        let g = &geometry;
        let [height, width] = g.out_size();
        let output = g.batch * g.out_channels * height * width;
        let input = g.batch * g.in_channels * g.in_size[0] * g.in_size[1];
        Self {
            x: numbers(1, input),
            w: numbers(2, g.out_channels * g.in_channels * 9),
            bias: numbers(3, g.out_channels),
            dy: numbers(4, output),
            residual: numbers(5, output),
            add: numbers(6, input),
            geometry,
        }
    }

    fn packed(&self, direction: Direction, tile: Tile) -> Vec<f32> {
        let mut packed = vec![f32::NAN; winograd::packed_len(&self.geometry, direction, tile)];
        winograd::pack(&self.geometry, direction, tile, &self.w, &mut packed).unwrap();
        packed
    }

    fn forward(&self, tile: Tile, finish: &Finish, workspace: &Workspace) -> Vec<f32> {
        let packed = self.packed(Direction::Forward, tile);
        let mut y = vec![f32::NAN; self.dy.len()];
        let (g, x) = (&self.geometry, &self.x);
        winograd::forward(g, tile, x, &packed, finish, &mut y, workspace).unwrap();
        y
    }

    /// The finished output and the gradient with an addend, from weights as they are.
    fn unpacked(&self, tile: Tile, finish: &Finish, workspace: &Workspace) -> [Vec<f32>; 2] {
        let (g, w) = (&self.geometry, &self.w);
        let (mut y, mut dx) = (vec![f32::NAN; self.dy.len()], vec![f32::NAN; self.x.len()]);
        winograd::forward_unpacked(g, tile, &self.x, w, finish, &mut y, workspace).unwrap();
        let add = Some(&self.add[..]);
        winograd::backward_input_unpacked(g, tile, w, &self.dy, add, &mut dx, workspace).unwrap();
        [y, dx]
    }

    fn run(&self, tile: Tile) -> Results {
        let workspace = &dirty_workspace();
        let g = &self.geometry;
        let finish = Finish {
            bias: Some(&self.bias),
            residual: Some(&self.residual),
            clamp: Some(CLAMP),
        };
        let packed = self.packed(Direction::BackwardInput, tile);
        let [dx, added] = [None, Some(&self.add[..])].map(|add| {
            let mut dx = vec![f32::NAN; self.x.len()];
            winograd::backward_input(g, tile, &packed, &self.dy, add, &mut dx, workspace).unwrap();
            dx
        });
        let mut dw = vec![f32::NAN; self.w.len()];
        winograd::backward_weight(g, tile, &self.x, &self.dy, &mut dw, workspace).unwrap();
        Results {
            y: self.forward(tile, &Finish::default(), workspace),
            finished: self.forward(tile, &finish, workspace),
            unpacked: self.unpacked(tile, &finish, workspace),
            dx,
            added,
            dw,
        }
    }

    /// The results of plain loops.
    fn expected(&self) -> [(&'static str, Vec<f64>); 7] {
        let g = &self.geometry;
        let x = channels_first(&self.x, g.in_channels, g.in_size);
        let dy = channels_first(&self.dy, g.out_channels, g.out_size());
        let zeros = vec![0.0; g.out_channels];
        let y = reference::forward(g, &x, &self.w, &zeros);
        let y = channels_last(&y, g.out_channels, g.out_size());
        let bias = self.bias.iter().cycle();
        let finished = y.iter().zip(&self.residual).zip(bias).map(|((y, r), b)| {
            let sum = y + f64::from(*r) + f64::from(*b);
            sum.clamp(f64::from(CLAMP[0]), f64::from(CLAMP[1]))
        });
        let finished: Vec<f64> = finished.collect();
        let dx = reference::backward_input(g, &self.w, &dy);
        let dx = channels_last(&dx, g.in_channels, g.in_size);
        let added = dx.iter().zip(&self.add).map(|(dx, a)| dx + f64::from(*a));
        let added: Vec<f64> = added.collect();
        let dw = reference::backward_weight(g, &x, &dy);
        [
            ("y", y),
            ("finished y", finished.clone()),
            ("dx", dx),
            ("dx and an addend", added.clone()),
            ("dw", dw),
            ("finished y of raw weights", finished),
            ("dx and an addend of raw weights", added),
        ]
    }
}

impl Results {
    fn all(&self) -> [&[f32]; 7] {
        let [y, dx] = &self.unpacked;
        [
            &self.y,
            &self.finished,
            &self.dx,
            &self.added,
            &self.dw,
            y,
            dx,
        ]
    }
}

fn in_pool<R: Send>(threads: usize, f: impl FnOnce() -> R + Send) -> R {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.unwrap().install(f)
}

/// Checks every result of both tiles at every level with 1, 2 and 3 threads.
fn check(geometry: Conv2dGeometry) {
    let case = Case::new(geometry);
    let expected = case.expected();
    for (level, tile) in Level::available().flat_map(|level| TILES.map(|tile| (level, tile))) {
        let results = with_level(level, || {
            let results = in_pool(1, || case.run(tile));
            for threads in [2, 3] {
                assert!(
                    in_pool(threads, || case.run(tile)) == results,
                    "{tile:?} of {geometry:?} at {level}: {threads} threads give other bits than one"
                );
            }
            results
        });
        let of = format!("{tile:?} of {geometry:?} at {level}");
        check_errors(&expected, &results, &of);
    }
}

/// Checks that no result is further from the expected than rounding explains, in terms of the largest number of its kind.
fn check_errors(expected: &[(&str, Vec<f64>)], results: &Results, of: &str) {
    let largest =
        |values: &[f64]| -> f64 { values.iter().fold(0.1, |max, value| value.abs().max(max)) };
    let sums = &expected[0];
    for ((name, expected), found) in expected.iter().zip(results.all()) {
        assert_eq!(found.len(), expected.len());
        // A clamp takes the numbers down, not the errors.
        let scale = match *name {
            "finished y" | "finished y of raw weights" => largest(&sums.1),
            _ => largest(expected),
        };
        let errors = found.iter().zip(expected);
        let errors = errors.map(|(found, expected)| (f64::from(*found) - expected).abs() / scale);
        let error = errors.fold(0.0, |max, error| {
            if error > max || error.is_nan() {
                error
            } else {
                max
            }
        });
        assert!(error < 2e-5, "{name} by {of}: relative error {error}");
    }
}

/// Batch, input channels, size and output channels.
type Dimensions = (usize, usize, [usize; 2], usize);

/// A 3x3 convolution with stride 1 and some padding.
fn geometry(dimensions: Dimensions, padding: [usize; 2]) -> Conv2dGeometry {
    strided(1, dimensions, padding)
}

/// A 3x3 convolution with some stride and padding.
fn strided(
    stride: usize,
    (batch, in_channels, in_size, out_channels): Dimensions,
    padding: [usize; 2],
) -> Conv2dGeometry {
    Conv2dGeometry::new(
        batch,
        in_channels,
        in_size,
        out_channels,
        [3, 3],
        [stride; 2],
        padding,
        [1, 1],
        1,
    )
    .unwrap()
}

#[test]
fn common_and_awkward_sizes_agree_with_plain_loops() {
    for (sizes, padding) in [
        ((2, 16, [8, 8], 32), [1, 1]),
        ((1, 64, [12, 12], 64), [1, 1]),
        ((3, 24, [7, 7], 40), [1, 1]),
        ((1, 130, [4, 4], 70), [1, 1]),
        ((1, 70, [5, 6], 130), [1, 1]),
        ((2, 3, [9, 10], 5), [0, 2]),
        ((2, 5, [3, 4], 3), [0, 1]),
        ((1, 1, [1, 1], 1), [1, 1]),
        ((2, 17, [1, 9], 9), [1, 1]),
        ((1, 9, [6, 5], 33), [2, 2]),
    ] {
        check(geometry(sizes, padding));
    }
}

#[test]
fn stride_two_agrees_with_plain_loops() {
    for (sizes, padding) in [
        ((2, 16, [16, 16], 32), [1, 1]),
        ((1, 64, [12, 12], 64), [1, 1]),
        ((3, 24, [7, 7], 40), [1, 1]),
        ((1, 130, [8, 8], 70), [1, 1]),
        ((1, 70, [5, 6], 130), [1, 1]),
        ((2, 3, [9, 10], 5), [0, 2]),
        ((2, 5, [3, 4], 3), [0, 1]),
        ((1, 1, [1, 1], 1), [1, 1]),
        ((1, 2, [1, 2], 1), [2, 1]),
        ((2, 17, [1, 19], 9), [1, 1]),
        ((1, 9, [6, 5], 33), [2, 2]),
        ((1, 8, [14, 15], 16), [0, 0]),
        ((1, 8, [15, 14], 16), [2, 1]),
    ] {
        check(strided(2, sizes, padding));
    }
}

#[test]
fn many_tiles_with_few_channels_agree_with_plain_loops() {
    check(geometry((3, 8, [34, 31], 9), [1, 1]));
    check(strided(2, (3, 8, [68, 61], 9), [1, 1]));
}

#[test]
fn more_than_one_round_of_points_agrees_with_plain_loops() {
    let level = Level::detected();
    for stride in [1, 2] {
        let case = Case::new(strided(stride, (2, 530, [34, 34], 3), [1, 1]));
        let expected = case.expected();
        for tile in TILES {
            let run = |threads| with_level(level, || in_pool(threads, || case.run(tile)));
            let results = run(2);
            let of = format!("{tile:?} with stride {stride}");
            assert!(run(3) == results, "{of}: three threads give other bits");
            check_errors(&expected, &results, &of);
        }
    }
}

/// Root mean square of the errors, relative to that of the values.
fn rms_error(found: &[f32], expected: &[f64]) -> f64 {
    let errors = found.iter().zip(expected).map(|(f, e)| f64::from(*f) - e);
    let squares: f64 = errors.map(|error| error * error).sum();
    (squares / expected.iter().map(|value| value * value).sum::<f64>()).sqrt()
}

#[test]
fn errors_of_long_sums_stay_small() {
    for (stride, in_size, bounds) in [(1, [16, 16], [5e-7, 1.5e-6]), (2, [32, 32], [5e-7, 5e-7])] {
        let case = Case::new(strided(stride, (4, 128, in_size, 32), [1, 1]));
        let [(_, y), _, (_, dx), _, (_, dw), ..] = case.expected();
        for (tile, bound) in TILES.into_iter().zip(bounds) {
            let results = with_level(Level::detected(), || case.run(tile));
            let pairs = [
                ("y", &results.y, &y),
                ("dx", &results.dx, &dx),
                ("dw", &results.dw, &dw),
            ];
            for (name, found, expected) in pairs {
                let error = rms_error(found, expected);
                let of = format!("{name} by {tile:?} with stride {stride}");
                assert!(error < bound, "{of}: rms error {error}");
            }
        }
    }
}

#[test]
fn a_cpu_with_bf16_gives_the_bits_of_one_with_avx512() {
    let case = Case::new(geometry((2, 40, [9, 9], 70), [1, 1]));
    for tile in TILES {
        let [without, with] =
            [Level::Avx512, Level::Avx512Bf16].map(|level| with_level(level, || case.run(tile)));
        assert!(without == with, "{tile:?}");
    }
}

#[test]
fn an_empty_batch_has_no_output_and_a_weight_gradient_of_zero() {
    for (stride, tile) in [1, 2]
        .into_iter()
        .flat_map(|stride| TILES.map(|tile| (stride, tile)))
    {
        let case = Case::new(strided(stride, (0, 3, [8, 8], 4), [1, 1]));
        let results = with_level(Level::detected(), || case.run(tile));
        assert!(results.y.is_empty() && results.dx.is_empty());
        assert!(results.dw.iter().all(|value| *value == 0.0));
    }
}

#[test]
fn a_nan_in_the_input_reaches_the_output_through_a_clamp() {
    let mut case = Case::new(geometry((1, 4, [8, 8], 4), [1, 1]));
    case.x.fill(f32::NAN);
    let finish = Finish {
        clamp: Some([0.0, f32::INFINITY]),
        ..Finish::default()
    };
    for tile in TILES {
        let run = || case.forward(tile, &finish, &Workspace::new());
        let y = with_level(Level::detected(), run);
        assert!(y.iter().all(|value| value.is_nan()));
    }
}

#[test]
fn repeated_runs_on_one_workspace_give_the_same_bits_and_need_no_more_memory() {
    let case = Case::new(geometry((4, 32, [12, 12], 48), [1, 1]));
    let workspace = Workspace::new();
    let run = || {
        let y = case.forward(Tile::Four, &Finish::default(), &workspace);
        (y, workspace.bytes())
    };
    // Buffers may trade places in the first runs; other tests may change the level.
    let runs = with_level(Level::detected(), || in_pool(1, || [(); 5].map(|()| run())));
    assert!(runs.iter().all(|(y, _)| *y == runs[0].0));
    assert!(runs[0].1 > 0 && runs[3].1 == runs[4].1);
}

#[test]
fn other_convolutions_are_refused() {
    let good = geometry((1, 4, [8, 8], 4), [1, 1]);
    assert!(winograd::suits(&good));
    let others = [
        Conv2dGeometry {
            kernel: [3, 5],
            ..good
        },
        Conv2dGeometry {
            stride: [1, 2],
            ..good
        },
        Conv2dGeometry {
            dilation: [2, 1],
            ..good
        },
        Conv2dGeometry {
            padding: [3, 1],
            ..good
        },
        Conv2dGeometry { groups: 2, ..good },
        Conv2dGeometry {
            in_channels: 0,
            ..good
        },
    ];
    for other in others {
        assert!(!winograd::suits(&other));
        let mut packed = [0.0; 1];
        let found = winograd::pack(&other, Direction::Forward, Tile::Two, &[0.0], &mut packed);
        assert!(matches!(found, Err(Error::Geometry { .. })), "{other:?}");
    }
}

#[test]
fn slices_of_another_length_are_refused_by_name() {
    let case = Case::new(geometry((1, 4, [8, 8], 6), [1, 1]));
    let (g, tile, workspace) = (&case.geometry, Tile::Two, &Workspace::new());
    let refused = |found: tallow_kernels::Result<()>, name: &str| match found {
        Err(Error::Length { operand, .. }) => assert_eq!(operand, name),
        found => panic!("{name}: {found:?}"),
    };
    let forward = |x: &[f32], packed: &[f32], finish: &Finish, y: &mut [f32]| {
        winograd::forward(g, tile, x, packed, finish, y, workspace)
    };
    with_level(Level::detected(), || {
        let packed = case.packed(Direction::Forward, tile);
        let (x, mut y, none) = (&case.x[..], case.dy.clone(), Finish::default());
        let short = &[0.0][..];
        refused(forward(short, &packed, &none, &mut y), "x");
        refused(forward(x, short, &none, &mut y), "packed");
        refused(forward(x, &packed, &none, &mut [0.0]), "y");
        let bias = Finish {
            bias: Some(short),
            ..none
        };
        refused(forward(x, &packed, &bias, &mut y), "bias");
        let residual = Finish {
            residual: Some(short),
            ..none
        };
        refused(forward(x, &packed, &residual, &mut y), "residual");
        let packed = case.packed(Direction::BackwardInput, tile);
        let mut dx = case.x.clone();
        let input = |packed: &[f32], dy: &[f32], add, dx: Option<&mut [f32]>| {
            let mut own = case.x.clone();
            let dx = dx.unwrap_or(&mut own);
            winograd::backward_input(g, tile, packed, dy, add, dx, workspace)
        };
        refused(input(short, &case.dy, None, None), "packed");
        refused(input(&packed, short, None, None), "dy");
        refused(input(&packed, &case.dy, Some(short), None), "add");
        refused(input(&packed, &case.dy, None, Some(&mut dx[1..])), "dx");
        let mut dw = case.w.clone();
        let mut weight =
            |x: &[f32], dy: &[f32]| winograd::backward_weight(g, tile, x, dy, &mut dw, workspace);
        refused(weight(short, &case.dy), "x");
        refused(weight(x, short), "dy");
        let found = winograd::backward_weight(g, tile, x, &case.dy, &mut [0.0], workspace);
        refused(found, "dw");
        let found = winograd::pack(g, Direction::Forward, tile, short, &mut [0.0]);
        refused(found, "w");
        let found = winograd::pack(g, Direction::Forward, tile, &case.w, &mut [0.0]);
        refused(found, "packed");
    });
}

prop_compose! {
    fn any_geometry(stride: usize)(
        batch in 1usize..4,
        channels in [1usize..40, 1usize..40],
        padding in [0usize..3, 0usize..3],
        room in [0usize..12, 0usize..12],
    ) -> Conv2dGeometry {
        let in_size = [0, 1].map(|axis: usize| (3 + room[axis]).saturating_sub(2 * padding[axis]).max(1));
        strided(stride, (batch, channels[0], in_size, channels[1]), padding)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_geometry_agrees_with_plain_loops(geometry in any_geometry(1)) {
        check(geometry);
    }

    #[test]
    fn any_geometry_with_stride_two_agrees_with_plain_loops(geometry in any_geometry(2)) {
        check(geometry);
    }
}
