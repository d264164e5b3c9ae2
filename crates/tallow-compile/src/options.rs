//! [`Options`]: what a compilation may do, and what it must not.

use std::path::PathBuf;

use crate::{Error, Result, passes};

/// How a model or a step is compiled. The defaults suit most.
///
/// ```
/// use tallow_compile::{Mode, Options};
///
/// let options = Options::default().mode(Mode::MaxAutotune).winograd(false);
/// assert_eq!(options.cache_limit, 8);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// How much time compilation may take to make a faster plan.
    pub mode: Mode,
    /// Whether a graph break is an error (`true`, the default). With `false` the smallest module around it runs as it is,
    /// and the rest is compiled, if a container such as `tallow_nn::Layer` or `Sequential` calls that module;
    /// otherwise the whole model runs eagerly. Both are counted as fallbacks.
    pub fullgraph: bool,
    /// How many plans, one a signature of shapes, may be compiled.
    pub cache_limit: usize,
    /// The type that products are computed in.
    pub precision: Precision,
    /// Whether 3x3 convolutions may use Winograd's algorithm: fewer multiplications, and rounding errors of about 1e-6
    /// instead of 4e-7 of a value's size.
    pub winograd: bool,
    /// Where choices of [`Mode::MaxAutotune`] are kept between runs.
    pub autotune_file: Option<PathBuf>,
    /// A folder that the graph is written into after each pass.
    pub dump: Option<PathBuf>,
    off: Vec<String>,
}

/// How much time compilation may take to make a faster plan; PyTorch's modes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Algorithms are chosen by shape.
    #[default]
    Default,
    /// PyTorch's name for less overhead a launch. A plan on the CPU has none to reduce: the same as [`Mode::Default`].
    ReduceOverhead,
    /// Algorithms are timed on this machine, layer by layer, and the fastest is taken.
    MaxAutotune,
}

/// The type that products are computed in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 32-bit floats.
    #[default]
    F32,
    /// What convolutions, linear layers and attention multiply is rounded to bfloat16, in the backward pass too; sums,
    /// and everything else, are 32-bit floats (`torch.autocast`). Faster where the CPU has AVX512-BF16; there
    /// convolutions that are faster still in 32-bit floats, by Winograd's algorithm or because an image has few channels, aren't
    /// rounded. Elsewhere rounded numbers go through 32-bit kernels, a little slower than [`Precision::F32`].
    Bf16,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Default,
            fullgraph: true,
            cache_limit: 8,
            precision: Precision::F32,
            winograd: true,
            autotune_file: None,
            dump: None,
            off: Vec::new(),
        }
    }
}

impl Options {
    /// Sets [`Options::mode`].
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets [`Options::fullgraph`].
    #[must_use]
    pub fn fullgraph(mut self, fullgraph: bool) -> Self {
        self.fullgraph = fullgraph;
        self
    }

    /// Sets [`Options::cache_limit`].
    #[must_use]
    pub fn cache_limit(mut self, limit: usize) -> Self {
        self.cache_limit = limit;
        self
    }

    /// Sets [`Options::precision`].
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// Sets [`Options::winograd`].
    #[must_use]
    pub fn winograd(mut self, winograd: bool) -> Self {
        self.winograd = winograd;
        self
    }

    /// Sets [`Options::autotune_file`].
    #[must_use]
    pub fn autotune_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.autotune_file = Some(path.into());
        self
    }

    /// Sets [`Options::dump`].
    #[must_use]
    pub fn dump(mut self, folder: impl Into<PathBuf>) -> Self {
        self.dump = Some(folder.into());
        self
    }

    /// Switches a pass off; [`pass_names`](crate::pass_names) lists them.
    #[must_use]
    pub fn without_pass(mut self, name: impl Into<String>) -> Self {
        self.off.push(name.into());
        self
    }

    pub(crate) fn is_off(&self, pass: &str) -> bool {
        self.off.iter().any(|name| name == pass)
    }

    /// Refuses what can't be.
    pub(crate) fn check(&self) -> Result<()> {
        let known = passes::names();
        if let Some(name) = self.off.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(Error::UnknownPass {
                name: name.clone(),
                known: known.join(", "),
            });
        }
        Ok(())
    }
}
