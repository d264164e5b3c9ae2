//! Chapter 5: a trainer to start your own from. It reads a data set, trains a model with the usual settings, and keeps logs,
//! curves and checkpoints in a run folder, from which a run that was ended, by whatever, goes on.
//!
//!     cargo run --release --example ch05_training_loop
//!
//! trains LeNet-5 on the 8,000 images that are part of Tallow: 81 % of the 1,000 test images after 6 epochs, in about 10 s.
//!
//!     cargo run --release --example ch05_training_loop -- --data /usr/share/datasets/fashion-mnist \
//!         --model simple-cifar --epochs 10 --batch 128 --lr 0.01 --ema 0.999 --compile --out runs/fashion
//!
//! trains on all of Fashion-MNIST; with `--resume` added, the same command goes on with it. `--help` lists what else there is.
//! What a step consists of is written out in `ch05_loop_by_hand`.

mod data;
mod settings;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use tallow::data::transform::{CutMix, MixUp};
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

use data::Data;
use settings::Settings;

fn main() -> Result<()> {
    let settings = Settings::from_command_line()?;
    let data = data::load(&settings)?;
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
    let mut builder = match settings.optimizer.as_str() {
        "sgd" => {
            let sgd = Sgd::new(lr(0.05)).momentum(0.9).nesterov(true);
            builder.optimizer(sgd.weight_decay(decay).groups(groups))
        }
        "lamb" => builder.optimizer(Lamb::new(lr(0.004)).weight_decay(decay).groups(groups)),
        "muon" => builder.optimizer(Muon::new(lr(0.02)).weight_decay(decay).groups(groups)),
        _ => builder.optimizer(AdamW::new(lr(0.004)).weight_decay(decay).groups(groups)),
    };
    let schedule = settings.schedule.clone();
    builder = builder
        .schedule_over_training(move |steps| match schedule.as_str() {
            "one-cycle" => LrSchedule::one_cycle(steps),
            "cosine" => {
                let warmup = steps / 20;
                LrSchedule::cosine(steps - warmup).with_warmup(warmup, 0.01)
            }
            _ => LrSchedule::constant(),
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
            width: settings.width,
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
    Ok(match settings.model.as_str() {
        "lenet" => Layer::new(LeNet5::from_config(
            LeNet5Config {
                in_channels,
                num_classes,
                image_size: side,
                ..Default::default()
            },
            vb,
        )?),
        "simple-cifar" => Layer::new(SimpleCifar::from_config(
            SimpleCifarConfig {
                in_channels,
                num_classes,
                ..Default::default()
            },
            vb,
        )?),
        "alexnet" => Layer::new(AlexNet::from_config(
            AlexNetConfig {
                in_channels,
                num_classes,
                ..Default::default()
            },
            vb,
        )?),
        "resnet18" => resnet(ResNetConfig::resnet18())?,
        "resnet34" => resnet(ResNetConfig::resnet34())?,
        "resnet50" => resnet(ResNetConfig::resnet50())?,
        "vit-tiny" => vit(VisionTransformerConfig::tiny())?,
        _ => vit(VisionTransformerConfig::small())?,
    })
}
