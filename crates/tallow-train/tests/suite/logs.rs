//! Logs: what is in them, and that a resume leaves no line twice, none out, and none torn.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tallow_train::hooks::{CheckpointFolder, CsvLog, JsonLog, TensorBoard};
use tallow_train::{Error, Hook, HookContext, Result, TrainerBuilder};

use crate::checkpoint_folder::names;
use crate::toy::{Toy, batches, quiet, toy};

const EPOCHS: u64 = 4;

/// Fails after a step, as a kill would end it.
struct Die(u64);

impl Hook for Die {
    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        if context.step() == self.0 {
            return Err(Error::hook("killed"));
        }
        Ok(())
    }
}

fn settings(folder: &Path) -> TrainerBuilder<Toy> {
    let (model, params) = toy();
    quiet(model, params)
        .hook(Box::new(CsvLog::new(folder.join("log.csv"))))
        .hook(Box::new(
            JsonLog::new(folder.join("log.jsonl")).every_steps(2),
        ))
        .hook(Box::new(
            TensorBoard::new(folder.join("tb"))
                .every_steps(2)
                .histograms(true),
        ))
        .hook(Box::new(
            CheckpointFolder::new(folder.join("checkpoints")).every_steps(6),
        ))
        .epochs(EPOCHS)
}

/// A training of four epochs of three steps, killed after each of `kills` and resumed.
fn train(folder: &Path, kills: &[u64], meanwhile: impl Fn(&Path)) {
    let resumed = |builder: TrainerBuilder<Toy>| match folder.join("checkpoints").exists() {
        true => builder.resume(folder.join("checkpoints")),
        false => builder,
    };
    for &kill in kills {
        let builder = resumed(settings(folder)).hook(Box::new(Die(kill)));
        let mut trainer = builder.build().unwrap();
        trainer.fit(&batches(3), Some(&batches(2))).unwrap_err();
        meanwhile(folder);
    }
    let mut trainer = resumed(settings(folder)).build().unwrap();
    trainer.fit(&batches(3), Some(&batches(2))).unwrap();
}

/// The table without its times.
fn csv(folder: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(folder.join("log.csv")).unwrap();
    let rows = text.lines().map(|line| {
        let mut fields: Vec<String> = line.split(',').map(str::to_string).collect();
        fields.truncate(fields.len() - 2);
        fields
    });
    rows.collect()
}

fn json(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("log.jsonl")).unwrap();
    assert!(text.ends_with('\n'));
    let lines = text.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let fields = line.as_object_mut().unwrap();
        fields.remove("seconds");
        fields.remove("samples_per_second");
        line
    });
    lines.collect()
}

#[test]
fn an_interrupted_training_logs_what_an_uninterrupted_one_does() {
    let whole = tempfile::tempdir().unwrap();
    train(whole.path(), &[], |_| {});
    let rows = csv(whole.path());
    assert_eq!(rows.len(), 1 + EPOCHS as usize);
    assert_eq!(rows[0][..4], ["epoch", "steps", "lr", "train/loss"]);
    assert_eq!(rows[4][..3], ["3", "12", "0.001"]);
    let lines = json(whole.path());
    let steps = lines.iter().filter(|line| line["event"] == "step");
    let steps: Vec<u64> = steps.map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [2, 4, 6, 8, 10, 12]);

    let killed = tempfile::tempdir().unwrap();
    train(killed.path(), &[5, 6, 7, 11, 12], |folder| {
        // A line that was being written.
        let file = OpenOptions::new()
            .append(true)
            .open(folder.join("log.jsonl"));
        file.unwrap()
            .write_all(b"{\"event\":\"step\",\"step\":1")
            .unwrap();
    });
    assert_eq!(csv(killed.path()), rows);
    let mut sorted = json(killed.path());
    let place = |line: &Value| {
        let step = line["step"].as_u64().or(line["steps"].as_u64());
        (step, line["event"] == "epoch")
    };
    sorted.sort_by_key(place);
    assert_eq!(sorted, lines);
}

#[test]
fn a_new_training_keeps_the_log_of_a_former_one() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let (model, params) = toy();
        let mut trainer = quiet(model, params)
            .hook(Box::new(CsvLog::new(folder.path().join("log.csv"))))
            .hook(Box::new(JsonLog::new(folder.path().join("log.jsonl"))))
            .build()
            .unwrap();
        trainer.fit(&batches(1), None).unwrap();
    }
    let expected = [
        "log.1.csv",
        "log.1.jsonl",
        "log.2.csv",
        "log.2.jsonl",
        "log.csv",
        "log.jsonl",
    ];
    assert_eq!(names(folder.path()), expected);
    for name in expected {
        let text = fs::read_to_string(folder.path().join(name)).unwrap();
        let lines = if name.ends_with("csv") { 2 } else { 1 };
        assert_eq!(text.lines().count(), lines, "{name}");
    }
}

