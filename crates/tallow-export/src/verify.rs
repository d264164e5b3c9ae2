//! Verification of a delivery on the machine that is to run it: checksums, loading, the golden run, times.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use candle_core::Tensor;
use tallow_compile::Options;
use tallow_tensor::params::TensorFile;

use crate::manifest::{MANIFEST, Machine, Manifest, Role, SUMS, Value};
use crate::{Error, Program, Runner, checksum, measure_latency};

/// What verification found. Shown with `{}`, it is a checklist with a verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The folder.
    pub folder: PathBuf,
    /// The checks, in order.
    pub checks: Vec<Check>,
}

/// One check.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// What was checked; for a file its name is part of it.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What was found.
    pub found: String,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As it should be.
    Passed,
    /// Worth knowing, and no reason not to deploy.
    Noted,
    /// A reason not to deploy.
    Failed,
}

impl Report {
    /// Whether nothing speaks against deploying.
    pub fn deploy(&self) -> bool {
        !self.checks.is_empty() && self.failures().next().is_none()
    }

    /// The checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        let failed = |check: &&Check| check.outcome == Outcome::Failed;
        self.checks.iter().filter(failed)
    }

    fn add(&mut self, name: impl Into<String>, outcome: Outcome, found: impl Into<String>) {
        self.checks.push(Check {
            name: name.into(),
            outcome,
            found: found.into(),
        });
    }

    /// A check with what was found, or with what is wrong.
    fn check(&mut self, name: &str, result: Result<String, String>) {
        match result {
            Ok(found) => self.add(name, Outcome::Passed, found),
            Err(found) => self.add(name, Outcome::Failed, found),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "delivery in {}", self.folder.display())?;
        for check in &self.checks {
            let mark = match check.outcome {
                Outcome::Passed => "ok",
                Outcome::Noted => "note",
                Outcome::Failed => "FAILED",
            };
            writeln!(f, "  {mark:<6} {}: {}", check.name, check.found)?;
        }
        match self.deploy() {
            true => write!(f, "deploy: yes"),
            false => write!(f, "deploy: NO, {} checks failed", self.failures().count()),
        }
    }
}

/// Verifies a delivery on this machine: the checksum of every file, the manifest's items against the program, a run of the
/// golden input, and how long a run takes. Nothing is changed.
///
/// ```no_run
/// let report = tallow_export::verify("deliveries/shoes-1.0.0");
/// println!("{report}");
/// std::process::exit(i32::from(!report.deploy()));
/// ```
pub fn verify(folder: impl AsRef<Path>) -> Report {
    let folder = folder.as_ref();
    let mut report = Report {
        folder: folder.to_path_buf(),
        checks: Vec::new(),
    };
    let intact = checksums(folder, &mut report);
    let manifest = match Manifest::read(folder) {
        Ok(manifest) => manifest,
        Err(error) => {
            report.check("manifest", Err(error.to_string()));
            return report;
        }
    };
    let model = &manifest.model;
    let found = format!(
        "{} {}, delivered {}",
        model.name, model.version, model.created
    );
    report.check("manifest", Ok(found));
    files(folder, &manifest, &mut report);
    let Some(file) = manifest.file(Role::Program).filter(|_| intact) else {
        let found = "not loaded, since a checksum is wrong".into();
        report.check("program", Err(found));
        return report;
    };
    match Program::load(folder.join(&file.name)) {
        Ok(program) => run(folder, &manifest, &program, &mut report),
        Err(error) => report.check(&format!("program {}", file.name), Err(error.to_string())),
    }
    report
}

/// Compares every file with `SHA256SUMS`; whether all are as they were.
fn checksums(folder: &Path, report: &mut Report) -> bool {
    let path = folder.join(SUMS);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            report.check(&format!("checksums {SUMS}"), Err(error.to_string()));
            return false;
        }
    };
    let mut intact = true;
    let mut listed = BTreeMap::new();
    for line in text.lines() {
        let Some((sum, name)) = line.split_once("  ") else {
            report.check(
                &format!("checksums {SUMS}"),
                Err(format!("the line `{line}`")),
            );
            return false;
        };
        listed.insert(name, sum);
        let found = checksum::of_file(folder, name, Role::Other);
        let result = match found {
            Ok(found) if found.sha256 == sum => continue,
            Ok(found) => format!("its SHA-256 is {}, not {sum}", found.sha256),
            Err(error) => error.to_string(),
        };
        intact = false;
        report.check(&format!("checksum of {name}"), Err(result));
    }
    if !listed.contains_key(MANIFEST) {
        report.check(
            &format!("checksums {SUMS}"),
            Err(format!("lacks {MANIFEST}")),
        );
        return false;
    }
    if intact {
        let found = format!("{} files are as they were", listed.len());
        report.check("checksums", Ok(found));
    }
    intact
}

