//! Trainings in a process of their own that are killed, interrupted and resumed.
//!
//! The process is this test program, which runs the ignored test [`child`] with what to do in the environment.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use candle_core::{DType, Device};
use tallow_data::{Augment, LoaderConfig, datasets};
use tallow_nn::LeNet5;
use tallow_tensor::Params;
use tallow_train::hooks::{Better, ClassScores, EarlyStopping, Interrupt, RunFolder};
use tallow_train::{AdamW, Hook, HookContext, LrSchedule, Result, TrainerBuilder};

use crate::toy::{bits, quiet};

const FOLDER: &str = "TALLOW_TEST_FOLDER";
const HANG: &str = "TALLOW_TEST_HANG";
/// How many times the process is killed in all.
const KILLS: &str = "TALLOW_KILLS";
const STEPS: u64 = 36;

/// Says which step is done, and waits after one of them until there is a file `go`.
struct Tell {
    hang_at: Option<u64>,
    go: PathBuf,
}

impl Hook for Tell {
    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        println!("step {}", context.step());
        std::io::stdout()
            .flush()
            .map_err(tallow_train::Error::hook)?;
        while self.hang_at == Some(context.step()) && !self.go.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

fn settings(folder: &Path, model: LeNet5, params: Params) -> TrainerBuilder<LeNet5> {
    let run = RunFolder::new(folder.join("run"))
        .resume(true)
        .checkpoint_every_steps(2)
        .log_every_steps(1)
        .best("f1_macro", Better::Higher);
    quiet(model, params)
        .optimizer(AdamW::new(2e-3))
        .schedule_over_training(LrSchedule::one_cycle)
        .epochs(3)
        .hook(Box::new(ClassScores::new(10).unwrap()))
        .hook(Box::new(EarlyStopping::new(
            "evaluation/loss",
            Better::Lower,
        )))
        .hook(Box::new(Interrupt::new()))
        .run_folder(run)
}

/// Trains LeNet-5 in the folder of the environment, from where a former process got to; nothing without one.
#[test]
#[ignore = "run by the other tests of this module"]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let (train, test) = datasets::fashion_mnist_subset().unwrap();
    let config = LoaderConfig {
        augment: Augment::flip_and_crop(2),
        ..LoaderConfig::train(8)
    };
    let train = train.take(96).loader(config).unwrap();
    let test = test.take(40).loader(LoaderConfig::eval(20)).unwrap();
    let params = Params::new(42, DType::F32, &Device::Cpu);
    let model = LeNet5::new(10, params.builder()).unwrap();
    let hang_at = std::env::var(HANG).ok().map(|step| step.parse().unwrap());
    let go = folder.join("go");
    let tell = Box::new(Tell { hang_at, go });
    let mut trainer = settings(folder, model, params).hook(tell).build().unwrap();
    let history = trainer.fit(&train, Some(&test)).unwrap();
    if history.epochs.len() == 3 {
        let moments = trainer.optimizer().state().parameters;
        let moments = moments.into_iter().flat_map(|(name, state)| {
            let tensors = state.tensors.into_iter();
            tensors.map(move |(slot, tensor)| (format!("{slot} of {name}"), tensor))
        });
        let moments: BTreeMap<String, Vec<f32>> = moments
            .map(|(name, tensor)| (name, tensor.flatten_all().unwrap().to_vec1().unwrap()))
            .collect();
        let epochs = history.epochs.iter().map(|record| {
            let mut values = record.values();
            values.retain(|(name, _)| !name.contains("second"));
            (record.steps, values)
        });
        let epochs: Vec<_> = epochs.collect();
        let all = format!("{:?}\n{moments:?}\n{epochs:?}", bits(trainer.params()));
        fs::write(folder.join("final"), all).unwrap();
    }
}

struct Training {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Training {
    fn start(folder: &Path, hang_at: Option<u64>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "killed::child",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(FOLDER, folder)
            .env_remove(HANG)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        if let Some(step) = hang_at {
            command.env(HANG, step.to_string());
        }
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// Waits until a step is done; false if the training ended before.
    fn wait_for(&mut self, step: u64) -> bool {
        self.steps().any(|done| done >= step)
    }

    fn steps(&mut self) -> impl Iterator<Item = u64> {
        let lines = self.output.by_ref().lines().map_while(std::io::Result::ok);
        // The first line may stand behind what the test harness says.
        lines.filter_map(|line| line.rsplit_once("step ")?.1.parse().ok())
    }

    fn interrupt(&self) {
        let id = self.process.id().to_string();
        let status = Command::new("kill").args(["-INT", &id]).status().unwrap();
        assert!(status.success());
    }

    /// Trains to the end and gives the last step that was told.
    fn finish(mut self) -> Option<u64> {
        let last = self.steps().last();
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}");
        last
    }
}

fn end_of(folder: &Path) -> String {
    fs::read_to_string(folder.join("final")).unwrap()
}

fn uninterrupted() -> String {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Training::start(folder.path(), None).finish(), Some(STEPS));
    end_of(folder.path())
}