/// The scalar points of the files of a folder, as TensorBoard reads them: by tag, without those that a restart replaced.
fn points(folder: &Path) -> Vec<(String, u64, f32)> {
    let mut points: Vec<(String, u64, f32)> = Vec::new();
    for name in names(folder) {
        let bytes = fs::read(folder.join(name)).unwrap();
        for event in records(&bytes) {
            let fields = fields(&event);
            let step = number(&fields, 2).unwrap_or(0);
            if bytes_of(&fields, 7).is_some() {
                points.retain(|(_, other, _)| *other < step);
            }
            let summary = bytes_of(&fields, 5).unwrap_or_default();
            for (_, entry) in self::fields(&summary) {
                let Field::Bytes(entry) = entry else { continue };
                let entry = self::fields(&entry);
                let tag = String::from_utf8(bytes_of(&entry, 1).unwrap()).unwrap();
                if let Some(Field::Float(value)) =
                    entry.iter().find(|(key, _)| *key == 2).map(|(_, f)| f)
                {
                    points.push((tag, step, *value));
                }
            }
        }
    }
    points
}

#[derive(Clone)]
enum Field {
    Number(u64),
    Double(#[expect(dead_code)] f64),
    Float(f32),
    Bytes(Vec<u8>),
}

fn number(fields: &[(u64, Field)], key: u64) -> Option<u64> {
    fields.iter().find_map(|(other, field)| match field {
        Field::Number(number) if *other == key => Some(*number),
        _ => None,
    })
}

fn bytes_of(fields: &[(u64, Field)], key: u64) -> Option<Vec<u8>> {
    fields.iter().find_map(|(other, field)| match field {
        Field::Bytes(bytes) if *other == key => Some(bytes.clone()),
        _ => None,
    })
}

/// The messages of a file of records; their checksums are TensorBoard's own business, see below.
fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        records.push(bytes[12..12 + length].to_vec());
        bytes = &bytes[12 + length + 4..];
    }
    records
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Double(f64::from_le_bytes(value.try_into().unwrap()))
            }
            5 => {
                let (value, rest) = bytes.split_at(4);
                bytes = rest;
                Field::Float(f32::from_le_bytes(value.try_into().unwrap()))
            }
            _ => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value.to_vec())
            }
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn without_times(mut points: Vec<(String, u64, f32)>) -> Vec<(String, u64, f32)> {
    points.retain(|(tag, ..)| !tag.contains("second"));
    points.sort_by(|a, b| a.partial_cmp(b).unwrap());
    points
}

#[test]
fn event_files_hold_every_point_once_after_a_restart() {
    let whole = tempfile::tempdir().unwrap();
    train(whole.path(), &[], |_| {});
    let expected = without_times(points(&whole.path().join("tb")));
    let of_tag = |tag: &str| expected.iter().filter(|(other, ..)| other == tag).count();
    assert_eq!((of_tag("step/loss"), of_tag("evaluation/accuracy")), (6, 4));
    let killed = tempfile::tempdir().unwrap();
    train(killed.path(), &[6, 7, 11, 12], |_| {});
    assert_eq!(names(&killed.path().join("tb")).len(), 5);
    assert_eq!(without_times(points(&killed.path().join("tb"))), expected);
}

/// Reads a folder with TensorBoard's own reader and prints the points as JSON.
const TENSORBOARD: &str = "
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0, 'histograms': 0}).Reload()
scalars = [[tag, e.step, e.value] for tag in events.Tags()['scalars'] for e in events.Scalars(tag)]
histograms = {tag: [[e.step, e.histogram_value.num, e.histogram_value.min, e.histogram_value.max, sum(e.histogram_value.bucket)]
              for e in events.Histograms(tag)] for tag in events.Tags()['histograms']}
print(json.dumps([scalars, histograms]))
";

/// Runs where `TALLOW_PYTHON`, or `python3`, has the package `tensorboard`.
#[test]
fn tensorboard_reads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), &[7], |_| {});
    let python = std::env::var("TALLOW_PYTHON").unwrap_or("python3".to_string());
    let tb = folder.path().join("tb");
    let output = Command::new(python)
        .args(["-c", TENSORBOARD])
        .arg(&tb)
        .output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        eprintln!("not compared: no Python with tensorboard (TALLOW_PYTHON names one)");
        return;
    };
    let (scalars, histograms): (Vec<(String, u64, f32)>, Value) =
        serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(without_times(scalars), without_times(points(&tb)));
    let histograms = histograms["parameters/hidden.weight"].as_array().unwrap();
    assert_eq!(histograms.len(), EPOCHS as usize);
    for histogram in histograms {
        assert_eq!(
            (histogram[1].as_f64(), histogram[4].as_f64()),
            (Some(128.0), Some(128.0))
        );
        assert!(histogram[2].as_f64() < histogram[3].as_f64());
    }
}