/// Compares the manifest's list of files with the files and with `SHA256SUMS`.
fn files(folder: &Path, manifest: &Manifest, report: &mut Report) {
    for file in &manifest.files {
        let found = checksum::of_file(folder, &file.name, file.role);
        let result = match found {
            Ok(found) if found == *file => continue,
            Ok(found) => format!(
                "{} bytes with SHA-256 {}, the manifest says {} with {}",
                found.bytes, found.sha256, file.bytes, file.sha256
            ),
            Err(error) => error.to_string(),
        };
        report.check(&format!("file {}", file.name), Err(result));
    }
    let own = checksum::of_file(folder, MANIFEST, Role::Other);
    let text = std::fs::read_to_string(folder.join(SUMS));
    let same = own.is_ok_and(|own| text.is_ok_and(|text| text == manifest.sums(&own.sha256)));
    let result = match same {
        true => Ok(format!("{} listed, nothing else", manifest.files.len())),
        false => Err(format!("{SUMS} isn't what {MANIFEST} makes it")),
    };
    report.check("list of files", result);
}

fn run(folder: &Path, manifest: &Manifest, program: &Program, report: &mut Report) {
    report.check(
        "program",
        Ok(format!("{}, inference alone", manifest.format.program)),
    );
    report.check(
        "inputs",
        same_values(&manifest.interface.inputs, &inputs(program)),
    );
    report.check(
        "outputs",
        same_values(&manifest.interface.outputs, &outputs(program)),
    );
    let (stated, found) = (&manifest.interface.batch_sizes, program.batch_sizes());
    report.check(
        "batch sizes",
        match *stated == found {
            true => Ok(format!("{found:?}")),
            false => Err(format!(
                "the manifest says {stated:?}, the program {found:?}"
            )),
        },
    );
    let width = program
        .outputs()
        .first()
        .and_then(|ty| ty.shape.last().copied());
    let named = manifest.classes.len();
    report.check(
        "classes",
        match width.unwrap_or(1) == named {
            true => Ok(format!("{named}")),
            false => Err(format!(
                "{named} are named, the program gives {}",
                width.unwrap_or(1)
            )),
        },
    );
    let runner = match program.compile(options(manifest)) {
        Ok(runner) => runner,
        Err(error) => return report.check("compilation", Err(error.to_string())),
    };
    compilation(&runner, manifest, report);
    machine(manifest, report);
    match golden(folder, manifest, &runner) {
        Ok((inputs, found)) => {
            report.check("golden output", Ok(found));
            latency(&runner, &inputs, manifest, report);
        }
        Err(error) => report.check(
            &format!("golden output {}", manifest.golden.file),
            Err(error),
        ),
    }
}

/// The options that the program was delivered with.
fn options(manifest: &Manifest) -> Options {
    let is = |name: &str, value: &str| {
        manifest
            .compile
            .options
            .get(name)
            .is_some_and(|v| v == value)
    };
    Options::default().winograd(!is("winograd", "false"))
}

pub(crate) fn inputs(program: &Program) -> Vec<Value> {
    let named = program.inputs().into_iter();
    named.map(|(name, ty)| Value::new(name, ty)).collect()
}

pub(crate) fn outputs(program: &Program) -> Vec<Value> {
    let types = program.outputs();
    let name = |index| match types.len() {
        1 => "output".to_string(),
        _ => format!("output_{index}"),
    };
    let named = types.iter().enumerate();
    named
        .map(|(index, ty)| Value::new(name(index), ty.clone()))
        .collect()
}

fn same_values(stated: &[Value], found: &[Value]) -> Result<String, String> {
    let list = |values: &[Value]| {
        let shown = values
            .iter()
            .map(|v| format!("{}: {}{:?}", v.name, v.dtype, v.shape));
        shown.collect::<Vec<_>>().join(", ")
    };
    match stated == found {
        true => Ok(list(found)),
        false => Err(format!(
            "the manifest says {}, the program {}",
            list(stated),
            list(found)
        )),
    }
}

