//! The ONNX reader: on onnx's own node tests, and on files that are damaged.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use candle_core::{DType, Tensor};
use common::{difference, noise};
use tallow_compile::Options;
use tallow_export::{Error, FreezeOptions, onnx};
use tallow_nn::LeNet5;
use tallow_tensor::Params;
use tallow_tensor::rng::Stream;

/// The node tests that pass, one a line.
const PASSING: &str = include_str!("onnx/passing.txt");

fn read_all(folder: &Path, kind: &str) -> Result<Vec<Tensor>, String> {
    let files = (0..).map(|k| folder.join(format!("{kind}_{k}.npy")));
    let there = files.take_while(|path| path.exists());
    there
        .map(|path| Tensor::read_npy(path).map_err(|error| error.to_string()))
        .collect()
}

/// How a node test ends.
#[derive(Debug, PartialEq)]
enum Ending {
    Passed,
    /// Refused by the reader, by name.
    Refused(String),
    Wrong(String),
}

fn run(folder: &Path) -> Ending {
    let program = match onnx::read(folder.join("model.onnx"), &[]) {
        Ok(program) => program,
        Err(error @ Error::Onnx { .. }) => return Ending::Refused(error.to_string()),
        Err(error) => return Ending::Wrong(format!("not refused by name: {error}")),
    };
    let found = || -> Result<Vec<Tensor>, String> {
        let runner = program
            .compile(Options::default())
            .map_err(|e| e.to_string())?;
        let inputs = read_all(folder, "input")?;
        runner.run(&inputs).map_err(|error| error.to_string())
    };
    let compare = || -> Result<(), String> {
        let (found, expected) = (found()?, read_all(folder, "output")?);
        for (found, expected) in found.iter().zip(&expected) {
            if found.dims() != expected.dims() {
                return Err(format!("{:?} for {:?}", found.dims(), expected.dims()));
            }
            let values = |t: &Tensor| t.flatten_all().and_then(|t| t.to_vec1::<f32>());
            let text = |error: candle_core::Error| error.to_string();
            let pairs = values(found)
                .map_err(text)?
                .into_iter()
                .zip(values(expected).map_err(text)?);
            for (a, b) in pairs {
                // The limits of onnx's own runner.
                let near = (a - b).abs() <= 1e-7 + 1e-3 * b.abs();
                let same = a == b || (a.is_nan() && b.is_nan());
                if !(near || same) {
                    return Err(format!("{a} for {b}"));
                }
            }
        }
        Ok(())
    };
    match compare() {
        Ok(()) => Ending::Passed,
        Err(problem) => Ending::Wrong(problem),
    }
}

/// Runs a script that fills a folder, if `TALLOW_PYTHON` names a Python with onnx and onnxruntime; whether it does.
fn python(script: &str, folder: &Path, arguments: &[&str]) -> bool {
    let python = std::env::var_os("TALLOW_PYTHON").map(PathBuf::from);
    let python = python.filter(|python| {
        let imports = ["-c", "import onnx, onnxruntime"];
        let output = Command::new(python).args(imports).output();
        output.is_ok_and(|output| output.status.success())
    });
    let Some(python) = python else {
        eprintln!("skipped: TALLOW_PYTHON names no Python with onnx and onnxruntime");
        return false;
    };
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx");
    let mut command = Command::new(python);
    command
        .arg(scripts.join(script))
        .arg(folder)
        .args(arguments);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    eprint!("{}", String::from_utf8_lossy(&output.stdout));
    true
}

#[test]
fn networks_of_others_give_what_onnxruntime_gives() {
    let folder = tempfile::tempdir().unwrap();
    if !python("real_models.py", folder.path(), &[]) {
        return;
    }
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "onnx") {
            continue;
        }
        let input = Tensor::read_npy(path.with_extension("input.npy")).unwrap();
        let expected = Tensor::read_npy(path.with_extension("output.npy")).unwrap();
        let program = onnx::read(&path, &[("x", input.dims())]).unwrap();
        let runner = program.compile(Options::default()).unwrap();
        let worst = difference(&runner.forward(&input).unwrap(), &expected);
        assert!(worst <= 1e-4, "{}: {worst:e}", path.display());
        eprintln!("{}: {worst:e}", path.display());
    }
}

