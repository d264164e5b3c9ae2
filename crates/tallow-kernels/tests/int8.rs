//! Quantized convolutions beside plain loops over whole numbers: equal, not close.

use proptest::prelude::*;
use tallow_kernels::channels_last::int8::{
    self, Algorithm, Finish, Quantization, Residual, Target,
};
use tallow_kernels::conv::Conv2dGeometry;
use tallow_kernels::simd::{Level, with_level};
use tallow_kernels::workspace::Workspace;

const INPUT: Quantization = Quantization {
    scale: 0.5,
    zero_point: 100,
};
const OUTPUT: Quantization = Quantization {
    scale: 3.0,
    zero_point: 7,
};

/// Whole numbers without a pattern.
fn numbers(len: usize, low: i32, high: i32, seed: u32) -> Vec<i32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            low + ((state >> 8) % (high - low + 1) as u32) as i32
        })
        .collect()
}

/// The exact sums `[N, H', W', O]` of `x: [N, H, W, C]` and `w: [O, C / groups, kh, kw]`.
fn sums(g: &Conv2dGeometry, x: &[i32], w: &[i32]) -> Vec<i32> {
    let ([height, width], [rows, columns]) = (g.in_size, g.out_size());
    let channels = g.in_channels / g.groups;
    let filters = g.out_channels / g.groups;
    let mut sums = Vec::new();
    for n in 0..g.batch {
        for position in 0..rows * columns {
            for o in 0..g.out_channels {
                let mut sum = 0;
                for c in 0..channels {
                    for ky in 0..g.kernel[0] {
                        for kx in 0..g.kernel[1] {
                            let y = position / columns * g.stride[0] + ky * g.dilation[0];
                            let x_ = position % columns * g.stride[1] + kx * g.dilation[1];
                            let (y, x_) =
                                (y.wrapping_sub(g.padding[0]), x_.wrapping_sub(g.padding[1]));
                            if y < height && x_ < width {
                                let channel = o / filters * channels + c;
                                let pixel = (n * height + y) * width + x_;
                                let tap =
                                    ((o * channels + c) * g.kernel[0] + ky) * g.kernel[1] + kx;
                                sum += x[pixel * g.in_channels + channel] * w[tap];
                            }
                        }
                    }
                }
                sums.push(sum);
            }
        }
    }
    sums
}

/// Of what is never below zero.
const UNSIGNED: Quantization = Quantization {
    scale: 0.5,
    zero_point: 0,
};

struct Case {
    geometry: Conv2dGeometry,
    input: Quantization,
    x: Vec<i32>,
    w: Vec<i32>,
}

impl Case {
    fn new(geometry: Conv2dGeometry, input: Quantization, seed: u32) -> Self {
        let g = &geometry;
        let zero = i32::from(input.zero_point);
        let pixels = g.batch * g.in_size[0] * g.in_size[1];
        let filter = g.in_channels / g.groups * g.kernel[0] * g.kernel[1];
        Self {
            x: numbers(pixels * g.in_channels, -zero, 255 - zero, seed),
            w: numbers(g.out_channels * filter, -127, 127, seed + 1),
            geometry,
            input,
        }
    }

    fn words(&self) -> Vec<f32> {
        let channels = self.geometry.in_channels;
        let floats: Vec<f32> = self
            .x
            .iter()
            .map(|&x| x as f32 * self.input.scale)
            .collect();
        let mut words = vec![0.0; floats.len() / channels * int8::words(channels)];
        int8::quantize(self.input, channels, &floats, &mut words).unwrap();
        words
    }

    fn run(&self, algorithm: Algorithm, finish: &Finish, y: Target) {
        let ws = Workspace::new();
        let w: Vec<i8> = self.w.iter().map(|&w| w as i8).collect();
        let mut packed = vec![0.0; int8::packed_len(&self.geometry, algorithm)];
        int8::pack(&self.geometry, algorithm, &w, &mut packed, &ws).unwrap();
        int8::forward(
            &self.geometry,
            algorithm,
            &self.words(),
            &packed,
            finish,
            y,
            &ws,
        )
        .unwrap();
    }

    fn algorithms(&self) -> Vec<Algorithm> {
        let mut algorithms = vec![Algorithm::Direct];
        if int8::winograd_suits(&self.geometry) {
            algorithms.push(Algorithm::Winograd);
        }
        let zero_point = self.input.zero_point;
        if int8::fours_suit(&self.geometry, zero_point) {
            algorithms.push(Algorithm::Fours { zero_point });
        }
        algorithms
    }

    /// At every level.
    fn check(&self) {
        for level in Level::available() {
            with_level(level, || self.check_here());
        }
    }