fn compilation(runner: &Runner, manifest: &Manifest, report: &mut Report) {
    let metrics = runner.metrics();
    let found = format!(
        "{} kernels, {} fallbacks",
        metrics.kernels, metrics.fallbacks
    );
    let result = match metrics.kernels > 0 && metrics.fallbacks == 0 {
        true => Ok(found),
        false => Err(found),
    };
    report.check("compilation", result);
    if metrics.kernels != manifest.compile.kernels {
        let found = format!("{} where it was made", manifest.compile.kernels);
        report.add("number of kernels", Outcome::Noted, found);
    }
}

fn machine(manifest: &Manifest, report: &mut Report) {
    let (made, here) = (&manifest.machine, Machine::detect());
    if *made == here {
        return report.check(
            "machine",
            Ok(format!("{}, {} threads", here.cpu, here.threads)),
        );
    }
    let list = |machine: &Machine| {
        format!(
            "{} [{}] {} threads",
            machine.cpu,
            machine.features.join(" "),
            machine.threads
        )
    };
    let found = format!("{}; it was made on {}", list(&here), list(made));
    report.add("machine", Outcome::Noted, found);
}

/// Runs the golden input; gives it and what was found.
fn golden(
    folder: &Path,
    manifest: &Manifest,
    runner: &Runner,
) -> Result<(Vec<Tensor>, String), String> {
    let golden = &manifest.golden;
    let text = |error: Error| error.to_string();
    let file = TensorFile::open(folder.join(&golden.file)).map_err(|e| e.to_string())?;
    let read = |kind: &str, count: usize| -> Result<Vec<Tensor>, String> {
        let names = (0..count).map(|index| format!("{kind}_{index}"));
        names
            .map(|name| file.read(&name).map_err(|error| error.to_string()))
            .collect()
    };
    let inputs = read("input", manifest.interface.inputs.len())?;
    let expected = read("output", manifest.interface.outputs.len())?;
    let found = runner.run(&inputs).map_err(text)?;
    let mut worst = 0.0f64;
    for (found, expected) in found.iter().zip(&expected) {
        let (deviation, _) = deviation(found, expected).map_err(text)?;
        worst = worst.max(deviation);
    }
    let found = format!(
        "differs by {worst:.1e}, {:.1e} is allowed",
        golden.tolerance
    );
    match worst <= golden.tolerance {
        true => Ok((inputs, found)),
        false => Err(found),
    }
}

/// The largest difference, and the largest value expected; infinite where shapes differ or a value isn't finite.
pub(crate) fn deviation(found: &Tensor, expected: &Tensor) -> crate::Result<(f64, f64)> {
    if found.dims() != expected.dims() {
        return Ok((f64::INFINITY, 0.0));
    }
    let values = |tensor: &Tensor| -> crate::Result<Vec<f32>> {
        let floats = tensor.to_dtype(candle_core::DType::F32)?;
        Ok(floats.flatten_all()?.to_vec1()?)
    };
    let (found, expected) = (values(found)?, values(expected)?);
    let mut worst = (0f64, 0f64);
    for (found, expected) in found.iter().zip(&expected) {
        let difference = f64::from((found - expected).abs());
        let difference = if difference.is_nan() {
            f64::INFINITY
        } else {
            difference
        };
        worst = (
            worst.0.max(difference),
            worst.1.max(f64::from(expected.abs())),
        );
    }
    Ok(worst)
}

fn latency(runner: &Runner, inputs: &[Tensor], manifest: &Manifest, report: &mut Report) {
    let measured = match measure_latency(runner, inputs) {
        Ok(measured) => measured,
        Err(error) => return report.check("latency", Err(error.to_string())),
    };
    let stated = manifest
        .latency
        .iter()
        .find(|stated| stated.batch == measured.batch);
    let found = format!(
        "batch {}: median {:.2} ms, p99 {:.2} ms",
        measured.batch, measured.median_ms, measured.p99_ms
    );
    let Some(stated) = stated else {
        return report.check(
            "latency",
            Err(format!("{found}, the manifest has none for it")),
        );
    };
    let found = format!(
        "{found}; {:.2} and {:.2} ms where it was made",
        stated.median_ms, stated.p99_ms
    );
    match stated.limit_ms {
        Some(limit) if measured.median_ms > limit => {
            report.check(
                "latency",
                Err(format!("{found}, more than the limit of {limit} ms")),
            );
        }
        Some(limit) => report.check("latency", Ok(format!("{found}, within {limit} ms"))),
        None => report.add("latency", Outcome::Noted, found),
    }
}
