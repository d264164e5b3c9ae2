//! Images through typed pipelines.

use tallow_data::transform::pipeline;
use tallow_data::{
    Augment, Batch, Dataset, Error, Image, ImageDataset, Loader, LoaderConfig, Normalize, Result,
    source,
};
use tallow_tensor::rng::{self, Purpose, Stream};

use super::WORKERS;
use super::order::read;

/// 30 colour images of 6 x 6 pixels; the label of image i is i.
fn dataset() -> ImageDataset {
    let pixels = (0..30 * 3 * 36).map(|i| (i * 7 + i / 251) as u8).collect();
    let names = (0..30).map(|i| i.to_string());
    ImageDataset::new(pixels, [3, 6, 6], (0..30).collect(), names).unwrap()
}

fn content(batch: &Batch) -> (Vec<u32>, Vec<f32>) {
    let values = batch.images.flatten_all().unwrap().to_vec1().unwrap();
    (batch.labels.to_vec1().unwrap(), values)
}

#[test]
fn every_image_is_changed_by_its_own_stream() {
    let data = dataset();
    let normalize = Normalize {
        mean: vec![0.5, 0.25, 0.4],
        std: vec![0.5, 2., 1.],
    };
    let changes = pipeline()
        .random_crop(6, 2)
        .random_horizontal_flip(0.5)
        .to_tensor()
        .normalize(normalize);
    let (seed, epoch) = (9, 2);
    for workers in WORKERS {
        let config = LoaderConfig {
            seed,
            ..LoaderConfig::train(8).with_workers(workers)
        };
        let loader = Loader::train(data.clone(), changes.clone(), config).unwrap();
        let batches = read(&loader, epoch);
        assert_eq!(batches.len(), 3);
        for batch in &batches {
            assert_eq!(batch.images.dims(), [8, 3, 6, 6]);
            let (labels, values) = content(batch);
            for (label, values) in labels.into_iter().zip(values.chunks(3 * 36)) {
                let (image, _) = Dataset::get(&data, label as usize).unwrap();
                let key = rng::key(seed, Purpose::Augment, epoch, label.into());
                let expected = changes.apply(image, &mut Stream::new(key)).unwrap();
                assert_eq!(
                    values,
                    expected.values(),
                    "image {label}, {workers} workers"
                );
            }
        }
    }
}

#[test]
fn evaluation_gives_the_same_as_the_loader_of_bytes() {
    let data = dataset();
    let normalize = data.channel_stats().unwrap();
    let bytes = data
        .loader(LoaderConfig {
            normalize: Some(normalize.clone()),
            ..LoaderConfig::eval(7)
        })
        .unwrap();
    let changes = pipeline().to_tensor().normalize(normalize);
    let loader = Loader::eval(data, changes, LoaderConfig::eval(7).with_workers(2)).unwrap();
    let pairs = read(&loader, 0).into_iter().zip(read(&bytes, 0));
    for (ours, theirs) in pairs {
        let ((labels, ours), (expected, theirs)) = (content(&ours), content(&theirs));
        assert_eq!(labels, expected);
        for (a, b) in ours.iter().zip(theirs) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }
}

#[test]
fn an_image_of_another_size_is_an_error_that_names_it() {
    let image = |side: usize| {
        (
            Image::new(vec![0; side * side], [side, side], 1).unwrap(),
            0u32,
        )
    };
    let images = source::list([image(4), image(4), image(5), image(4)]);
    let eval = |changes| Loader::eval(images.clone(), changes, LoaderConfig::eval(4)).unwrap();
    let read: Vec<Result<Batch>> = eval(pipeline().to_tensor()).batches(0).unwrap().collect();
    assert_eq!(
        read[0].as_ref().unwrap_err().to_string(),
        "sample 2: a batch needs images of one shape, [1, 4, 4] [C, H, W] as its first; resize or crop them in the \
         pipeline, found [1, 5, 5]"
    );
    let config = LoaderConfig::eval(4);
    let cropped = Loader::eval(images, pipeline().center_crop(4).to_tensor(), config).unwrap();
    assert!(cropped.batches(0).unwrap().all(|batch| batch.is_ok()));
}

#[test]
fn settings_of_pipeline_and_loader_are_checked_before_the_first_image() {
    let train = |changes, config| Loader::train(dataset(), changes, config).map(|_| ());
    let bad = [
        train(
            pipeline().to_tensor().normalize(Normalize::all(0., 0.)),
            LoaderConfig::train(2),
        ),
        train(
            pipeline().to_tensor().normalize(Normalize::all(0., 1.)),
            LoaderConfig {
                augment: Augment::flip_and_crop(2),
                ..LoaderConfig::train(2)
            },
        ),
    ];
    for result in bad {
        assert!(matches!(result, Err(Error::Setting { .. })), "{result:?}");
    }
}