    fn check_here(&self) {
        let sums = sums(&self.geometry, &self.x, &self.w);
        let scales = vec![1.0; self.geometry.out_channels];
        for algorithm in self.algorithms() {
            let mut y = vec![0.0; sums.len()];
            self.run(algorithm, &Finish::new(&scales), Target::Floats(&mut y));
            let channels = self.geometry.out_channels;
            let mut words = vec![f32::NAN; sums.len() / channels * int8::words(channels)];
            let mut expected = words.clone();
            let wide = Quantization {
                scale: 100.0,
                ..INPUT
            };
            self.run(
                algorithm,
                &Finish::new(&scales),
                Target::Words(&mut words, wide),
            );
            int8::quantize(wide, channels, &y, &mut expected).unwrap();
            let bits = |words: &[f32]| words.iter().map(|word| word.to_bits()).collect::<Vec<_>>();
            assert_eq!(
                bits(&words),
                bits(&expected),
                "{algorithm:?} {:?}",
                self.geometry
            );
            for (i, (y, sum)) in y.iter().zip(&sums).enumerate() {
                assert_eq!(
                    *y, *sum as f32,
                    "{algorithm:?}, output {i} of {:?}",
                    self.geometry
                );
            }
        }
    }
}

fn geometry(
    [batch, channels, out_channels, groups]: [usize; 4],
    size: [usize; 2],
    kernel: [usize; 2],
    [stride, padding, dilation]: [usize; 3],
) -> Conv2dGeometry {
    Conv2dGeometry::new(
        batch,
        channels,
        size,
        out_channels,
        kernel,
        [stride; 2],
        [padding; 2],
        [dilation; 2],
        groups,
    )
    .unwrap()
}

