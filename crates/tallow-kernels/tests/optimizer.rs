//! Optimizer updates against the numbers of `torch.optim` (2.15), and their checks.

mod support;

use support::*;
use tallow_kernels::Error;
use tallow_kernels::optimizer::{AdamW, Sgd, adamw, sgd};

const START: [f32; 4] = [1.0, -2.0, 0.5, 3.0];

/// The gradient of step `t` in the PyTorch run:
/// `tensor([0.1, -1, 2, 0]) * (t + 1) + tensor([0, .5, -.25, .125]) * t * t`.
fn gradient(t: usize) -> [f32; 4] {
    let t = t as f32;
    let (slope, bend) = ([0.1, -1.0, 2.0, 0.0], [0.0, 0.5, -0.25, 0.125]);
    std::array::from_fn(|i| slope[i] * (t + 1.0) + bend[i] * t * t)
}

/// Parameters repeated so often that all lanes and several leaves are used.
const COPIES: usize = 20_001;

#[track_caller]
fn follows(expected: [[f64; 4]; 3], mut update: impl FnMut(usize, &mut [f32], &[f32])) {
    let mut param = START.repeat(COPIES);
    for (t, expected) in expected.iter().enumerate() {
        update(t, &mut param, &gradient(t).repeat(COPIES));
        for copy in param.chunks(4) {
            assert_close(copy, expected, 5e-7);
        }
    }
}

/// `AdamW(lr=0.1, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.05)`
#[test]
fn adamw_takes_pytorchs_steps() {
    at_every_level(|_| {
        let (mut m, mut v) = (vec![0.0; 4 * COPIES], vec![0.0; 4 * COPIES]);
        let expected = [
            [
                0.8950009942054749,
                -1.8900001049041748,
                0.39750006794929504,
                2.9850001335144043,
            ],
            [
                0.7928928136825562,
                -1.7808036804199219,
                0.2973089814186096,
                2.8924968242645264,
            ],
            [
                0.6909449696540833,
                -1.6740970611572266,
                0.19666972756385803,
                2.7973334789276123,
            ],
        ];
        follows(expected, |t, param, grad| {
            let step = t as u64 + 1;
            let config = AdamW {
                lr: 0.1,
                beta1: 0.8,
                beta2: 0.95,
                eps: 1e-6,
                weight_decay: 0.05,
                step,
            };
            adamw(&config, param, grad, &mut m, &mut v).unwrap();
        });
    });
}

/// `SGD(lr=0.1)`, then with `momentum=0.9, dampening=0.3, weight_decay=0.01`, then with
/// `momentum=0.9, nesterov=True, weight_decay=0.01`
#[test]
fn sgd_takes_pytorchs_steps() {
    let plain = Sgd {
        lr: 0.1,
        ..Sgd::default()
    };
    let dampened = Sgd {
        momentum: 0.9,
        dampening: 0.3,
        weight_decay: 0.01,
        ..plain
    };
    let nesterov = Sgd {
        momentum: 0.9,
        nesterov: true,
        weight_decay: 0.01,
        ..plain
    };
    let cases = [
        (
            plain,
            [
                [
                    0.9900000095367432,
                    -1.899999976158142,
                    0.30000001192092896,
                    3.0,
                ],
                [
                    0.9700000286102295,
                    -1.75,
                    -0.07499999552965164,
                    2.987499952316284,
                ],
                [
                    0.9399999976158142,
                    -1.649999976158142,
                    -0.574999988079071,
                    2.9375,
                ],
            ],
        ),
        (
            dampened,
            [
                [
                    0.9890000224113464,
                    -1.8980000019073486,
                    0.2994999885559082,
                    2.996999979019165,
                ],
                [
                    0.964407742023468,
                    -1.6998714208602905,
                    -0.14365969598293304,
                    2.983452081680298,
                ],
                [
                    0.9205995798110962,
                    -1.4503657817840576,
                    -0.8924028277397156,
                    2.9341704845428467,
                ],
            ],
        ),
        (
            nesterov,
            [
                [
                    0.9790999889373779,
                    -1.8062000274658203,
                    0.11904997378587723,
                    2.99429988861084,
                ],
                [
                    0.9303296804428101,
                    -1.4351482391357422,
                    -0.7560812830924988,
                    2.962430715560913,
                ],
                [
                    0.8465499877929688,
                    -1.045100450515747,
                    -2.154655694961548,
                    2.847064733505249,
                ],
            ],
        ),
    ];
    at_every_level(|_| {
        for (config, expected) in cases {
            // The first step must not look at what the buffer holds.
            let mut buf = vec![f32::NAN; 4 * COPIES];
            follows(expected, |t, param, grad| {
                sgd(&config, param, grad, &mut buf, t == 0).unwrap();
            });
        }
    });
}

