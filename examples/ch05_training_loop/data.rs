//! What is trained on: images that are part of Tallow, files of the well-known sets, or image files in a folder a class.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tallow::data::transform::pipeline;
use tallow::data::{Dataset, Image, ImageFolder, Loader};
use tallow::prelude::*;

use crate::settings::Settings;

/// What is trained on and measured with.
pub(crate) struct Data {
    pub(crate) train: Loader,
    pub(crate) test: Loader,
    /// `[C, H, W]` of every image.
    pub(crate) shape: [usize; 3],
    pub(crate) classes: Vec<String>,
}

pub(crate) fn load(settings: &Settings) -> Result<Data> {
    let Some(folder) = &settings.data else {
        let (train, test) = datasets::fashion_mnist_subset()?;
        return in_memory(train, test, settings);
    };
    let format = match settings.format.as_str() {
        "auto" => recognise(folder)?,
        format => format,
    };
    let (train, test) = match format {
        "mnist" => datasets::mnist::load(folder)?,
        "fashion-mnist" => datasets::fashion_mnist::load(folder)?,
        "cifar10" => datasets::cifar10::load(folder)?,
        "cifar100" => datasets::cifar100::load(folder)?,
        _ => return from_files(folder, settings),
    };
    in_memory(train, test, settings)
}

/// What a folder holds, by the names in it. MNIST's files are named as Fashion-MNIST's; the folder's own name decides.
fn recognise(folder: &Path) -> Result<&'static str> {
    let listing = std::fs::read_dir(folder).with_context(|| {
        format!(
            "--data {} can't be read; give the folder of a data set that is there",
            folder.display()
        )
    })?;
    let names = listing.map(|entry| Ok(entry?.file_name().to_string_lossy().to_lowercase()));
    let names = names.collect::<Result<Vec<_>>>()?;
    let any = |beginnings: &[&str]| {
        let begins = |name: &String| beginnings.iter().any(|start| name.starts_with(start));
        names.iter().any(begins)
    };
    let called = folder.to_string_lossy().to_lowercase();
    Ok(if any(&["fashionmnist"]) {
        "fashion-mnist"
    } else if any(&["train-images", "mnist"]) {
        match called.contains("fashion") {
            true => "fashion-mnist",
            false => "mnist",
        }
    } else if any(&["data_batch_1.bin", "cifar-10-"]) {
        "cifar10"
    } else if any(&["train.bin", "cifar-100-"]) {
        "cifar100"
    } else {
        "images"
    })
}

fn in_memory(train: ImageDataset, test: ImageDataset, settings: &Settings) -> Result<Data> {
    let (shape, classes) = (train.image_shape(), train.class_names().to_vec());
    let [channels, height, width] = shape;
    let normalize = train.channel_stats()?;
    let evaluation = pipeline().to_tensor().normalize(normalize.clone());
    let test = Loader::eval(test, evaluation.clone(), eval_config(settings))?;
    let (size, config) = ([height, width], train_config(settings));
    let usual = if channels == 1 { "crop" } else { "flip-crop" };
    let begin = pipeline().random_crop(size, 4);
    let train = match settings.augment.as_deref().unwrap_or(usual) {
        "none" => Loader::train(train, evaluation, config),
        "crop" => {
            let changes = begin.to_tensor().normalize(normalize);
            Loader::train(train, changes, config)
        }
        "flip-crop" => {
            let changes = begin.random_horizontal_flip(0.5).to_tensor();
            Loader::train(train, changes.normalize(normalize), config)
        }
        "trivial-augment" => {
            let changes = pipeline().trivial_augment_wide().to_tensor();
            Loader::train(train, changes.normalize(normalize), config)
        }
        _ => {
            let changes = pipeline().rand_augment(2, 9).to_tensor();
            Loader::train(train, changes.normalize(normalize), config)
        }
    }?;
    Ok(Data {
        train,
        test,
        shape,
        classes,
    })
}

/// Some of the images of a folder.
struct Part {
    images: ImageFolder,
    numbers: Vec<usize>,
}

impl Part {
    fn new(images: &ImageFolder, keep: impl Fn(usize) -> bool) -> Self {
        Self {
            numbers: (0..images.len()).filter(|number| keep(*number)).collect(),
            images: images.clone(),
        }
    }
}

impl Dataset for Part {
    type Sample = (Image, u32);

    fn len(&self) -> usize {
        self.numbers.len()
    }

    fn get(&self, index: usize) -> tallow::data::Result<(Image, u32)> {
        self.images.get(self.numbers[index])
    }

    fn describe(&self, index: usize) -> String {
        self.images.describe(self.numbers[index])
    }
}

/// Image files, with the changes and figures that are usual for ImageNet.
fn from_files(folder: &Path, settings: &Settings) -> Result<Data> {
    let inner = |names: &[&str]| {
        let folders = names.iter().map(|name| folder.join(name));
        folders.into_iter().find(|folder| folder.is_dir())
    };
    let (train, test) = match (inner(&["train"]), inner(&["val", "valid", "test"])) {
        (Some(train), Some(test)) => {
            let (train, test) = (ImageFolder::open(train)?, ImageFolder::open(test)?);
            ensure!(
                train.classes() == test.classes(),
                "training and test images have other classes: {:?} and {:?}",
                train.classes(),
                test.classes()
            );
            (Part::new(&train, |_| true), Part::new(&test, |_| true))
        }
        (train, _) => {
            let all = ImageFolder::open(train.as_deref().unwrap_or(folder))?;
            let held_out = |number: usize| number % 10 == 9;
            (
                Part::new(&all, |number| !held_out(number)),
                Part::new(&all, held_out),
            )
        }
    };
    let classes = train.images.classes().to_vec();
    let (size, config) = (settings.size, train_config(settings));
    let normalize = Normalize {
        mean: vec![0.485, 0.456, 0.406],
        std: vec![0.229, 0.224, 0.225],
    };
    let whole = pipeline().resize(size * 8 / 7).center_crop(size);
    let evaluation = whole.to_tensor().normalize(normalize.clone());
    let test = Loader::eval(test, evaluation.clone(), eval_config(settings))?;
    let cut = pipeline().random_resized_crop(size);
    let flipped = pipeline()
        .random_resized_crop(size)
        .random_horizontal_flip(0.5);
    let train = match settings.augment.as_deref().unwrap_or("flip-crop") {
        "none" => Loader::train(train, evaluation, config),
        "crop" => Loader::train(train, cut.to_tensor().normalize(normalize), config),
        "flip-crop" => Loader::train(train, flipped.to_tensor().normalize(normalize), config),
        "trivial-augment" => {
            let changes = flipped.trivial_augment_wide().to_tensor();
            Loader::train(train, changes.normalize(normalize), config)
        }
        _ => {
            let changes = flipped.rand_augment(2, 9).to_tensor();
            Loader::train(train, changes.normalize(normalize), config)
        }
    }?;
    Ok(Data {
        train,
        test,
        shape: [3, size, size],
        classes,
    })
}

fn train_config(settings: &Settings) -> LoaderConfig {
    LoaderConfig {
        seed: settings.seed,
        ..LoaderConfig::train(settings.batch).with_workers(settings.workers)
    }
}

fn eval_config(settings: &Settings) -> LoaderConfig {
    LoaderConfig::eval(settings.batch).with_workers(settings.workers)
}
