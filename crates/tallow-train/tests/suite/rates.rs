//! Where a training's learning rate comes from beside a schedule: plateaus, functions of one's own, the range test.

use candle_core::Tensor;
use tallow_data::Batch;
use tallow_train::{Error, Lamb, LrFinder, LrSchedulerHook, ReduceOnPlateau, Sgd};

use crate::toy::{batch, batches, bits};
use crate::updates::{average_bits, everything, settings};

#[test]
fn a_plateau_lowers_the_rate_epoch_by_epoch() {
    let (builder, _) = settings(false, 0.0, false);
    let plateau = ReduceOnPlateau::on_loss()
        .with_patience(0)
        .with_factor(0.5)
        .with_threshold(10.0); // nothing is ever better
    let builder = builder
        .optimizer(Sgd::new(0.25))
        .reduce_on_plateau(plateau)
        .epochs(4);
    let history = builder.build().unwrap().fit(&batches(2), None).unwrap();
    let rates: Vec<f64> = history.epochs.iter().map(|epoch| epoch.lr).collect();
    assert_eq!(rates, [0.25, 0.25, 0.125, 0.0625]);
}

#[test]
fn a_schedule_of_ones_own_is_a_hook() {
    let (builder, _) = settings(false, 0.0, false);
    let hook = LrSchedulerHook::new(|base, step| base / (step + 1) as f64);
    let builder = builder.optimizer(Sgd::new(0.5)).hook(Box::new(hook));
    let history = builder.build().unwrap().fit(&batches(5), None).unwrap();
    assert_eq!(history.epochs[0].lr, 0.1);

    let (builder, _) = settings(false, 0.0, false);
    let hook = LrSchedulerHook::new(|_, _| f64::NAN);
    let error = builder
        .hook(Box::new(hook))
        .build()
        .unwrap()
        .fit(&batches(1), None);
    assert!(matches!(error, Err(Error::Setting { .. })));
}

#[test]
fn the_range_test_gives_a_curve_and_changes_nothing() {
    for compiled in [false, true] {
        let (builder, params) = everything(compiled);
        let mut trainer = builder.build().unwrap();
        trainer.fit(&batches(4), None).unwrap();
        let before = (bits(&params), average_bits(&trainer), trainer.steps());
        let state = trainer.optimizer().state().deep_copy().unwrap();
        let finder = LrFinder {
            steps: 40,
            ..LrFinder::default()
        };
        let curve = trainer.find_lr(&batches(3), &finder).unwrap();
        assert_eq!(
            before,
            (bits(&params), average_bits(&trainer), trainer.steps())
        );
        let after = trainer.optimizer().state();
        assert_eq!(state.settings, after.settings);
        for (name, parameter) in &state.parameters {
            let same = &after.parameters[name];
            assert_eq!(parameter.step, same.step);
            for (slot, tensor) in &parameter.tensors {
                let values = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                assert_eq!(
                    values(tensor),
                    values(&same.tensors[slot]),
                    "{slot} of {name}"
                );
            }
        }
        let points = curve.points();
        assert!(points.len() > 20 && points[0].lr == 1e-7, "{points:?}");
    }
}

#[test]
fn the_range_test_finds_a_rate_that_learns() {
    let (builder, _) = settings(false, 0.0, false);
    let mut trainer = builder.optimizer(Lamb::new(1e-3)).build().unwrap();
    let data = vec![batch(0, 6)];
    let finder = LrFinder {
        start: 1e-5,
        smoothing: 0.5,
        ..LrFinder::default()
    };
    let curve = trainer.find_lr(&data, &finder).unwrap();
    let valley = curve.valley().expect("the loss falls somewhere");
    assert!((1e-5..10.0).contains(&valley), "{valley}");
    assert!(curve.steepest().is_some());
    let svg = curve.to_svg();
    assert!(svg.contains("<polyline") && svg.contains("valley") && svg.ends_with("</svg>\n"));
    for wrong in [
        LrFinder {
            start: 0.0,
            ..finder
        },
        LrFinder { steps: 1, ..finder },
        LrFinder {
            smoothing: 1.0,
            ..finder
        },
        LrFinder {
            diverged_at: 1.0,
            ..finder
        },
    ] {
        assert!(trainer.find_lr(&data, &wrong).is_err(), "{wrong:?}");
    }
    assert!(matches!(
        trainer.find_lr(&Vec::<Batch>::new(), &finder),
        Err(Error::NoBatches { .. })
    ));
}
