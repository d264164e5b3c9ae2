//! What the command line asks for.

use std::any::Any;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

pub(crate) struct Settings {
    pub(crate) data: Option<PathBuf>,
    pub(crate) format: String,
    pub(crate) size: usize,
    pub(crate) augment: Option<String>,
    pub(crate) model: String,
    pub(crate) width: usize,
    pub(crate) weights: Option<PathBuf>,
    pub(crate) skip: Option<String>,
    pub(crate) freeze: Vec<String>,
    pub(crate) epochs: u64,
    pub(crate) batch: usize,
    pub(crate) accumulate: u64,
    pub(crate) optimizer: String,
    pub(crate) lr: Option<f64>,
    pub(crate) weight_decay: f64,
    pub(crate) schedule: String,
    pub(crate) label_smoothing: f64,
    pub(crate) mixup: Option<f64>,
    pub(crate) cutmix: Option<f64>,
    pub(crate) ema: Option<f64>,
    pub(crate) clip: Option<f64>,
    pub(crate) patience: Option<u64>,
    pub(crate) minutes: Option<f64>,
    pub(crate) compile: bool,
    pub(crate) workers: usize,
    pub(crate) seed: u64,
    pub(crate) out: Option<PathBuf>,
    pub(crate) resume: bool,
    pub(crate) find_lr: bool,
    pub(crate) dev_run: bool,
}

impl Settings {
    /// Ends the program with a message if it is asked for help, or for what there isn't.
    pub(crate) fn from_command_line() -> Result<Self> {
        let given = command().get_matches();
        Ok(Self {
            data: find(&given, "data"),
            format: get(&given, "format")?,
            size: get(&given, "size")?,
            augment: find(&given, "augment"),
            model: get(&given, "model")?,
            width: get(&given, "width")?,
            weights: find(&given, "weights"),
            skip: find(&given, "skip"),
            freeze: given
                .get_many("freeze")
                .unwrap_or_default()
                .cloned()
                .collect(),
            epochs: get(&given, "epochs")?,
            batch: get(&given, "batch")?,
            accumulate: get(&given, "accumulate")?,
            optimizer: get(&given, "optimizer")?,
            lr: find(&given, "lr"),
            weight_decay: get(&given, "weight-decay")?,
            schedule: get(&given, "schedule")?,
            label_smoothing: get(&given, "label-smoothing")?,
            mixup: find(&given, "mixup"),
            cutmix: find(&given, "cutmix"),
            ema: find(&given, "ema"),
            clip: find(&given, "clip"),
            patience: find(&given, "patience"),
            minutes: find(&given, "minutes"),
            compile: given.get_flag("compile"),
            workers: get(&given, "workers")?,
            seed: get(&given, "seed")?,
            out: find(&given, "out"),
            resume: given.get_flag("resume"),
            find_lr: given.get_flag("find-lr"),
            dev_run: given.get_flag("dev-run"),
        })
    }
}

fn find<T: Any + Clone + Send + Sync>(given: &ArgMatches, name: &str) -> Option<T> {
    given.get_one(name).cloned()
}

fn get<T: Any + Clone + Send + Sync>(given: &ArgMatches, name: &str) -> Result<T> {
    find(given, name).with_context(|| format!("--{name} needs a value"))
}

fn command() -> Command {
    let about = "Trains an image classifier, and keeps all files of the run in a folder.";
    let command = Command::new("ch05_training_loop").about(about);
    command.args(data()).args(model()).args(steps()).args(run())
}

/// `--name VALUE`.
fn value(name: &'static str, of: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(of).help(help)
}

/// `--name`.
fn flag(name: &'static str, help: &'static str) -> Arg {
    let arg = Arg::new(name).long(name).help(help);
    arg.action(ArgAction::SetTrue)
}

fn path(name: &'static str, of: &'static str, help: &'static str) -> Arg {
    value(name, of, help).value_parser(value_parser!(PathBuf))
}

fn number(name: &'static str, of: &'static str, help: &'static str) -> Arg {
    value(name, of, help).value_parser(value_parser!(f64))
}

fn count(name: &'static str, of: &'static str, help: &'static str) -> Arg {
    value(name, of, help).value_parser(value_parser!(u64).range(1..))
}

