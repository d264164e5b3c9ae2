//! Chapter 5: a trainer to start your own from. It reads a data set, trains a model with the usual settings, and keeps logs,
//! curves and checkpoints in a run folder, from which a run that was ended, by whatever, goes on.
//!
//!     cargo run --release --example ch05_training_loop
//!
//! trains LeNet-5 on the 8,000 images that are part of Tallow: 86 % of the 1,000 test images after 6 epochs, in seconds.
//!
//!     cargo run --release --example ch05_training_loop -- --data /usr/share/datasets/fashion-mnist \
//!         --model simple-cifar --epochs 10 --batch 128 --lr 0.01 --ema 0.999 --compile --out runs/fashion
//!
//! trains on all of Fashion-MNIST; with `--resume` added, the same command goes on with it. `--help` lists what else there is.
//! What a step consists of is written out in `ch05_loop_by_hand`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use clap::{Parser, ValueEnum};
use tallow::data::transform::{CutMix, MixUp, pipeline};
use tallow::data::{Dataset, Image, ImageFolder, Loader};
use tallow::nn::models::ResNetConfig;
use tallow::nn::{
    AlexNetConfig, Layer, LeNet5Config, PatchEmbedConfig, SimpleCifarConfig,
    VisionTransformerConfig, summary_of,
};
use tallow::prelude::*;
use tallow::train::hooks::{
    Better, ClassScores, EarlyStopping, Interrupt, NanGuard, RunFolder, TimeLimit,
};
use tallow::train::{EmaConfig, GradientClip, Lamb, LrFinder, Muon, ParamGroups, TrainerBuilder};