#[test]
fn convolutions_of_common_networks_are_exact() {
    for (channels, size, kernel, steps) in [
        ([2, 3, 64, 1], [32, 32], [3, 3], [1, 1, 1]),
        ([1, 3, 64, 1], [56, 56], [7, 7], [2, 3, 1]),
        ([1, 64, 64, 1], [14, 14], [3, 3], [1, 1, 1]),
        ([2, 64, 128, 1], [16, 16], [3, 3], [2, 1, 1]),
        ([1, 512, 512, 1], [7, 7], [3, 3], [1, 1, 1]),
        ([2, 64, 96, 1], [15, 15], [1, 1], [2, 0, 1]),
        ([3, 37, 10, 1], [1, 1], [1, 1], [1, 0, 1]),
        ([1, 8, 12, 4], [9, 9], [3, 3], [1, 2, 2]),
    ] {
        for input in [INPUT, UNSIGNED] {
            Case::new(geometry(channels, size, kernel, steps), input, 1).check();
        }
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let g = geometry([1, 1800, 1, 1], [4, 4], [3, 3], [1, 1, 1]);
    let zero = i32::from(INPUT.zero_point);
    for (input, x, w) in [
        (INPUT, 255 - zero, 127),
        (INPUT, 255 - zero, -127),
        (INPUT, -zero, 127),
        (UNSIGNED, 255, 127),
        (UNSIGNED, 255, -127),
    ] {
        let case = Case {
            x: vec![x; 16 * 1800],
            w: vec![w; 9 * 1800],
            geometry: g,
            input,
        };
        case.check();
    }
}

proptest! {
    #[test]
    fn any_geometry_is_exact(
        batch in 1..3usize, half in 1..6usize, odd in 0..2usize, filters in 1..20usize, groups in 1..3usize,
        size in prop::array::uniform2(4..11usize), kernel in prop::array::uniform2(1..4usize),
        stride in 1..3usize, padding in 0..3usize, dilation in 1..3usize, seed in 0..1000u32,
        unsigned in any::<bool>(),
    ) {
        let channels = if groups == 1 { 2 * half - odd } else { 2 * half };
        prop_assume!((0..2).all(|axis| size[axis] + 2 * padding > (kernel[axis] - 1) * dilation));
        let numbers = [batch, channels * groups, filters * groups, groups];
        let input = if unsigned { UNSIGNED } else { INPUT };
        Case::new(geometry(numbers, size, kernel, [stride, padding, dilation]), input, seed).check();
    }
}

#[test]
fn everything_of_a_finish_is_applied_in_order() {
    let g = geometry([2, 6, 5, 1], [6, 7], [3, 3], [1, 1, 1]);
    let case = Case::new(g, UNSIGNED, 5);
    let sums = sums(&g, &case.x, &case.w);
    let scales: Vec<f32> = (0..5).map(|o| 0.01 + o as f32 / 512.0).collect();
    let bias: Vec<f32> = (0..5).map(|o| o as f32 * 10.0 - 20.0).collect();
    let residual: Vec<f32> = (0..sums.len())
        .map(|i| (i % 91) as f32 * 3.0 - 21.0)
        .collect();
    let mut residual_words = vec![0.0; sums.len() / 5 * 3];
    int8::quantize(OUTPUT, 5, &residual, &mut residual_words).unwrap();
    let expected: Vec<f32> = (0..sums.len())
        .map(|i| (sums[i] as f32 * scales[i % 5] + bias[i % 5] + residual[i]).clamp(0.0, 400.0))
        .collect();
    // Other tests change the level, on which packed weights depend.
    with_level(Level::detected(), || {
        check_finish(
            &case,
            &sums,
            &scales,
            &bias,
            [&residual, &residual_words],
            &expected,
        )
    });
}

/// Checks sums that are finished with a bias, a residual of floats or of words, and a clamp.
fn check_finish(
    case: &Case,
    sums: &[i32],
    scales: &[f32],
    bias: &[f32],
    [residual, residual_words]: [&[f32]; 2],
    expected: &[f32],
) {
    for algorithm in case.algorithms() {
        for residual in [
            Residual::Floats(residual),
            Residual::Words(residual_words, OUTPUT),
        ] {
            let finish = Finish {
                bias: Some(bias),
                residual: Some(residual),
                clamp: Some([0.0, 400.0]),
                ..Finish::new(scales)
            };
            let mut floats = vec![0.0; sums.len()];
            case.run(algorithm, &finish, Target::Floats(&mut floats));
            assert_eq!(floats, expected);
            let mut words = vec![0.0; sums.len() / 5 * 3];
            case.run(algorithm, &finish, Target::Words(&mut words, OUTPUT));
            let mut of_words = vec![0.0; sums.len()];
            int8::dequantize(OUTPUT, 5, &words, &mut of_words).unwrap();
            for (found, expected) in of_words.iter().zip(expected) {
                let number = (expected / 3.0).round_ties_even().clamp(-7.0, 248.0);
                assert_eq!(*found, 3.0 * number);
            }
        }
    }
}

#[test]
fn numbers_are_rounded_to_even_and_kept_in_range() {
    let q = Quantization {
        scale: 2.0,
        zero_point: 3,
    };
    let x = [
        0.0,
        1.0,
        3.0,
        5.0,
        -5.0,
        -100.0,
        1e9,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1.001,
    ];
    let mut words = [0.0; 6];
    int8::quantize(q, 11, &x, &mut words).unwrap();
    let mut back = [0.0; 11];
    int8::dequantize(q, 11, &words, &mut back).unwrap();
    assert_eq!(
        back,
        [
            0.0, 0.0, 4.0, 4.0, -4.0, -6.0, 504.0, 504.0, -6.0, -6.0, 2.0
        ]
    );
}

#[test]
fn what_does_not_suit_is_refused_with_a_way_out() {
    let ws = Workspace::new();
    let depthwise = geometry([1, 4, 4, 4], [5, 5], [3, 3], [1, 1, 1]);
    let refused = int8::pack(&depthwise, Algorithm::Direct, &[0; 36], &mut [], &ws);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("compute it in floats")
    );
    let strided = geometry([1, 4, 4, 1], [5, 5], [3, 3], [2, 1, 1]);
    let refused = int8::pack(&strided, Algorithm::Winograd, &[0; 144], &mut [], &ws);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("Algorithm::Direct")
    );
    let refused = int8::pack(
        &depthwise,
        Algorithm::Fours { zero_point: 0 },
        &[0; 36],
        &mut [],
        &ws,
    );
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("Algorithm::Direct")
    );
    let refused = int8::pack(&strided, Algorithm::Direct, &[0; 143], &mut [], &ws);
    assert!(refused.unwrap_err().to_string().contains("143"));
}

#[test]
fn an_empty_batch_is_no_output() {
    let g = Conv2dGeometry {
        batch: 0,
        ..geometry([1, 4, 4, 1], [5, 5], [3, 3], [1, 1, 1])
    };
    with_level(Level::detected(), || {
        for algorithm in [
            Algorithm::Direct,
            Algorithm::Winograd,
            Algorithm::Fours { zero_point: 0 },
            Algorithm::Fours { zero_point: 9 },
        ] {
            let mut packed = vec![0.0; int8::packed_len(&g, algorithm)];
            int8::pack(&g, algorithm, &[1; 144], &mut packed, &Workspace::new()).unwrap();
            let finish = Finish::new(&[1.0; 4]);
            let target = Target::Floats(&mut []);
            int8::forward(
                &g,
                algorithm,
                &[],
                &packed,
                &finish,
                target,
                Workspace::global(),
            )
            .unwrap();
        }
    });
}