#[test]
fn node_tests_pass_or_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    if !python("dump_nodes.py", folder.path(), &onnx::OPERATORS) {
        return;
    }

    let mut endings = BTreeMap::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        endings.insert(name, run(&path));
    }
    let list = |wanted: fn(&Ending) -> bool| -> Vec<String> {
        let found = endings.iter().filter(|(_, ending)| wanted(ending));
        found
            .map(|(name, ending)| format!("{name}: {ending:?}"))
            .collect()
    };
    let wrong = list(|ending| matches!(ending, Ending::Wrong(_)));
    let refused = list(|ending| matches!(ending, Ending::Refused(_)));
    let passed = endings
        .iter()
        .filter(|(_, ending)| **ending == Ending::Passed);
    let passed: BTreeSet<&str> = passed.map(|(name, _)| name.as_str()).collect();
    eprintln!(
        "of {} node tests of the operators that are read, {} pass, {} are refused by name:\n{}",
        endings.len(),
        passed.len(),
        refused.len(),
        refused.join("\n")
    );
    if let Some(path) = std::env::var_os("TALLOW_WRITE_PASSING") {
        let lines: Vec<String> = passed.iter().map(|name| format!("{name}\n")).collect();
        std::fs::write(path, lines.concat()).unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Another version of the package may lack some; none may go from passing to refused.
    let claimed = PASSING.lines().filter(|name| endings.contains_key(*name));
    let lost: Vec<&str> = claimed.filter(|name| !passed.contains(name)).collect();
    assert!(lost.is_empty(), "no longer read: {lost:?}");
}

#[test]
fn the_documentation_lists_the_operators() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/onnx.md");
    let text = std::fs::read_to_string(page).unwrap();
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let listed: Vec<&str> = rows.map(|(name, _)| name).collect();
    assert_eq!(listed, onnx::OPERATORS);
}

/// A small model's file.
fn small(path: &Path) -> Vec<u8> {
    let params = Params::f32_cpu();
    let model = LeNet5::new(2, params.builder()).unwrap();
    let options = FreezeOptions::new().params(&params);
    let program = options.freeze(&model, &noise(&[1, 1, 28, 28], 1)).unwrap();
    onnx::write(&program, path).unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn damaged_files_give_errors_or_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let whole = small(&path);
    let mut stream = Stream::new(5);
    let mut below = |limit: usize| (stream.uniform() * limit as f64) as usize;
    // The structure is at the ends: nodes first, inputs and outputs last; weights fill the middle.
    let ends = |place: usize| {
        if place < 1500 {
            place
        } else {
            whole.len() - 1 - (place - 1500)
        }
    };
    let mut refused = 0;
    for round in 0..500 {
        let mut bytes = whole.clone();
        for _ in 0..1 + below(3) {
            bytes[ends(below(1700))] = below(256) as u8;
        }
        if round % 5 == 0 {
            bytes.truncate(below(whole.len()));
        }
        std::fs::write(&path, &bytes).unwrap();
        let compiled = onnx::read(&path, &[]).and_then(|p| p.compile(Options::default()));
        refused += usize::from(compiled.is_err());
    }
    assert!(refused > 200, "only {refused} of 500 were refused");
    assert!(onnx::read(folder.path().join("none.onnx"), &[]).is_err());
}

#[test]
fn open_sizes_are_given_by_the_name_of_the_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    small(&path);
    let read = |shape: &[usize]| onnx::read(&path, &[("x", shape)]);
    assert!(read(&[1, 1, 28, 28]).is_ok());
    let error = read(&[2, 1, 28, 28]).err().unwrap().to_string();
    assert!(error.contains("[2, 1, 28, 28] was given"), "{error}");
    // The batch size becomes open: in the file's last bytes, `dim_value: 1` of the input's first dimension.
    let mut bytes = std::fs::read(&path).unwrap();
    let dims = [
        &[0x0a, 2, 8, 1, 0x0a, 2, 8, 1, 0x0a, 2, 8, 28][..],
        &[0x0a, 2, 8, 28],
    ]
    .concat();
    let place = bytes
        .windows(dims.len())
        .position(|window| window == dims)
        .unwrap();
    bytes[place + 3] = 0;
    std::fs::write(&path, &bytes).unwrap();
    let error = onnx::read(&path, &[]).err().unwrap().to_string();
    assert!(
        error.contains("leaves sizes open: [?, 1, 28, 28]"),
        "{error}"
    );
    let program = onnx::read(&path, &[("x", &[1, 1, 28, 28])]).unwrap();
    assert_eq!(program.batch_sizes(), [1]);
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    for bytes in [&b""[..], b"not a model", &[0xff; 64]] {
        std::fs::write(&path, bytes).unwrap();
        let error = onnx::read(&path, &[]).err().unwrap().to_string();
        assert!(error.contains("model.onnx"), "{error}");
    }
    let zeros = Tensor::zeros(3, DType::F32, &candle_core::Device::Cpu).unwrap();
    zeros.write_npy(&path).unwrap();
    assert!(onnx::read(&path, &[]).is_err());
}