/// Trains an image classifier, and keeps all files of the run in a folder.
#[derive(Debug, Parser)]
#[command(name = "ch05_training_loop")]
struct Settings {
    /// Files of MNIST, Fashion-MNIST or CIFAR, or images in a folder a class (with `train` and `val` above, or every tenth
    /// image held out); without it, the images that are part of Tallow
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// What the folder holds
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Side of the square that image files are cut to
    #[arg(long, value_name = "PIXELS", default_value_t = 224, value_parser = positive)]
    size: usize,
    /// Random changes to training images; `crop` for grey ones, `flip-crop` for others
    #[arg(long, value_enum)]
    augment: Option<Change>,
    #[arg(long, value_enum, default_value_t = Model::Lenet)]
    model: Model,
    /// Weights to begin with: .safetensors, .pt or .pth
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Parameters that are not taken from there: those of this layer, such as a head for other classes
    #[arg(long, value_name = "LAYER", requires = "weights")]
    skip: Option<String>,
    /// Layers whose parameters stay as they are
    #[arg(long, value_name = "LAYER")]
    freeze: Vec<String>,
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,
    /// Images a step
    #[arg(long, default_value_t = 64, value_parser = positive)]
    batch: usize,
    /// Batches a step
    #[arg(long, default_value_t = 1)]
    accumulate: u64,
    #[arg(long, value_enum, default_value_t = Algorithm::Adamw)]
    optimizer: Algorithm,
    /// Highest learning rate [default: 0.004 for AdamW and LAMB, 0.05 for SGD, 0.02 for Muon]
    #[arg(long)]
    lr: Option<f64>,
    /// Of weights; norms and biases have none
    #[arg(long, default_value_t = 0.01)]
    weight_decay: f64,
    #[arg(long, value_enum, default_value_t = Schedule::OneCycle)]
    schedule: Schedule,
    /// Share of the labels that is spread over all classes
    #[arg(long, default_value_t = 0.1)]
    label_smoothing: f64,
    /// Mixes images, with this alpha; 0.2 is usual
    #[arg(long, value_name = "ALPHA", conflicts_with = "cutmix")]
    mixup: Option<f64>,
    /// Puts a part of one image into another, with this alpha; 1 is usual
    #[arg(long, value_name = "ALPHA")]
    cutmix: Option<f64>,
    /// Evaluates an average of the weights, of which a step keeps this much
    #[arg(long, value_name = "DECAY")]
    ema: Option<f64>,
    /// Longest norm of the gradients
    #[arg(long, value_name = "NORM")]
    clip: Option<f64>,
    /// Stops after so many epochs without a better accuracy, and takes the best
    #[arg(long, value_name = "EPOCHS")]
    patience: Option<u64>,
    /// Stops after this time
    #[arg(long)]
    minutes: Option<f64>,
    /// Runs steps as compiled plans
    #[arg(long)]
    compile: bool,
    /// Threads that make batches
    #[arg(long, default_value_t = 1)]
    workers: usize,
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Folder of the run [default: the first of runs/1, runs/2, .. that is free]
    #[arg(long, value_name = "RUN")]
    out: Option<PathBuf>,
    /// Goes on with the run in the folder, if there is one
    #[arg(long, requires = "out")]
    resume: bool,
    /// Looks for a learning rate instead of training, and draws what it saw as lr.svg in the folder
    #[arg(long)]
    find_lr: bool,
    /// Runs one batch of everything, to see whether it would run
    #[arg(long)]
    dev_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Auto,
    Mnist,
    FashionMnist,
    Cifar10,
    Cifar100,
    Images,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Change {
    None,
    Crop,
    FlipCrop,
    TrivialAugment,
    RandAugment,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Model {
    Lenet,
    SimpleCifar,
    Alexnet,
    Resnet18,
    Resnet34,
    Resnet50,
    VitTiny,
    VitSmall,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Algorithm {
    Adamw,
    Sgd,
    Lamb,
    Muon,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Schedule {
    OneCycle,
    Cosine,
    Constant,
}

fn positive(text: &str) -> Result<usize> {
    let number: usize = text.parse()?;
    ensure!(number > 0, "at least 1 is needed");
    Ok(number)
}

fn main() -> Result<()> {
    let settings = Settings::parse();
    let data = load(&settings)?;
    println!(
        "{} training and {} test batches of {:?}, {} classes",
        data.train.len_hint().unwrap_or_default(),
        data.test.len_hint().unwrap_or_default(),
        data.shape,
        data.classes.len()
    );
    let params = Params::new(settings.seed, DType::F32, &Device::Cpu);
    let model = build(&settings, &data, params.builder())?;
    let [channels, height, width] = data.shape;
    let image = Tensor::zeros((1, channels, height, width), DType::F32, &Device::Cpu)?;
    println!("{}", summary_of(&model, &image, Some(&params))?);
    if let Some(path) = &settings.weights {
        let names = settings.skip.iter().fold(NameMap::new(), |m, s| m.skip(s));
        println!("{}", params.load_renamed(path, &names, Strict::No)?);
    }
    for layer in &settings.freeze {
        ensure!(params.freeze(layer) > 0, "the model has no layer `{layer}`");
    }

    let out = run_folder(&settings)?;
    let scores = ClassScores::new(data.classes.len())?;
    let matrix = scores.matrix();
    let builder = Trainer::builder(model, params).hook(Box::new(scores));
    let mut trainer = configure(builder, &settings, &out)?.build()?;
    if let Some(path) = trainer.resumed_from() {
        println!("going on from {}", path.display());
    }
    let seed = settings.seed;
    let train: Box<dyn BatchSource> = match (settings.mixup, settings.cutmix) {
        (Some(alpha), _) => Box::new(MixUp { alpha, seed }.over(data.train)),
        (_, Some(alpha)) => Box::new(CutMix { alpha, seed }.over(data.train)),
        _ => Box::new(data.train),
    };
    if settings.find_lr {
        return find_lr(&mut trainer, &train, &out);
    }
    let history = trainer.fit(&train, Some(&data.test))?;

    for (class, scores) in data.classes.iter().zip(matrix.get().per_class()).take(20) {
        println!(
            "{class:>16}: precision {:.3}, recall {:.3}, F1 {:.3}",
            scores.precision, scores.recall, scores.f1
        );
    }
    report(&history, &settings, &out)
}

/// Where the run's files go; a folder that holds a run already is not written over.
fn run_folder(settings: &Settings) -> Result<PathBuf> {
    let Some(out) = &settings.out else {
        let folders = (1..).map(|number: u64| Path::new("runs").join(number.to_string()));
        let free = folders.into_iter().find(|folder| !folder.exists());
        return free.context("no free folder for the run");
    };
    let begun = out.join("config.json").exists();
    if begun && !(settings.resume || settings.dev_run || settings.find_lr) {
        bail!(
            "{0} holds a run already: add --resume to go on with it, or give another folder with --out",
            out.display()
        );
    }
    Ok(out.clone())
}

/// The settings of the training, from those of the command line.
fn configure(
    builder: TrainerBuilder<Layer>,
    settings: &Settings,
    out: &Path,
) -> Result<TrainerBuilder<Layer>> {
    let groups = ParamGroups::new().no_decay_on_norms_and_biases();
    let lr = |usual| settings.lr.unwrap_or(usual);
    let decay = settings.weight_decay;
    let mut builder = match settings.optimizer {
        Algorithm::Adamw => {
            builder.optimizer(AdamW::new(lr(0.004)).weight_decay(decay).groups(groups))
        }
        Algorithm::Sgd => {
            let sgd = Sgd::new(lr(0.05)).momentum(0.9).nesterov(true);
            builder.optimizer(sgd.weight_decay(decay).groups(groups))
        }
        Algorithm::Lamb => {
            builder.optimizer(Lamb::new(lr(0.004)).weight_decay(decay).groups(groups))
        }
        Algorithm::Muon => {
            builder.optimizer(Muon::new(lr(0.02)).weight_decay(decay).groups(groups))
        }
    };
    let schedule = settings.schedule;
    builder = builder
        .schedule_over_training(move |steps| match schedule {
            Schedule::OneCycle => LrSchedule::one_cycle(steps),
            Schedule::Cosine => {
                let warmup = steps / 20;
                LrSchedule::cosine(steps - warmup).with_warmup(warmup, 0.01)
            }
            Schedule::Constant => LrSchedule::constant(),
        })
        .loss(CrossEntropyConfig {
            label_smoothing: settings.label_smoothing,
            ..Default::default()
        })
        .epochs(settings.epochs)
        .seed(settings.seed)
        .accumulate(settings.accumulate)
        .sanity_evaluation(1)
        .hook(Box::new(NanGuard::new()))
        .hook(Box::new(Interrupt::new()));
    if let Some(decay) = settings.ema {
        builder = builder.ema(EmaConfig::new(decay).with_warmup());
    }
    if let Some(norm) = settings.clip {
        builder = builder.clip(GradientClip::norm(norm));
    }
    if let Some(epochs) = settings.patience {
        let hook = EarlyStopping::new("evaluation/accuracy", Better::Higher).patience(epochs);
        builder = builder.hook(Box::new(hook));
    }
    if let Some(minutes) = settings.minutes {
        let limit = Duration::try_from_secs_f64(60.0 * minutes).context("--minutes")?;
        builder = builder.hook(Box::new(TimeLimit::new(limit)));
    }
    if settings.compile {
        builder = builder.compile(CompileOptions::default());
    }
    if settings.dev_run {
        return Ok(builder.fast_dev_run());
    }
    if settings.find_lr {
        return Ok(builder);
    }
    let run = RunFolder::new(out)
        .resume(settings.resume)
        .best("evaluation/accuracy", Better::Higher);
    Ok(builder.run_folder(run))
}

fn find_lr(trainer: &mut Trainer<Layer>, train: &dyn BatchSource, out: &Path) -> Result<()> {
    let curve = trainer.find_lr(train, &LrFinder::default())?;
    std::fs::create_dir_all(out)?;
    let path = out.join("lr.svg");
    std::fs::write(&path, curve.to_svg()).with_context(|| path.display().to_string())?;
    match curve.valley() {
        Some(lr) => println!("--lr {lr:.2e} looks good; see {}", path.display()),
        None => println!("the loss never fell; see {}", path.display()),
    }
    Ok(())
}

fn report(history: &History, settings: &Settings, out: &Path) -> Result<()> {
    let best = history.best().context("no epoch was finished")?;
    let accuracy = best.evaluation.as_ref().map_or(0.0, |m| m.accuracy);
    println!(
        "best test accuracy {:.2} %, in epoch {} of {}",
        100.0 * accuracy,
        best.epoch + 1,
        history.epochs.len()
    );
    if settings.dev_run {
        println!("all parts run; nothing was written");
        return Ok(());
    }
    println!(
        "logs, curves and checkpoints are in {0}; `tensorboard --logdir {0}` shows them",
        out.display()
    );
    if (history.epochs.len() as u64) < settings.epochs && settings.patience.is_none() {
        println!("ended early; --resume --out {} goes on", out.display());
    }
    Ok(())
}

/// What is trained on and measured with.
struct Data {
    train: Loader,
    test: Loader,
    /// `[C, H, W]` of every image.
    shape: [usize; 3],
    classes: Vec<String>,
}

fn load(settings: &Settings) -> Result<Data> {
    let Some(folder) = &settings.data else {
        let (train, test) = datasets::fashion_mnist_subset()?;
        return in_memory(train, test, settings);
    };
    let format = match settings.format {
        Format::Auto => recognise(folder)?,
        format => format,
    };
    let (train, test) = match format {
        Format::Mnist => datasets::mnist::load(folder)?,
        Format::FashionMnist => datasets::fashion_mnist::load(folder)?,
        Format::Cifar10 => datasets::cifar10::load(folder)?,
        Format::Cifar100 => datasets::cifar100::load(folder)?,
        Format::Auto | Format::Images => return from_files(folder, settings),
    };
    in_memory(train, test, settings)
}

/// What a folder holds, by the names in it. MNIST's files are named as Fashion-MNIST's; the folder's own name decides.
fn recognise(folder: &Path) -> Result<Format> {
    let listing =
        std::fs::read_dir(folder).with_context(|| format!("--data {}", folder.display()))?;
    let names = listing.map(|entry| Ok(entry?.file_name().to_string_lossy().to_lowercase()));
    let names = names.collect::<Result<Vec<_>>>()?;
    let any = |beginnings: &[&str]| {
        let begins = |name: &String| beginnings.iter().any(|start| name.starts_with(start));
        names.iter().any(begins)
    };
    let called = folder.to_string_lossy().to_lowercase();
    Ok(if any(&["fashionmnist"]) {
        Format::FashionMnist
    } else if any(&["train-images", "mnist"]) {
        match called.contains("fashion") {
            true => Format::FashionMnist,
            false => Format::Mnist,
        }
    } else if any(&["data_batch_1.bin", "cifar-10-"]) {
        Format::Cifar10
    } else if any(&["train.bin", "cifar-100-"]) {
        Format::Cifar100
    } else {
        Format::Images
    })
}

fn in_memory(train: ImageDataset, test: ImageDataset, settings: &Settings) -> Result<Data> {
    let (shape, classes) = (train.image_shape(), train.class_names().to_vec());
    let [channels, height, width] = shape;
    let normalize = train.channel_stats()?;
    let evaluation = pipeline().to_tensor().normalize(normalize.clone());
    let test = Loader::eval(test, evaluation.clone(), eval_config(settings))?;
    let (size, config) = ([height, width], train_config(settings));
    let usual = if channels == 1 {
        Change::Crop
    } else {
        Change::FlipCrop
    };
    let begin = pipeline().random_crop(size, 4);
    let train = match settings.augment.unwrap_or(usual) {
        Change::None => Loader::train(train, evaluation, config),
        Change::Crop => {
            let changes = begin.to_tensor().normalize(normalize);
            Loader::train(train, changes, config)
        }
        Change::FlipCrop => {
            let changes = begin.random_horizontal_flip(0.5).to_tensor();
            Loader::train(train, changes.normalize(normalize), config)
        }
        Change::TrivialAugment => {
            let changes = pipeline().trivial_augment_wide().to_tensor();
            Loader::train(train, changes.normalize(normalize), config)
        }
        Change::RandAugment => {
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
    let train = match settings.augment.unwrap_or(Change::FlipCrop) {
        Change::None => Loader::train(train, evaluation, config),
        Change::Crop => Loader::train(train, cut.to_tensor().normalize(normalize), config),
        Change::FlipCrop => Loader::train(train, flipped.to_tensor().normalize(normalize), config),
        Change::TrivialAugment => {
            let changes = flipped.trivial_augment_wide().to_tensor();
            Loader::train(train, changes.normalize(normalize), config)
        }
        Change::RandAugment => {
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

/// The model, made for the images and classes of the data.
fn build(settings: &Settings, data: &Data, vb: VarBuilder) -> Result<Layer> {
    let ([in_channels, side, _], num_classes) = (data.shape, data.classes.len());
    let resnet = |config: ResNetConfig| {
        let stem = if side < 64 {
            Stem::Cifar
        } else {
            Stem::ImageNet
        };
        let config = ResNetConfig {
            in_channels,
            num_classes,
            stem,
            ..config
        };
        ResNet::from_config(config, vb.clone()).map(Layer::new)
    };
    let vit = |config: VisionTransformerConfig| {
        let patch_embed = PatchEmbedConfig {
            image_size: side,
            patch_size: if side < 64 { 4 } else { 16 },
            in_channels,
            ..config.patch_embed
        };
        let config = VisionTransformerConfig {
            patch_embed,
            num_classes,
            ..config
        };
        VisionTransformer::from_config(config, vb.clone()).map(Layer::new)
    };
    Ok(match settings.model {
        Model::Lenet => Layer::new(LeNet5::from_config(
            LeNet5Config {
                in_channels,
                num_classes,
                image_size: side,
                ..Default::default()
            },
            vb,
        )?),
        Model::SimpleCifar => Layer::new(SimpleCifar::from_config(
            SimpleCifarConfig {
                in_channels,
                num_classes,
                ..Default::default()
            },
            vb,
        )?),
        Model::Alexnet => Layer::new(AlexNet::from_config(
            AlexNetConfig {
                in_channels,
                num_classes,
                ..Default::default()
            },
            vb,
        )?),
        Model::Resnet18 => resnet(ResNetConfig::resnet18())?,
        Model::Resnet34 => resnet(ResNetConfig::resnet34())?,
        Model::Resnet50 => resnet(ResNetConfig::resnet50())?,
        Model::VitTiny => vit(VisionTransformerConfig::tiny())?,
        Model::VitSmall => vit(VisionTransformerConfig::small())?,
    })
}
