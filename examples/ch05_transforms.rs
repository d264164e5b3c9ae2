//! Chapter 5: transforms. A pipeline for training and one for evaluation, the five traps of transforms and what becomes of
//! them here, randomness that can be repeated, and a contact sheet that shows what the model gets to see.
//!
//!     cargo run --release --example ch05_transforms -- [PICTURE]
//!
//! Takes a second. Without a PICTURE (JPEG, PNG, WebP, GIF or BMP), four of the embedded clothes stand in for one. Writes
//! `runs/ch05_transforms.png`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tallow::data::decode::{self, DecodeOptions};
use tallow::data::transform::{
    ColorJitter, FixedPipeline, Interpolation, PaddingMode, Pipeline, RandomAffine, RandomCrop,
    RandomRotation, Resize, Transform, pipeline,
};
use tallow::data::{Image, Loader, LoaderConfig, datasets};
use tallow::tensor::rng::{self, Purpose, Stream};

const SEED: u64 = 42;
const TILE: usize = 96;
const DRAWS: usize = 8;
const SHEET: &str = "runs/ch05_transforms.png";

fn main() -> Result<()> {
    training_and_evaluation()?;
    traps()?;
    repeatable()?;
    let picture = match std::env::args().nth(1) {
        Some(path) => decode::open(path, &DecodeOptions::rgb())?,
        None => clothes()?,
    };
    contact_sheet(&picture)
}

/// Random changes belong to training; evaluation sees every picture the same way each time. Which is which is part of a
/// pipeline's type: `Loader::eval` doesn't take the first one.
fn training_and_evaluation() -> Result<()> {
    let (train, test) = datasets::fashion_mnist_subset()?;
    let normalize = train.channel_stats()?;

    let augmented = pipeline()
        .random_crop(28, 2)
        .random_horizontal_flip(0.5)
        .to_tensor()
        .normalize(normalize.clone());
    let plain = pipeline().center_crop(28).to_tensor().normalize(normalize);

    let train = Loader::train(train, augmented, LoaderConfig::train(128))?;
    let test = Loader::eval(test, plain, LoaderConfig::eval(250))?;
    let first = |loader: &Loader, epoch| -> Result<Vec<f32>> {
        let batch = loader.batches(epoch)?.next().context("an empty epoch")??;
        Ok(batch.images.flatten_all()?.to_vec1()?)
    };
    ensure!(first(&train, 0)? != first(&train, 1)?);
    ensure!(first(&test, 0)? == first(&test, 1)?);
    println!("training differs from epoch to epoch, evaluation doesn't");
    Ok(())
}

/// Five mistakes that train, badly, without a word elsewhere.
fn traps() -> Result<()> {
    // 1. Normalising bytes: 200 - 0.5 is far off any scale that a model expects.
    //
    //     pipeline().resize(256).normalize(Normalize::all(0.5, 0.25));
    //
    //     error[E0277]: `Normalize` can't follow here: the pipeline gives `Image` at this point, which it does not take
    //        = note: the order is: pictures (`Image`: resize, crop, flip, colour), then `.to_tensor()` (`FloatImage`), then
    //          `.normalize(..)` (`NormalizedImage`)
    //
    // 2. Colours changed after normalising: brightness and saturation of numbers below zero mean nothing.
    //
    //     pipeline().to_tensor().normalize(..).color_jitter(ColorJitter::default());
    //
    //     error[E0277]: `ColorJitter` can't follow here: the pipeline gives `NormalizedImage` at this point, which it does
    //                   not take
    //
    // 3. Random transforms in evaluation: the figure is then that of luck as well.
    //
    //     Loader::eval(test, pipeline().random_horizontal_flip(0.5).to_tensor(), LoaderConfig::eval(100))?;
    //
    //     error[E0277]: this pipeline draws random numbers, and evaluation takes only pipelines that give the same every time
    //        = note: leave out the random transforms: `resize` and `center_crop` instead of `random_resized_crop`, no flips, no
    //          colour jitter
    //
    // 4. Normalising twice, once in the data set and once in the pipeline.
    //
    //     pipeline().to_tensor().normalize(..).normalize(..);
    //
    //     error[E0277]: `Normalize` can't follow here: the pipeline gives `NormalizedImage` at this point, which it does not
    //                   take
    //
    // 5. A crop larger than its picture, which elsewhere gets a black border. Sizes are known when a picture is there, so this
    //    one is an error that names both:
    let small = Image::new(vec![0; 200 * 300 * 3], [200, 300], 3)?;
    let error = pipeline().center_crop(224).apply_fixed(small);
    let error = error.err().context("a crop larger than its picture")?;
    println!("trap: {error}");
    Ok(())
}

