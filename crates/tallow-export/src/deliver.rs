//! [`deliver`]: from a trained model to a verified folder, in one call.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use candle_core::Tensor;
use candle_nn::ModuleT;
use tallow_compile::Options;
use tallow_tensor::Params;
use tallow_tensor::params::{Metadata, write_tensors};

use crate::manifest::{
    Build, Compile, DeliveredFile, Format, Golden, Identity, Interface, Latency, MANIFEST, Machine,
    Manifest, Normalisation, Role, SUMS, Training, VERSION,
};
use crate::verify::{deviation, inputs, outputs};
use crate::{
    Error, FreezeOptions, Program, Report, Result, Runner, checksum, measure_latency, onnx, verify,
};

const PROGRAM: &str = "model.safetensors";
const ONNX: &str = "model.onnx";
const GOLDEN: &str = "golden.safetensors";
/// The allowed difference as a share of the largest output: Winograd's algorithm stays below it, a fault doesn't.
const TOLERANCE: f64 = 1e-3;

/// What a delivery says of its model, and how it is made.
///
/// The name, the version, the classes, the normalisation and the training have to be given; what is missing is an error
/// that lists everything at once.
#[derive(Debug, Clone)]
pub struct Delivery<'a> {
    name: String,
    version: String,
    classes: Vec<String>,
    normalisation: Option<Normalisation>,
    training: Training,
    git_commit: Option<String>,
    params: Option<&'a Params>,
    batch_sizes: Vec<usize>,
    latency_limit: Option<f64>,
    winograd: bool,
    onnx: bool,
    others: Vec<(String, Vec<u8>)>,
}

impl<'a> Delivery<'a> {
    /// A delivery of a model of this name and version, with an ONNX file.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            classes: Vec::new(),
            normalisation: None,
            training: Training::default(),
            git_commit: None,
            params: None,
            batch_sizes: Vec::new(),
            latency_limit: None,
            winograd: true,
            onnx: true,
            others: Vec::new(),
        }
    }

    /// The names of the classes, in the order of the output's last dimension.
    #[must_use]
    pub fn classes<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.classes = names.into_iter().map(Into::into).collect();
        self
    }

    /// What is done to an input: `(value / scale - mean) / std`, with one mean and deviation a channel.
    #[must_use]
    pub fn normalisation(mut self, scale: f32, mean: &[f32], std: &[f32]) -> Self {
        self.normalisation = Some(Normalisation {
            scale,
            mean: mean.to_vec(),
            std: std.to_vec(),
        });
        self
    }

    /// The seed and the data set of the training.
    #[must_use]
    pub fn trained_on(mut self, seed: u64, dataset: impl Into<String>) -> Self {
        self.training.seed = seed;
        self.training.dataset = dataset.into();
        self
    }

    /// A metric of the trained model, such as `test_accuracy`.
    #[must_use]
    pub fn metric(mut self, name: impl Into<String>, value: f64) -> Self {
        self.training.metrics.insert(name.into(), value);
        self
    }

    /// The commit of the source; otherwise that of the git checkout that the process runs in.
    #[must_use]
    pub fn git_commit(mut self, commit: impl Into<String>) -> Self {
        self.git_commit = Some(commit.into());
        self
    }

    /// Takes the names of weights from here; see [`FreezeOptions::params`].
    #[must_use]
    pub fn params(mut self, params: &'a Params) -> Self {
        self.params = Some(params);
        self
    }

    /// The batch sizes of the program, instead of the example's; see [`FreezeOptions::batch_sizes`].
    #[must_use]
    pub fn batch_sizes(mut self, sizes: &[usize]) -> Self {
        self.batch_sizes = sizes.to_vec();
        self
    }

    /// What the median of a run with the first batch size may be on the target machine, in milliseconds; verification fails
    /// above it.
    #[must_use]
    pub fn latency_limit_ms(mut self, limit: f64) -> Self {
        self.latency_limit = Some(limit);
        self
    }

    /// Whether convolutions may use Winograd's algorithm, the default; see `Options::winograd` of `tallow-compile`.
    #[must_use]
    pub fn winograd(mut self, winograd: bool) -> Self {
        self.winograd = winograd;
        self
    }

    /// Whether an ONNX file is part of it; it is unless said otherwise.
    #[must_use]
    pub fn onnx(mut self, onnx: bool) -> Self {
        self.onnx = onnx;
        self
    }

    /// Another file of the folder, such as a model card or the summary of a profile: listed, hashed and verified as the others
    /// are.
    #[must_use]
    pub fn file(mut self, name: impl Into<String>, contents: impl Into<Vec<u8>>) -> Self {
        self.others.push((name.into(), contents.into()));
        self
    }

    fn options(&self) -> Options {
        Options::default().winograd(self.winograd)
    }
}

