//! The mistakes that a constructor can see: a setting out of range, named with its layer and place in the model.
//!
//! Shape mistakes of a forward pass are not here: the operations of `tallow_tensor::ops` report those, with both
//! shapes. Layers return `candle_core::Result`, so that they compose with any candle code; [`Error`] travels inside
//! it and prints as itself.

use std::fmt::Display;

/// A layer or model that cannot be built as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is out of its range.
    #[error("{layer} `{path}`: {setting} is {found}; it must be {expected}")]
    Setting {
        /// The layer's type, such as `Conv2d`.
        layer: &'static str,
        /// Where it stands in the model, such as `layer1.0.conv1`; `(root)` at the top.
        path: String,
        /// The argument or configuration field.
        setting: &'static str,
        /// What was given.
        found: String,
        /// What is accepted.
        expected: String,
    },
    /// An input does not fit the layer, seen before any operation runs.
    #[error("{layer} `{path}`: the input is {found}; it must be {expected}")]
    Input {
        /// The layer's type.
        layer: &'static str,
        /// Where it stands in the model.
        path: String,
        /// What was given, with its shape.
        found: String,
        /// What is accepted.
        expected: String,
    },
}

/// Names a layer in the errors of its constructor.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    layer: &'static str,
    path: &'a str,
}

impl<'a> Site<'a> {
    pub(crate) fn new(layer: &'static str, path: &'a str) -> Self {
        Self { layer, path }
    }

    fn place(&self) -> String {
        if self.path.is_empty() {
            "(root)".into()
        } else {
            self.path.into()
        }
    }

    pub(crate) fn setting<T>(
        &self,
        setting: &'static str,
        found: impl Display,
        expected: impl Into<String>,
    ) -> candle_core::Result<T> {
        Err(candle_core::Error::wrap(Error::Setting {
            layer: self.layer,
            path: self.place(),
            setting,
            found: found.to_string(),
            expected: expected.into(),
        }))
    }

    pub(crate) fn input<T>(
        &self,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> candle_core::Result<T> {
        Err(candle_core::Error::wrap(Error::Input {
            layer: self.layer,
            path: self.place(),
            found: found.into(),
            expected: expected.into(),
        }))
    }

    /// Every named size is at least one.
    pub(crate) fn positive(&self, sizes: &[(&'static str, usize)]) -> candle_core::Result<()> {
        match sizes.iter().find(|(_, size)| *size == 0) {
            Some((name, size)) => self.setting(name, size, "at least 1"),
            None => Ok(()),
        }
    }

    /// `value` is a multiple of `divisor`.
    pub(crate) fn multiple(
        &self,
        setting: &'static str,
        value: usize,
        of: &str,
        divisor: usize,
    ) -> candle_core::Result<()> {
        if value.is_multiple_of(divisor) {
            return Ok(());
        }
        self.setting(setting, value, format!("a multiple of {of} ({divisor})"))
    }

    /// A probability of dropping: what is left is divided by `1 - p`, so `p` is below one.
    pub(crate) fn drop_rate(&self, setting: &'static str, p: f64) -> candle_core::Result<()> {
        if (0.0..1.0).contains(&p) {
            return Ok(());
        }
        self.setting(setting, p, "at least 0 and below 1")
    }

    /// A finite number above zero.
    pub(crate) fn above_zero(&self, setting: &'static str, value: f64) -> candle_core::Result<()> {
        if value.is_finite() && value > 0.0 {
            return Ok(());
        }
        self.setting(setting, value, "a finite number above 0")
    }
}