#[test]
fn plain_descent_needs_no_buffer() {
    let mut param = [1.0];
    sgd(
        &Sgd {
            lr: 0.5,
            ..Sgd::default()
        },
        &mut param,
        &[1.0],
        &mut [],
        true,
    )
    .unwrap();
    assert_eq!(param, [0.5]);
}

#[test]
fn a_late_step_needs_no_correction_of_the_moments() {
    let config = AdamW {
        step: u64::MAX,
        weight_decay: 0.0,
        ..AdamW::default()
    };
    let (mut param, mut m, mut v) = ([0.0], [1.0], [1.0]);
    adamw(&config, &mut param, &[1.0], &mut m, &mut v).unwrap();
    assert_close(&param, &[-1e-3], 1e-9);
}

#[test]
fn settings_outside_their_range_are_named() {
    let good = AdamW::default();
    for (config, parameter) in [
        (AdamW { lr: -1.0, ..good }, "lr"),
        (
            AdamW {
                lr: f64::NAN,
                ..good
            },
            "lr",
        ),
        (AdamW { beta1: 1.0, ..good }, "beta1"),
        (
            AdamW {
                beta2: -0.1,
                ..good
            },
            "beta2",
        ),
        (AdamW { eps: -1e-8, ..good }, "eps"),
        (
            AdamW {
                weight_decay: f64::INFINITY,
                ..good
            },
            "weight_decay",
        ),
        (AdamW { step: 0, ..good }, "step"),
    ] {
        match adamw(&config, &mut [1.0], &[1.0], &mut [0.0], &mut [0.0]) {
            Err(Error::Parameter {
                parameter: found, ..
            }) => assert_eq!(found, parameter),
            other => panic!("{config:?} gave {other:?}"),
        }
    }
    let good = Sgd {
        momentum: 0.9,
        ..Sgd::default()
    };
    for (config, parameter) in [
        (
            Sgd {
                lr: f64::INFINITY,
                ..good
            },
            "lr",
        ),
        (
            Sgd {
                momentum: -0.1,
                ..good
            },
            "momentum",
        ),
        (
            Sgd {
                momentum: 0.0,
                nesterov: true,
                ..good
            },
            "momentum",
        ),
        (
            Sgd {
                dampening: 0.1,
                nesterov: true,
                ..good
            },
            "dampening",
        ),
        (
            Sgd {
                weight_decay: -1.0,
                ..good
            },
            "weight_decay",
        ),
    ] {
        match sgd(&config, &mut [1.0], &[1.0], &mut [0.0], true) {
            Err(Error::Parameter {
                parameter: found, ..
            }) => assert_eq!(found, parameter),
            other => panic!("{config:?} gave {other:?}"),
        }
    }
}

#[test]
fn state_of_another_length_is_an_error() {
    let config = AdamW::default();
    assert!(adamw(&config, &mut [1.0], &[1.0; 2], &mut [0.0], &mut [0.0]).is_err());
    assert!(adamw(&config, &mut [1.0], &[1.0], &mut [], &mut [0.0]).is_err());
    let error = adamw(&config, &mut [1.0], &[1.0], &mut [0.0], &mut [0.0; 3]).unwrap_err();
    assert_eq!(
        error,
        Error::Length {
            kernel: "adamw",
            operand: "v",
            expected: 1,
            found: 3
        }
    );
    let momentum = Sgd {
        momentum: 0.9,
        ..Sgd::default()
    };
    assert!(sgd(&momentum, &mut [1.0], &[1.0], &mut [], false).is_err());
}

#[test]
fn bits_depend_neither_on_threads_nor_on_the_width_of_a_register() {
    let (start, grad) = (data(1, 100_003, -1.0, 1.0), data(2, 100_003, -1.0, 1.0));
    let compute = || {
        let (mut a, mut b) = (start.clone(), start.clone());
        let (mut m, mut v, mut buf) = (grad.clone(), vec![0.5; a.len()], grad.clone());
        adamw(
            &AdamW {
                step: 3,
                ..AdamW::default()
            },
            &mut a,
            &grad,
            &mut m,
            &mut v,
        )
        .unwrap();
        let config = Sgd {
            momentum: 0.9,
            weight_decay: 0.1,
            ..Sgd::default()
        };
        sgd(&config, &mut b, &grad, &mut buf, false).unwrap();
        [a, b, m, v, buf].concat()
    };
    same_bits_for_any_threads(compute);
    same_bits_for_fused_levels(compute);
}