/// A delivery that was made.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// Its folder.
    pub folder: PathBuf,
    /// What it says.
    pub manifest: Manifest,
    /// What its verification found.
    pub report: Report,
}

/// Delivers a trained model into a folder, and verifies what was written. `example` is a real input, normalised: it becomes the
/// golden input.
///
/// 1. The model's inference is captured and proven to be inference alone.
/// 2. It is frozen, for every batch size, with its weights under their names.
/// 3. The program is saved, and from here on it is the file that is looked at, not the model.
/// 4. It is loaded and compiled: kernels, and no fallbacks.
/// 5. Its output is compared with that of the eager model; the largest difference is noted.
/// 6. The golden input and output are stored.
/// 7. It is exported to ONNX.
/// 8. It is timed, for every batch size.
/// 9. Source, toolchain and machine are noted.
/// 10. Sizes and checksums of the files are noted.
/// 11. The manifest is written, if no item is missing.
/// 12. The folder is [verified](crate::verify()), as on the target machine.
///
/// The folder appears once all is done; one that held a delivery is replaced as a whole.
///
/// # Errors
/// [`Error::Incomplete`] with everything that is missing, [`Error::Unverified`], and the errors of the steps. The folder is
/// then as it was.
pub fn deliver<M: ModuleT>(
    model: &M,
    example: &Tensor,
    delivery: &Delivery<'_>,
    folder: impl AsRef<Path>,
) -> Result<Delivered> {
    let folder = folder.as_ref();
    check_target(folder)?;
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(parent).map_err(Error::io("make", parent))?;
    let beside = Beside::new(folder)?;
    let mut made = fill(model, example, delivery, &beside.0)?;
    beside.take_the_place_of(folder)?;
    made.folder = folder.to_path_buf();
    made.report.folder = folder.to_path_buf();
    Ok(made)
}

/// The steps, in a folder that nobody sees yet.
fn fill<M: ModuleT>(
    model: &M,
    example: &Tensor,
    delivery: &Delivery<'_>,
    folder: &Path,
) -> Result<Delivered> {
    let mut freeze = FreezeOptions::new().batch_sizes(&delivery.batch_sizes);
    if let Some(params) = delivery.params {
        freeze = freeze.params(params);
    }
    freeze.freeze(model, example)?.save(folder.join(PROGRAM))?;
    let program = Program::load(folder.join(PROGRAM))?;
    let runner = program.compile(delivery.options())?;
    let batches = freeze.batches(example)?;
    let golden = golden(model, &batches, &runner, folder)?;
    if delivery.onnx {
        onnx::write(&program, folder.join(ONNX))?;
    }
    let mut latency = Vec::with_capacity(batches.len());
    for batch in &batches {
        latency.push(measure_latency(&runner, std::slice::from_ref(batch))?);
    }
    if let Some(first) = latency.first_mut() {
        first.limit_ms = delivery.latency_limit;
    }
    write_others(delivery, folder)?;
    let files = files(delivery, folder)?;
    let manifest = manifest(delivery, &program, &runner, latency, golden, files);
    manifest.write(folder)?;
    let report = verify(folder);
    match report.deploy() {
        true => Ok(Delivered {
            folder: folder.to_path_buf(),
            manifest: Manifest::read(folder)?,
            report,
        }),
        false => Err(Error::Unverified(Box::new(report))),
    }
}

/// Compares the program with the eager model, and stores the run of the first batch size.
fn golden<M: ModuleT>(
    model: &M,
    batches: &[Tensor],
    runner: &Runner,
    folder: &Path,
) -> Result<Golden> {
    let (mut worst, mut largest) = (0f64, 0f64);
    let mut stored = Vec::new();
    for batch in batches {
        let expected = model.forward_t(batch, false)?.detach();
        let (difference, value) = deviation(&runner.forward(batch)?, &expected)?;
        (worst, largest) = (worst.max(difference), largest.max(value));
        if stored.is_empty() {
            stored = vec![("input_0", batch.clone()), ("output_0", expected)];
        }
    }
    let named = stored.iter().map(|(name, tensor)| (*name, tensor));
    write_tensors(folder.join(GOLDEN), named, &Metadata::new())?;
    Ok(Golden {
        file: GOLDEN.into(),
        max_deviation: worst,
        largest_output: largest,
        tolerance: TOLERANCE * largest.max(1e-6),
    })
}

