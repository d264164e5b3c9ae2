//! [`Rule`]: all that an operation must say about itself.

use crate::{Op, ShapeError, TensorType};

/// What an operation says about itself. Implemented by the attribute structs.
pub(crate) trait Rule {
    /// PyTorch's functional name.
    fn name(&self) -> &'static str;

    /// The roles of its inputs.
    fn signature(&self) -> Signature;

    /// The type of what it gives; the number of inputs is checked already.
    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem>;

    /// Floating-point operations, see [`Op::flops`].
    fn flops(&self, inputs: &[TensorType], output: &TensorType) -> u64;

    /// Multiply-adds, see [`Op::macs`].
    fn macs(&self, _inputs: &[TensorType], _output: &TensorType) -> u64 {
        0
    }

    /// Lists the attributes that the text form shows; those at their usual value may be left out.
    fn attributes(&self, _list: &mut Attributes) {}
}

/// The names of an operation's inputs, and how many there must be.
pub(crate) struct Signature {
    required: &'static [&'static str],
    optional: &'static [&'static str],
    /// Whether the last required input may be repeated.
    variadic: bool,
}

impl Signature {
    pub(crate) const fn of(required: &'static [&'static str]) -> Self {
        Self {
            required,
            optional: &[],
            variadic: false,
        }
    }

    pub(crate) const fn with_optional(
        required: &'static [&'static str],
        optional: &'static [&'static str],
    ) -> Self {
        Self {
            required,
            optional,
            variadic: false,
        }
    }

    pub(crate) const fn variadic(required: &'static [&'static str]) -> Self {
        Self {
            required,
            optional: &[],
            variadic: true,
        }
    }

    pub(crate) fn role(&self, index: usize) -> &'static str {
        let named = self.required.iter().chain(self.optional).nth(index);
        match named {
            Some(role) => role,
            None if self.variadic => self.required.last().copied().unwrap_or("input"),
            None => "extra",
        }
    }

    pub(crate) fn check(&self, count: usize) -> Result<(), Problem> {
        let most = if self.variadic {
            usize::MAX
        } else {
            self.required.len() + self.optional.len()
        };
        if (self.required.len()..=most).contains(&count) {
            return Ok(());
        }
        let mut roles = self.required.join(", ");
        for role in self.optional {
            roles.push_str(&format!(", [{role}]"));
        }
        if self.variadic {
            roles.push_str(", ...");
        }
        Err(Problem::new(
            format!("it was given {count} inputs"),
            format!("give it ({roles})"),
        ))
    }
}

/// A complaint of a rule, before it is known who made it about what.
#[derive(Debug)]
pub(crate) struct Problem {
    problem: String,
    remedy: String,
}

impl Problem {
    pub(crate) fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }

    pub(crate) fn at(self, rule: &dyn Rule, inputs: &[TensorType]) -> ShapeError {
        let signature = rule.signature();
        ShapeError {
            operation: rule.name(),
            inputs: inputs
                .iter()
                .enumerate()
                .map(|(i, ty)| (signature.role(i).to_string(), ty.clone()))
                .collect(),
            problem: self.problem,
            remedy: self.remedy,
        }
    }
}

/// Attributes for the text form, as `name=value`.
pub(crate) struct Attributes(Vec<String>);

impl Attributes {
    pub(crate) fn of(op: &Op) -> Vec<String> {
        let mut list = Self(Vec::new());
        op.rule().attributes(&mut list);
        list.0
    }

    /// `name=value`.
    pub(crate) fn show(&mut self, name: &str, value: impl std::fmt::Debug) {
        self.0.push(format!("{name}={value:?}"));
    }

    /// `name=value`, unless the value is the usual one.
    pub(crate) fn show_unless<T: std::fmt::Debug + PartialEq>(
        &mut self,
        name: &str,
        value: T,
        usual: T,
    ) {
        if value != usual {
            self.show(name, value);
        }
    }

    /// Text that is ready.
    pub(crate) fn show_text(&mut self, text: String) {
        self.0.push(text);
    }

    /// A value that needs no name.
    pub(crate) fn show_bare(&mut self, value: impl std::fmt::Debug) {
        self.0.push(format!("{value:?}"));
    }
}
