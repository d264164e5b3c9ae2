//! What a program runs on: CPU and the kernels that it selects, threads, memory, CUDA where there is any. Printed by `cargo
//! xtask doctor`, and plain data for whoever writes it beside a result.

use std::fmt;
use std::process::Command;

use serde::Serialize;
use tallow_kernels::{parallel, simd};

/// The version of candle that this build is made for.
pub const CANDLE: &str = "0.11.1";

/// The machine, and what this build makes of it.
///
/// ```
/// use tallow_tensor::environment::Environment;
///
/// let environment = Environment::detect();
/// println!("{environment}");
/// assert!(environment.threads >= 1);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Environment {
    /// Tallow's version.
    pub tallow: String,
    /// candle's version.
    pub candle: String,
    /// Operating system and architecture, such as `linux x86_64`.
    pub platform: String,
    /// Whether optimisations are off in this build.
    pub debug_build: bool,
    /// The CPU's name, where the system tells it.
    pub cpu: Option<String>,
    /// The vector instructions of the CPU that kernels can use.
    pub cpu_features: Vec<String>,
    /// The vector instructions that kernels run with.
    pub simd: String,
    /// The most that they could run with here.
    pub simd_detected: String,
    /// What is wrong with the cap that `TALLOW_SIMD` sets, if anything.
    pub simd_cap_problem: Option<String>,
    /// Cores that this process may use.
    pub cores: usize,
    /// Threads that kernels run on.
    pub threads: usize,
    /// Memory of the machine in bytes, where the system tells it.
    pub memory: Option<u64>,
    /// Memory that is free for use, in bytes.
    pub memory_available: Option<u64>,
    /// Graphics cards and CUDA, where there are any.
    pub cuda: Option<Cuda>,
}

/// What there is of CUDA.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Cuda {
    /// The devices' names.
    pub devices: Vec<String>,
    /// The driver's version.
    pub driver: Option<String>,
    /// The newest CUDA that the driver runs.
    pub driver_cuda: Option<String>,
    /// The toolkit's version, what `nvcc` compiles for.
    pub toolkit: Option<String>,
}

impl Environment {
    /// Looks at the machine. Starts `nvidia-smi` and `nvcc` where they are installed.
    pub fn detect() -> Self {
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            tallow: env!("CARGO_PKG_VERSION").to_string(),
            candle: CANDLE.to_string(),
            platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            debug_build: cfg!(debug_assertions),
            cpu: field(&cpuinfo, "model name").map(str::to_string),
            cpu_features: cpu_features(),
            simd: simd::level().to_string(),
            simd_detected: simd::Level::detected().to_string(),
            simd_cap_problem: simd::environment_cap().err().map(|error| error.to_string()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            threads: parallel::threads(),
            memory: kibibytes(&meminfo, "MemTotal"),
            memory_available: kibibytes(&meminfo, "MemAvailable"),
            cuda: Cuda::detect(),
        }
    }

    /// What to mend before a run, in words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.debug_build {
            problems.push("this is a build without optimisations; add `--release`".to_string());
        }
        if let Some(problem) = &self.simd_cap_problem {
            problems.push(format!("{problem}; it is ignored"));
        } else if self.simd != self.simd_detected {
            problems.push(format!(
                "TALLOW_SIMD keeps kernels at {}, and this CPU has {}; unset it",
                self.simd, self.simd_detected
            ));
        }
        if self.threads < self.cores {
            problems.push(format!(
                "kernels run on {} threads of {} cores; unset RAYON_NUM_THREADS",
                self.threads, self.cores
            ));
        }
        if self.memory_available.is_some_and(|bytes| bytes < 1 << 30) {
            problems.push(
                "less than 1 GiB of memory is free; training may be ended by the system".into(),
            );
        }
        problems.extend(self.cuda.as_ref().and_then(Cuda::mismatch));
        problems
    }
}

impl Cuda {
    fn detect() -> Option<Self> {
        let smi = output("nvidia-smi", &[]);
        let listed = output(
            "nvidia-smi",
            &["--query-gpu=name,driver_version", "--format=csv,noheader"],
        );
        let nvcc = output("nvcc", &["--version"]);
        if smi.is_none() && nvcc.is_none() {
            return None;
        }
        Some(Self::parse(
            &smi.unwrap_or_default(),
            &listed.unwrap_or_default(),
            &nvcc.unwrap_or_default(),
        ))
    }

