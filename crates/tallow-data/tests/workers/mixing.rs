//! Loaders whose batches are mixed: what is mixed how depends on seed, epoch and batch alone.

use candle_core::Tensor;
use tallow_data::transform::{CutMix, MixUp};
use tallow_data::{Batch, BatchSource, ImageDataset, Loader, LoaderConfig, Mix, Result};

use super::WORKERS;

/// 12 images `[1, 4, 5]` of 3 classes.
fn images() -> ImageDataset {
    let pixels = (0..12 * 20).map(|i| (i * 37 % 251) as u8).collect();
    let labels = (0..12).map(|i| i % 3).collect();
    ImageDataset::new(pixels, [1, 4, 5], labels, ["a", "b", "c"]).unwrap()
}

fn loader(workers: usize) -> Loader {
    let config = LoaderConfig::train(4).with_workers(workers);
    images().loader(config).unwrap()
}

/// Images, labels, the other labels, and their shares.
type Numbers = (Vec<f32>, Vec<u32>, Vec<u32>, Vec<f32>);

/// All numbers of a batch that is a pair.
fn numbers(batch: &Batch) -> Numbers {
    let Some(Mix::Pair { labels, lambda }) = &batch.mix else {
        panic!("a batch that isn't mixed");
    };
    let floats = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let classes = |tensor: &Tensor| tensor.to_vec1::<u32>().unwrap();
    (
        floats(&batch.images),
        classes(&batch.labels),
        classes(labels),
        floats(lambda),
    )
}

fn read(loader: &Loader, epoch: u64) -> Vec<Numbers> {
    let batches = loader.batches(epoch).unwrap();
    batches.map(|batch| numbers(&batch.unwrap())).collect()
}

#[test]
fn a_loader_mixes_each_batch_as_the_transforms_do() {
    for epoch in 0..3 {
        let plain: Vec<Batch> = loader(0)
            .batches(epoch)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let by_hand = |mix: &dyn Fn(Batch, u64) -> Result<Batch>| -> Vec<_> {
            let batches = plain.iter().cloned().zip(0..);
            batches
                .map(|(batch, number)| numbers(&mix(batch, number).unwrap()))
                .collect()
        };
        let mixup = MixUp {
            alpha: 0.4,
            seed: 42,
        };
        let cutmix = CutMix {
            alpha: 1.,
            seed: 42,
        };
        let mixed = by_hand(&|batch, number| mixup.mix(batch, epoch, number));
        assert_eq!(read(&loader(2).mixup(0.4).unwrap(), epoch), mixed);
        let cut = by_hand(&|batch, number| cutmix.mix(batch, epoch, number));
        assert_eq!(read(&loader(2).cutmix(1.).unwrap(), epoch), cut);
        let either = read(&loader(2).mixup_or_cutmix(0.4, 1.).unwrap(), epoch);
        for ((found, mixed), cut) in either.iter().zip(&mixed).zip(&cut) {
            assert!(found == mixed || found == cut);
        }
        // The larger part is the batch's own label, which metrics count.
        assert!(
            mixed
                .iter()
                .chain(&cut)
                .all(|batch| batch.3.iter().all(|&l| l >= 0.5))
        );
    }
}

/// What a label weighs is what its image holds.
#[test]
fn shares_are_those_of_the_pictures() {
    let pixels = (0..4).flat_map(|image| [image * 80u8; 20]).collect();
    let names = ["a", "b", "c", "d"];
    let data = ImageDataset::new(pixels, [1, 4, 5], vec![0, 1, 2, 3], names).unwrap();
    let loader = data
        .loader(LoaderConfig::train(4))
        .unwrap()
        .mixup(1.)
        .unwrap();
    for epoch in 0..20 {
        for (images, first, second, lambda) in read(&loader, epoch) {
            for (sample, image) in images.chunks(20).enumerate() {
                let value = |class: u32| (class * 80) as f32 / 255.;
                let share = lambda[sample];
                let expected = share * value(first[sample]) + (1. - share) * value(second[sample]);
                assert!(image.iter().all(|found| (found - expected).abs() < 1e-6));
            }
        }
    }
}

#[test]
fn workers_and_resuming_change_nothing() {
    type Mixed = fn(Loader) -> Result<Loader>;
    let ways: [Mixed; 3] = [
        |loader| loader.mixup(0.3),
        |loader| loader.cutmix(0.7),
        |loader| loader.mixup_or_cutmix(0.3, 0.7),
    ];
    for mixed in ways {
        let reference = read(&mixed(loader(0)).unwrap(), 1);
        assert_eq!(reference.len(), 3);
        for workers in WORKERS {
            let loader = mixed(loader(workers)).unwrap();
            assert_eq!(read(&loader, 1), reference);
            assert_eq!(loader.len_hint(), Some(3));
            let mut epoch = loader.batches(1).unwrap();
            epoch.next().unwrap().unwrap();
            let rest = loader.resume(&epoch.state()).unwrap();
            let rest: Vec<_> = rest.map(|batch| numbers(&batch.unwrap())).collect();
            assert_eq!(rest, reference[1..]);
        }
    }
}

#[test]
fn mixing_twice_and_impossible_alphas_are_errors() {
    for alpha in [0., -1., f64::NAN, f64::INFINITY] {
        assert!(loader(0).mixup(alpha).is_err());
        assert!(loader(0).cutmix(alpha).is_err());
        assert!(loader(0).mixup_or_cutmix(0.2, alpha).is_err());
    }
    let twice = loader(0).mixup(0.2).unwrap().cutmix(1.).unwrap();
    let error = twice.batches(0).unwrap().next().unwrap().unwrap_err();
    assert!(error.to_string().contains("mixed already"), "{error}");
}
