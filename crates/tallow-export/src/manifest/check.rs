//! Which items of a manifest are missing or impossible.

use super::{Manifest, Role, VERSION};

/// The items in order, with what is wrong with them.
struct Faults(Vec<String>);

impl Faults {
    fn unless(&mut self, holds: bool, fault: impl Into<String>) {
        if !holds {
            self.0.push(fault.into());
        }
    }

    fn text(&mut self, item: &str, text: &str) {
        self.unless(!text.trim().is_empty(), format!("{item} is empty"));
    }

    fn number(&mut self, item: &str, number: f64) {
        let holds = number.is_finite() && number >= 0.0;
        self.unless(
            holds,
            format!("{item} is {number}, not a number of at least 0"),
        );
    }
}

impl Manifest {
    /// Every item that is missing or impossible.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Faults(Vec::new());
        let version = self.manifest_version;
        faults.unless(
            version == VERSION,
            format!("manifest_version is {version}, this is version {VERSION}"),
        );
        self.origin(&mut faults);
        self.delivered_files(&mut faults);
        self.values(&mut faults);
        self.measured(&mut faults);
        faults.0
    }

    fn origin(&self, faults: &mut Faults) {
        faults.text("model.name", &self.model.name);
        faults.text("model.version", &self.model.version);
        let time = humantime::parse_rfc3339(&self.model.created);
        faults.unless(
            time.is_ok(),
            "model.created is no time, such as 2026-01-31T12:00:00Z",
        );
        let build = &self.build;
        faults.text("build.rustc", &build.rustc);
        faults.text("build.target", &build.target);
        let commit = "build.git_commit is empty; deliver from a git checkout, or say what it is";
        faults.unless(!build.git_commit.trim().is_empty(), commit);
        for name in ["tallow-export", "candle-core"] {
            let there = build.crates.contains_key(name);
            faults.unless(there, format!("build.crates lacks `{name}`"));
        }
        let machine = &self.machine;
        faults.text("machine.device", &machine.device);
        faults.text("machine.cpu", &machine.cpu);
        faults.text("machine.os", &machine.os);
        faults.text("machine.simd", &machine.simd);
        faults.unless(machine.threads > 0, "machine.threads is 0");
        let training = &self.training;
        faults.text("training.dataset", &training.dataset);
        faults.unless(!training.metrics.is_empty(), "training.metrics is empty");
        for (name, value) in &training.metrics {
            let item = format!("training.metrics.{name} is {value}");
            faults.unless(value.is_finite(), item);
        }
    }

    fn delivered_files(&self, faults: &mut Faults) {
        for file in &self.files {
            let name = &file.name;
            let inside =
                !name.is_empty() && !name.contains(['/', '\\', '\n']) && !name.starts_with('.');
            faults.unless(inside, format!("files: `{name}` is no file's name"));
            let hex = file
                .sha256
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            let checksum = hex && file.sha256.len() == 64;
            faults.unless(checksum, format!("files: `{name}` has no SHA-256"));
            faults.unless(file.bytes > 0, format!("files: `{name}` is empty"));
            let same = self
                .files
                .iter()
                .filter(|other| other.name == *name)
                .count();
            faults.unless(same == 1, format!("files: `{name}` is listed {same} times"));
        }
        for (role, name) in [(Role::Program, "program"), (Role::Golden, "golden")] {
            let count = self.files.iter().filter(|file| file.role == role).count();
            faults.unless(
                count == 1,
                format!("files: {count} of role `{name}`, not 1"),
            );
        }
        faults.text("format.program", &self.format.program);
        let opset = self.format.onnx_opset.is_some();
        let onnx = self.file(Role::Onnx).is_some();
        faults.unless(
            opset == onnx,
            "format.onnx_opset and the files disagree on ONNX",
        );
        let golden = self.file(Role::Golden).map(|file| file.name.as_str());
        let named = golden == Some(self.golden.file.as_str());
        faults.unless(named, "golden.file is not the file of role `golden`");
    }

    fn values(&self, faults: &mut Faults) {
        let interface = &self.interface;
        faults.unless(!interface.inputs.is_empty(), "interface.inputs is empty");
        faults.unless(!interface.outputs.is_empty(), "interface.outputs is empty");
        faults.unless(
            !interface.batch_sizes.is_empty(),
            "interface.batch_sizes is empty",
        );
        for value in interface.inputs.iter().chain(&interface.outputs) {
            faults.text("the name of an input or output", &value.name);
            let item = format!(
                "interface: `{}` has the shape {:?}",
                value.name, value.shape
            );
            faults.unless(value.shape.iter().all(|&size| size > 0), item);
        }
        let normalisation = &self.normalisation;
        let (mean, std) = (&normalisation.mean, &normalisation.std);
        faults.unless(!mean.is_empty(), "normalisation.mean is empty");
        let pairs = mean.len() == std.len();
        faults.unless(
            pairs,
            "normalisation.mean and normalisation.std differ in length",
        );
        let numbers =
            mean.iter().all(|v| v.is_finite()) && std.iter().all(|v| v.is_finite() && *v > 0.0);
        faults.unless(
            numbers,
            "normalisation: a mean is no number, or a std is not above 0",
        );
        let scale = normalisation.scale;
        faults.unless(
            scale.is_finite() && scale > 0.0,
            format!("normalisation.scale is {scale}"),
        );
        let channels = interface
            .inputs
            .first()
            .and_then(|input| input.shape.get(1));
        let fits = mean.len() == 1 || Some(&mean.len()) == channels;
        faults.unless(
            fits,
            format!(
                "normalisation is for {} channels, the input has {channels:?}",
                mean.len()
            ),
        );
        self.class_names(faults);
    }

    fn class_names(&self, faults: &mut Faults) {
        let output = self.interface.outputs.first();
        let width = output.and_then(|output| output.shape.last()).copied();
        let (named, width) = (self.classes.len(), width.unwrap_or(1));
        faults.unless(
            named == width,
            format!("classes: {named} are named, the output has {width}"),
        );
        for (index, class) in self.classes.iter().enumerate() {
            faults.text(&format!("classes: number {index}"), class);
            let earlier = self.classes[..index].contains(class);
            faults.unless(!earlier, format!("classes: `{class}` is named twice"));
        }
    }

    fn measured(&self, faults: &mut Faults) {
        let compile = &self.compile;
        faults.unless(!compile.options.is_empty(), "compile.options is empty");
        faults.unless(
            compile.kernels > 0,
            "compile.kernels is 0: nothing was compiled",
        );
        let fallbacks = compile.fallbacks;
        let item = format!("compile.fallbacks is {fallbacks}: a part runs eagerly");
        faults.unless(fallbacks == 0, item);
        let measured: Vec<usize> = self.latency.iter().map(|latency| latency.batch).collect();
        let each = measured == self.interface.batch_sizes;
        faults.unless(
            each,
            format!("latency: measured for batches of {measured:?}"),
        );
        for latency in &self.latency {
            faults.number("latency.median_ms", latency.median_ms);
            faults.number("latency.p99_ms", latency.p99_ms);
            faults.unless(latency.runs > 0, "latency.runs is 0");
            faults.text("latency.how", &latency.how);
        }
        let golden = &self.golden;
        faults.number("golden.max_deviation", golden.max_deviation);
        faults.number("golden.largest_output", golden.largest_output);
        faults.number("golden.tolerance", golden.tolerance);
        let within = golden.max_deviation <= golden.tolerance;
        let item = format!(
            "golden.max_deviation is {:e}, more than the tolerance of {:e}",
            golden.max_deviation, golden.tolerance
        );
        faults.unless(within, item);
    }
}