    /// Reads what `nvidia-smi`, `nvidia-smi --query-gpu=name,driver_version --format=csv,noheader` and `nvcc --version` print.
    pub fn parse(smi: &str, listed: &str, nvcc: &str) -> Self {
        let devices = listed.lines().filter_map(|line| line.split_once(", "));
        let devices: Vec<(&str, &str)> = devices.collect();
        let after = |text: &str, mark: &str| {
            let rest = text.split_once(mark)?.1.trim_start();
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
            let version = &rest[..end.unwrap_or(rest.len())];
            (!version.is_empty()).then(|| version.to_string())
        };
        Self {
            driver: devices.first().map(|(_, driver)| driver.trim().to_string()),
            devices: devices
                .iter()
                .map(|(name, _)| name.trim().to_string())
                .collect(),
            driver_cuda: after(smi, "CUDA Version:"),
            toolkit: after(nvcc, "release "),
        }
    }

    /// What doesn't fit together, in words: a toolkit of a newer major version than the driver runs.
    pub fn mismatch(&self) -> Option<String> {
        let major = |version: &str| version.split('.').next()?.parse::<u32>().ok();
        let (driver, toolkit) = (self.driver_cuda.as_deref()?, self.toolkit.as_deref()?);
        (major(toolkit)? > major(driver)?).then(|| {
            format!(
                "the CUDA toolkit is {toolkit}, and the driver runs CUDA up to {driver}; update the driver, or install toolkit {}",
                driver.split('.').next().unwrap_or(driver)
            )
        })
    }
}

/// The compiler on the path, such as `rustc 1.95.0 (...)`; it need not be the one that built this program.
pub fn rustc() -> Option<String> {
    output("rustc", &["--version"]).map(|text| text.trim().to_string())
}

/// What a program prints, if it is there and succeeds.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

/// `name : value` of /proc.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let number = field(text, name)?.split_whitespace().next()?;
    Some(number.parse::<u64>().ok()? * 1024)
}

fn cpu_features() -> Vec<String> {
    #[cfg(target_arch = "x86_64")]
    let features = [
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512dq", is_x86_feature_detected!("avx512dq")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let features: [(&str, bool); 0] = [];
    let found = features.into_iter().filter(|(_, there)| *there);
    found.map(|(name, _)| name.to_string()).collect()
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gibibytes = |bytes: Option<u64>| match bytes {
            Some(bytes) => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
            None => "unknown".to_string(),
        };
        let build = if self.debug_build { "debug" } else { "release" };
        writeln!(
            f,
            "tallow {}, candle {}, {build} build",
            self.tallow, self.candle
        )?;
        writeln!(f, "platform   {}", self.platform)?;
        writeln!(f, "CPU        {}", self.cpu.as_deref().unwrap_or("unknown"))?;
        writeln!(f, "features   {}", self.cpu_features.join(" "))?;
        writeln!(
            f,
            "kernels    {} (of {} that this CPU has)",
            self.simd, self.simd_detected
        )?;
        writeln!(f, "threads    {} on {} cores", self.threads, self.cores)?;
        let (all, free) = (gibibytes(self.memory), gibibytes(self.memory_available));
        writeln!(f, "memory     {all}, {free} available")?;
        match &self.cuda {
            None => write!(f, "CUDA       none found")?,
            Some(cuda) => {
                let known = |text: &Option<String>| text.clone().unwrap_or("not found".into());
                write!(
                    f,
                    "CUDA       driver {} (runs CUDA {}), toolkit {}; {}",
                    known(&cuda.driver),
                    known(&cuda.driver_cuda),
                    known(&cuda.toolkit),
                    match cuda.devices.as_slice() {
                        [] => "no device".to_string(),
                        devices => devices.join(", "),
                    }
                )?;
            }
        }
        for problem in self.problems() {
            write!(f, "\nproblem    {problem}")?;
        }
        Ok(())
    }
}
