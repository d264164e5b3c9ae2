//! MixUp and CutMix on batches.

use tallow_data::transform::{CutMix, MixUp};
use tallow_data::{Batch, BatchSource, LoaderConfig, Mix, datasets};

const SHAPE: [usize; 4] = [4, 2, 6, 5];

/// Sample `i` holds `i` everywhere, and has label `i`.
fn batch() -> (Vec<f32>, Vec<u32>) {
    let size = SHAPE[1..].iter().product::<usize>();
    let images = (0..4 * size).map(|place| (place / size) as f32).collect();
    (images, vec![0, 1, 2, 3])
}

#[test]
fn mixup_is_lambda_of_each_and_the_rest_of_the_one_before() {
    let (mut images, labels) = batch();
    let mixed = MixUp {
        alpha: 0.4,
        seed: 1,
    }
    .apply(&mut images, SHAPE, &labels, 0, 0)
    .unwrap();
    assert_eq!(
        (mixed.labels.as_slice(), mixed.others.as_slice()),
        (&[0, 1, 2, 3][..], &[3, 0, 1, 2][..])
    );
    for (place, &value) in images.iter().enumerate() {
        let sample = place / 60;
        let (own, other) = (sample as f64, mixed.others[sample] as f64);
        let expected = mixed.lambda * own + (1. - mixed.lambda) * other;
        assert!((f64::from(value) - expected).abs() < 1e-5);
    }
    let soft = mixed.soft_labels(4).unwrap();
    assert!(
        soft.chunks(4)
            .all(|row| (row.iter().sum::<f32>() - 1.).abs() < 1e-6)
    );
    assert!((f64::from(soft[0]) - mixed.lambda).abs() < 1e-6);
    assert!(
        mixed
            .soft_labels(3)
            .unwrap_err()
            .to_string()
            .contains("sample 0")
    );
}

#[test]
fn cutmix_labels_follow_the_area() {
    for number in 0..200 {
        let (mut images, labels) = batch();
        let mixed = CutMix { alpha: 1., seed: 1 }
            .apply(&mut images, SHAPE, &labels, 0, number)
            .unwrap();
        for (sample, image) in images.chunks(60).enumerate() {
            let own = image
                .iter()
                .filter(|&&value| value == sample as f32)
                .count();
            let other = image
                .iter()
                .filter(|&&value| value == mixed.others[sample] as f32)
                .count();
            assert_eq!(own + other, 60);
            assert!(
                (own as f64 / 60. - mixed.lambda).abs() < 1e-9,
                "{own} of 60 for {}",
                mixed.lambda
            );
        }
    }
}

#[test]
fn what_is_drawn_depends_on_seed_epoch_and_batch_alone() {
    let lambda = |seed, epoch, number| {
        let (mut images, labels) = batch();
        MixUp { alpha: 1., seed }
            .apply(&mut images, SHAPE, &labels, epoch, number)
            .unwrap()
            .lambda
    };
    assert_eq!(lambda(1, 2, 3), lambda(1, 2, 3));
    assert!(
        [lambda(2, 2, 3), lambda(1, 3, 3), lambda(1, 2, 4)]
            .iter()
            .all(|&l| l != lambda(1, 2, 3))
    );
}

#[test]
fn lambdas_follow_the_beta_distribution() {
    // Mean 1/2 and variance 1 / (4 (2 alpha + 1)).
    for alpha in [1e-3, 0.2, 1., 4.] {
        let lambdas: Vec<f64> = (0..4_000)
            .map(|number| {
                let mut images = [0.; 2];
                let mixed =
                    MixUp { alpha, seed: 3 }.apply(&mut images, [2, 1, 1, 1], &[0, 1], 0, number);
                mixed.unwrap().lambda
            })
            .collect();
        assert!(lambdas.iter().all(|l| (0. ..=1.).contains(l)));
        let mean = lambdas.iter().sum::<f64>() / 4_000.;
        let variance = lambdas.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / 4_000.;
        assert!((mean - 0.5).abs() < 0.03, "{alpha}: mean {mean}");
        assert!(
            (variance * 4. * (2. * alpha + 1.) - 1.).abs() < 0.1,
            "{alpha}: variance {variance}"
        );
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let (mut images, labels) = batch();
    let mix = MixUp {
        alpha: 0.2,
        seed: 1,
    };
    assert!(mix.apply(&mut images, [4, 2, 6, 6], &labels, 0, 0).is_err());
    assert!(mix.apply(&mut images, SHAPE, &labels[1..], 0, 0).is_err());
    assert!(
        MixUp { alpha: 0., seed: 1 }
            .apply(&mut images, SHAPE, &labels, 0, 0)
            .is_err()
    );
    assert!(
        CutMix {
            alpha: f64::NAN,
            seed: 1
        }
        .apply(&mut images, SHAPE, &labels, 0, 0)
        .is_err()
    );
}

/// Images, labels, second labels and shares.
type Values = (Vec<f32>, Vec<u32>, Vec<u32>, Vec<f32>);

fn values(batch: Batch) -> Values {
    let images = batch.images.flatten_all().unwrap().to_vec1().unwrap();
    let Some(Mix::Pair { labels, lambda }) = batch.mix else {
        panic!("a batch isn't mixed");
    };
    let first = batch.labels.to_vec1().unwrap();
    let (second, lambda) = (labels.to_vec1().unwrap(), lambda.to_vec1().unwrap());
    (images, first, second, lambda)
}

#[test]
fn a_mixed_epoch_gone_on_with_is_the_same_and_another_is_another() {
    let (train, _) = datasets::fashion_mnist_subset().unwrap();
    let plain = train.take(60).loader(LoaderConfig::train(10)).unwrap();
    let up = MixUp {
        alpha: 0.5,
        seed: 3,
    }
    .over(plain.clone());
    let cut = CutMix { alpha: 1., seed: 3 }.over(&plain);
    let sources: [&dyn BatchSource; 2] = [&up, &cut];
    for source in sources {
        let read = |epoch, done| -> Vec<Values> {
            let batches = source.epoch_from(epoch, done).unwrap();
            batches.map(|batch| values(batch.unwrap())).collect()
        };
        let whole = read(1, 0);
        assert_eq!(whole.len(), 6);
        assert_eq!(source.len_hint(), Some(6));
        assert_eq!(read(1, 4), whole[4..]);
        assert_ne!(read(2, 0), whole);
        for (plain, (_, first, second, lambda)) in plain.epoch(1).unwrap().zip(&whole) {
            let mut labels = plain.unwrap().labels.to_vec1::<u32>().unwrap();
            assert_eq!(&labels, first);
            labels.rotate_right(1);
            assert_eq!(&labels, second);
            assert!(lambda.iter().all(|share| *share == lambda[0]));
        }
    }
    let twice = MixUp {
        alpha: 0.5,
        seed: 3,
    }
    .over(up);
    let error = twice.epoch(0).unwrap().next().unwrap().unwrap_err();
    assert!(error.to_string().contains("mixed already"), "{error}");
}