/// Numbers that look random, the same in every run; when a kill comes is then left to the machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[test]
fn a_training_killed_at_any_moment_ends_with_the_bits_of_an_uninterrupted_one() {
    let kills = std::env::var(KILLS).map_or(4, |kills| kills.parse::<u64>().unwrap());
    let whole = uninterrupted();
    let mut dice = Dice(kills);
    let mut left = kills;
    while left > 0 {
        let folder = tempfile::tempdir().unwrap();
        let mut reached = 0;
        for _ in 0..left.min(4) {
            left -= 1;
            let mut training = Training::start(folder.path(), None);
            reached += dice.below(STEPS / 4);
            if training.wait_for(reached) {
                std::thread::sleep(Duration::from_micros(dice.below(30_000)));
            }
            training.process.kill().unwrap();
            training.process.wait().unwrap();
        }
        Training::start(folder.path(), None).finish();
        let end = end_of(folder.path());
        for (found, expected) in end.lines().zip(whole.lines()) {
            let place = found
                .bytes()
                .zip(expected.bytes())
                .position(|(a, b)| a != b);
            let part = |text: &str, at: usize| {
                let from = at.saturating_sub(200);
                text[from..text.len().min(at + 100)].to_string()
            };
            if let Some(place) = place.filter(|_| found != expected) {
                panic!(
                    "{left} kills were left of {kills}: byte {place} of {}: {} for {}",
                    found.len(),
                    part(found, place),
                    part(expected, place)
                );
            }
        }
        assert!(end == whole, "{left} kills were left of {kills}");
        check_logs(&folder.path().join("run"));
        check_litter(&folder.path().join("run"));
    }
}

/// Nothing is left of what killed processes had begun to write.
fn check_litter(run: &Path) {
    for folder in [run.to_owned(), run.join("checkpoints")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let unfinished = path.extension().is_some_and(|ending| ending == "tmp");
            assert!(!unfinished, "{}", path.display());
        }
    }
}

/// No step or epoch twice, none left out, nothing torn.
fn check_logs(run: &Path) {
    let text = fs::read_to_string(run.join("log.jsonl")).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut seen: Vec<(u64, bool)> = lines
        .map(|line| match line["event"].as_str() {
            Some("step") => (line["step"].as_u64().unwrap(), false),
            _ => (line["steps"].as_u64().unwrap(), true),
        })
        .collect();
    seen.sort_unstable();
    let expected = (1..=STEPS).flat_map(|step| {
        let end = (step % (STEPS / 3) == 0).then_some((step, true));
        [Some((step, false)), end].into_iter().flatten()
    });
    assert_eq!(seen, expected.collect::<Vec<_>>());
    let rows = fs::read_to_string(run.join("log.csv")).unwrap();
    assert_eq!(rows.lines().count(), 4);
}

#[test]
fn an_interrupt_ends_after_a_step_with_a_checkpoint_to_go_on_from() {
    let folder = tempfile::tempdir().unwrap();
    let mut training = Training::start(folder.path(), Some(5));
    assert!(training.wait_for(5));
    training.interrupt();
    fs::write(folder.path().join("go"), "").unwrap();
    assert_eq!(training.finish(), Some(6));
    let checkpoints = folder.path().join("run/checkpoints");
    let latest = fs::read_to_string(checkpoints.join("latest")).unwrap();
    assert_eq!(latest, "step-0000000006.safetensors\n");
    Training::start(folder.path(), None).finish();
    assert_eq!(end_of(folder.path()), uninterrupted());
}

#[test]
fn a_second_interrupt_kills_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut training = Training::start(folder.path(), Some(3));
    assert!(training.wait_for(3));
    const SIGINT: i32 = 2;
    let status = loop {
        training.interrupt();
        if let Some(status) = training.process.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.signal(), Some(SIGINT));
}