fn files(delivery: &Delivery<'_>, folder: &Path) -> Result<Vec<DeliveredFile>> {
    let mut names = vec![(PROGRAM, Role::Program), (GOLDEN, Role::Golden)];
    if delivery.onnx {
        names.push((ONNX, Role::Onnx));
    }
    let others = delivery.others.iter();
    names.extend(others.map(|(name, _)| (name.as_str(), Role::Other)));
    let file = |(name, role)| checksum::of_file(folder, name, role);
    names.into_iter().map(file).collect()
}

/// A name is one of a plain file, and nobody else's.
fn write_others(delivery: &Delivery<'_>, folder: &Path) -> Result<()> {
    let mut taken = vec![PROGRAM, ONNX, GOLDEN, MANIFEST, SUMS];
    for (name, contents) in &delivery.others {
        let refuse = |found: &str, remedy: &'static str| {
            let what = format!("the file `{name}` of a delivery");
            Err(Error::unsupported(what, found, remedy))
        };
        if Path::new(name).file_name() != Some(name.as_ref()) || name.contains(['/', '\\']) {
            return refuse("is no plain name of a file", "leave out folders");
        }
        if taken.contains(&name.as_str()) {
            return refuse("is there already", "give it another name");
        }
        taken.push(name);
        let path = folder.join(name);
        std::fs::write(&path, contents).map_err(Error::io("write", &path))?;
    }
    Ok(())
}

fn manifest(
    delivery: &Delivery<'_>,
    program: &Program,
    runner: &Runner,
    latency: Vec<Latency>,
    golden: Golden,
    files: Vec<DeliveredFile>,
) -> Manifest {
    let mut build = Build::detect();
    if let Some(commit) = &delivery.git_commit {
        build.git_commit.clone_from(commit);
    }
    let metrics = runner.metrics();
    let missing = Normalisation {
        scale: 0.0,
        mean: Vec::new(),
        std: Vec::new(),
    };
    Manifest {
        manifest_version: VERSION,
        model: Identity {
            name: delivery.name.clone(),
            version: delivery.version.clone(),
            created: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        },
        build,
        files,
        format: Format {
            program: "safetensors with tallow.program 1".into(),
            onnx_opset: delivery.onnx.then_some(onnx::OPSET),
        },
        interface: Interface {
            inputs: inputs(program),
            outputs: outputs(program),
            batch_sizes: program.batch_sizes(),
        },
        normalisation: delivery.normalisation.clone().unwrap_or(missing),
        classes: delivery.classes.clone(),
        compile: Compile {
            options: BTreeMap::from([
                ("precision".into(), "f32".into()),
                ("winograd".into(), delivery.winograd.to_string()),
            ]),
            kernels: metrics.kernels,
            fallbacks: metrics.fallbacks,
            planned_memory: metrics.planned_memory,
        },
        machine: Machine::detect(),
        training: delivery.training.clone(),
        latency,
        golden,
    }
}

/// A folder that is there must be empty or hold a delivery and nothing else: no other file is replaced.
fn check_target(folder: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("read", folder)(error)),
    };
    let mut delivered = vec![MANIFEST.to_string(), SUMS.to_string()];
    if let Ok(manifest) = Manifest::read(folder) {
        delivered.extend(manifest.files.into_iter().map(|file| file.name));
    }
    for entry in entries {
        let entry = entry.map_err(Error::io("read", folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !delivered.contains(&name) {
            return Err(Error::unsupported(
                format!("the folder {}", folder.display()),
                format!("holds `{name}`, which is no part of a delivery"),
                "name a new folder, an empty one, or one with a delivery to replace",
            ));
        }
    }
    Ok(())
}

/// A folder beside the one to be, removed unless it takes that one's place.
struct Beside(PathBuf);

impl Beside {
    fn new(folder: &Path) -> Result<Self> {
        let path = named_beside(folder, "new");
        std::fs::create_dir(&path).map_err(Error::io("make", &path))?;
        Ok(Self(path))
    }

    fn take_the_place_of(self, folder: &Path) -> Result<()> {
        let old = named_beside(folder, "old");
        if folder.exists() {
            std::fs::rename(folder, &old).map_err(Error::io("move", folder))?;
        }
        if let Err(error) = std::fs::rename(&self.0, folder) {
            // What was there goes back; the first error is the one to report.
            let _ = std::fs::rename(&old, folder);
            return Err(Error::io("make", folder)(error));
        }
        if old.exists() {
            std::fs::remove_dir_all(&old).map_err(Error::io("remove", &old))?;
        }
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Gone if it took its place.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn named_beside(folder: &Path, what: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(folder.file_name().unwrap_or("delivery".as_ref()));
    name.push(format!(".{}.{what}", std::process::id()));
    folder.with_file_name(name)
}