/// What is drawn depends on the seed, the epoch and the number of the sample: never on a worker, or on what came before.
fn repeatable() -> Result<()> {
    let changes = pipeline().random_crop(28, 4).random_rotation(30.);
    let (train, _) = datasets::fashion_mnist_subset()?;
    let pixels = train.image(7).context("a data set of 8,000")?.to_vec();
    let changed = |epoch, sample| -> Result<Image> {
        let key = rng::key(SEED, Purpose::Augment, epoch, sample);
        let image = Image::new(pixels.clone(), [28, 28], 1)?;
        Ok(changes.apply(image, &mut Stream::new(key))?)
    };
    ensure!(changed(3, 7)? == changed(3, 7)?);
    ensure!(changed(3, 7)? != changed(4, 7)?);
    println!("the same seed, epoch and sample: the same picture");
    Ok(())
}

/// Four embedded pictures in a square, in colours of their own.
fn clothes() -> Result<Image> {
    const COLOURS: [[u32; 3]; 4] = [
        [255, 120, 60],
        [80, 200, 255],
        [255, 220, 90],
        [160, 255, 120],
    ];
    let (train, _) = datasets::fashion_mnist_subset()?;
    let mut values = Vec::with_capacity(56 * 56 * 3);
    for y in 0..56 {
        for x in 0..56 {
            let tile = y / 28 * 2 + x / 28;
            let pixels = train.image(tile).context("a data set of 8,000")?;
            let grey = u32::from(pixels[y % 28 * 28 + x % 28]);
            values.extend(COLOURS[tile].map(|colour| (40 + grey * colour * 215 / 65_025) as u8));
        }
    }
    Ok(Image::new(values, [56, 56], 3)?)
}

/// One row a pipeline, one column a draw; the first column is the picture itself.
fn contact_sheet(picture: &Image) -> Result<()> {
    let square = pipeline()
        .then(Resize::new(TILE).interpolation(Interpolation::Bicubic))
        .center_crop(TILE);
    let picture = square.apply_fixed(picture.clone())?;
    let start = pipeline;
    let jitter = ColorJitter {
        brightness: 0.4,
        contrast: 0.4,
        saturation: 0.6,
        hue: 0.1,
    };
    let affine = RandomAffine {
        degrees: [-15., 15.],
        translate: [0.1, 0.1],
        scale: [0.8, 1.2],
        shear: [[-10., 10.], [0., 0.]],
        interpolation: Interpolation::Bilinear,
        ..RandomAffine::default()
    };
    let rotation = RandomRotation {
        interpolation: Interpolation::Bicubic,
        ..RandomRotation::new(30.)
    };
    let padded = RandomCrop::new(TILE).padding(12, PaddingMode::Reflect);
    let rows = [
        (
            "random_horizontal_flip",
            row(&picture, &start().random_horizontal_flip(0.5))?,
        ),
        (
            "RandomCrop, 12 mirrored",
            row(&picture, &start().then(padded))?,
        ),
        (
            "random_resized_crop",
            row(&picture, &start().random_resized_crop(TILE))?,
        ),
        (
            "RandomRotation, bicubic",
            row(&picture, &start().then(rotation))?,
        ),
        (
            "random_affine",
            row(&picture, &start().random_affine(affine))?,
        ),
        (
            "color_jitter",
            row(&picture, &start().color_jitter(jitter))?,
        ),
        ("rand_augment", row(&picture, &start().rand_augment(2, 9))?),
        (
            "trivial_augment_wide",
            row(&picture, &start().trivial_augment_wide())?,
        ),
    ];
    for (number, (name, _)) in rows.iter().enumerate() {
        println!("row {}: {name}", number + 1);
    }
    let values: Vec<u8> = rows.into_iter().flat_map(|(_, row)| row).collect();
    let width = TILE * (DRAWS + 1);
    let height = values.len() / (width * 3);
    write_png(Path::new(SHEET), &values, [height, width])?;
    println!("{SHEET}: {width}x{height} pixels, the picture itself in the first column");
    Ok(())
}

/// The picture and what becomes of it in so many draws, beside each other: `[TILE, TILE * (DRAWS + 1), 3]`.
fn row<T>(picture: &Image, changes: &Pipeline<T>) -> Result<Vec<u8>>
where
    T: Transform<Image, Output = Image>,
{
    let mut tiles = vec![picture.clone()];
    for draw in 0..DRAWS as u64 {
        let key = rng::key(SEED, Purpose::Augment, 0, draw);
        tiles.push(changes.apply(picture.clone(), &mut Stream::new(key))?);
    }
    let line = |y: usize| {
        tiles
            .iter()
            .flat_map(move |tile| tile.values().chunks(TILE * 3).nth(y))
    };
    Ok((0..TILE).flat_map(|y| line(y).flatten().copied()).collect())
}

fn write_png(path: &Path, values: &[u8], [height, width]: [usize; 2]) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let (width, height) = (u32::try_from(width)?, u32::try_from(height)?);
    image::save_buffer(path, values, width, height, image::ColorType::Rgb8)?;
    Ok(())
}