fn positive(text: &str) -> Result<usize> {
    let number: usize = text.parse()?;
    ensure!(number > 0, "at least 1 is needed");
    Ok(number)
}

fn data() -> [Arg; 5] {
    [
        path(
            "data",
            "DIR",
            "Files of MNIST, Fashion-MNIST or CIFAR, or images in a folder a class (with `train` and `val` above, or every \
             tenth image held out); without it, the images that are part of Tallow",
        ),
        value("format", "FORMAT", "What that folder holds")
            .value_parser([
                "auto",
                "mnist",
                "fashion-mnist",
                "cifar10",
                "cifar100",
                "images",
            ])
            .default_value("auto"),
        value(
            "size",
            "PIXELS",
            "Side of the square that image files are cut to",
        )
        .value_parser(positive)
        .default_value("224"),
        value(
            "augment",
            "CHANGES",
            "Random changes to training images [default: crop for grey ones, flip-crop for others]",
        )
        .value_parser([
            "none",
            "crop",
            "flip-crop",
            "trivial-augment",
            "rand-augment",
        ]),
        value("workers", "N", "Threads that make batches")
            .value_parser(value_parser!(usize))
            .default_value("1"),
    ]
}

fn model() -> [Arg; 5] {
    [
        value("model", "NAME", "What is trained")
            .value_parser([
                "lenet",
                "simple-cifar",
                "alexnet",
                "resnet18",
                "resnet34",
                "resnet50",
                "vit-tiny",
                "vit-small",
            ])
            .default_value("lenet"),
        value("width", "N", "Channels of a ResNet's first stage")
            .value_parser(positive)
            .default_value("64"),
        path(
            "weights",
            "FILE",
            "Weights to begin with: .safetensors, .pt or .pth",
        ),
        value(
            "skip",
            "LAYER",
            "Layer that is not taken from there, such as a head for other classes",
        )
        .requires("weights"),
        value("freeze", "LAYER", "Layer whose parameters stay as they are")
            .action(ArgAction::Append),
    ]
}

fn steps() -> [Arg; 13] {
    [
        count("epochs", "N", "Passes over the training images").default_value("6"),
        value("batch", "N", "Images a batch")
            .value_parser(positive)
            .default_value("64"),
        count("accumulate", "N", "Batches a step").default_value("1"),
        value("optimizer", "NAME", "How parameters follow gradients")
            .value_parser(["adamw", "sgd", "lamb", "muon"])
            .default_value("adamw"),
        number(
            "lr",
            "RATE",
            "Highest learning rate [default: 0.004 for adamw and lamb, 0.05 for sgd, 0.02 for muon]",
        ),
        number(
            "weight-decay",
            "DECAY",
            "Decay of weights; norms and biases have none",
        )
        .default_value("0.01"),
        value("schedule", "NAME", "The learning rate over the training")
            .value_parser(["one-cycle", "cosine", "constant"])
            .default_value("one-cycle"),
        number(
            "label-smoothing",
            "SHARE",
            "Share of a label that is spread over all classes",
        )
        .default_value("0.1"),
        number("mixup", "ALPHA", "Mixes images; 0.2 is usual").conflicts_with("cutmix"),
        number(
            "cutmix",
            "ALPHA",
            "Puts a part of one image into another; 1 is usual",
        ),
        number(
            "ema",
            "DECAY",
            "Evaluates an average of the weights, of which a step keeps this much",
        ),
        number("clip", "NORM", "Longest norm of the gradients"),
        flag("compile", "Runs steps as compiled plans"),
    ]
}

fn run() -> [Arg; 7] {
    [
        value("seed", "N", "What all randomness is drawn from")
            .value_parser(value_parser!(u64))
            .default_value("42"),
        count(
            "patience",
            "EPOCHS",
            "Stops after so many epochs without a better accuracy, and takes the best",
        ),
        number("minutes", "N", "Stops after this time"),
        path(
            "out",
            "RUN",
            "Folder of the run [default: the first of runs/1, runs/2, .. that is free]",
        ),
        flag(
            "resume",
            "Goes on with the run in the folder, if there is one",
        )
        .requires("out"),
        flag(
            "find-lr",
            "Looks for a learning rate instead of training, and draws what it saw as lr.svg in the folder",
        ),
        flag(
            "dev-run",
            "Runs one batch of everything, to see whether it would run",
        ),
    ]
}
