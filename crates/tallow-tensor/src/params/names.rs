//! [`NameMap`]: other people's names for the same parameters.

use indexmap::IndexMap;

use super::is_under;
use crate::{Error, Result};

/// How names of a file become names of a model: rules that are applied to each name in the order in which they were added.
///
/// ```
/// use tallow_tensor::params::NameMap;
///
/// // A model that was trained inside a wrapper, with a head of other classes.
/// let names = NameMap::new()
///     .strip_prefix("module")
///     .rename("backbone.fc", "head")
///     .replace(".gamma_", ".ls")
///     .skip("classifier");
/// assert_eq!(names.apply("module.backbone.fc.weight").as_deref(), Some("head.weight"));
/// assert_eq!(names.apply("module.blocks.0.gamma_1").as_deref(), Some("blocks.0.ls1"));
/// assert_eq!(names.apply("classifier.bias"), None);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct NameMap {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    Strip(String),
    Add(String),
    Rename(String, String),
    Replace(String, String),
    Skip(String),
}

impl NameMap {
    /// Leaves every name as it is.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes away the path `prefix` where a name begins with it: `module` of `module.conv1.weight`.
    pub fn strip_prefix(self, prefix: &str) -> Self {
        self.with(Rule::Strip(trimmed(prefix)))
    }

    /// Puts the path `prefix` before every name.
    pub fn add_prefix(self, prefix: &str) -> Self {
        self.with(Rule::Add(trimmed(prefix)))
    }

    /// Moves the module or parameter at the path `from` to the path `to`: with `fc` and `head`, `fc.weight` becomes
    /// `head.weight`, and `fc2.weight` stays.
    pub fn rename(self, from: &str, to: &str) -> Self {
        self.with(Rule::Rename(trimmed(from), trimmed(to)))
    }

    /// Replaces the text `from` with `to` wherever it stands in a name.
    pub fn replace(self, from: &str, to: &str) -> Self {
        self.with(Rule::Replace(from.to_string(), to.to_string()))
    }

    /// Leaves out the module or parameter at the path `prefix`.
    pub fn skip(self, prefix: &str) -> Self {
        self.with(Rule::Skip(trimmed(prefix)))
    }

    /// What a name becomes; `None` if it is left out.
    pub fn apply(&self, name: &str) -> Option<String> {
        let mut name = name.to_string();
        for rule in &self.rules {
            match rule {
                Rule::Strip(prefix) => {
                    let rest = name.strip_prefix(prefix.as_str());
                    if let Some(rest) = rest.and_then(|rest| rest.strip_prefix('.')) {
                        name = rest.to_string();
                    }
                }
                Rule::Add(prefix) => name = format!("{prefix}.{name}"),
                Rule::Rename(from, to) if is_under(&name, from) && !from.is_empty() => {
                    name = format!("{to}{}", &name[from.len()..]);
                }
                Rule::Rename(..) => {}
                Rule::Replace(from, _) if from.is_empty() => {}
                Rule::Replace(from, to) => name = name.replace(from, to),
                Rule::Skip(prefix) if is_under(&name, prefix) => return None,
                Rule::Skip(_) => {}
            }
        }
        Some(name)
    }

    /// The names of a source by what they become.
    ///
    /// # Errors
    /// [`Error::Parameter`] if two become the same.
    pub(super) fn sources<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<IndexMap<String, String>> {
        let mut sources: IndexMap<String, String> = IndexMap::new();
        for source in names {
            let Some(name) = self.apply(source) else {
                continue;
            };
            if let Some(other) = sources.insert(name.clone(), source.to_string()) {
                return Err(Error::Parameter {
                    name,
                    problem: format!(
                        "both `{other}` and `{source}` of the file would have this name"
                    ),
                    remedy: "change the rules of the name map, or skip one of the two",
                });
            }
        }
        Ok(sources)
    }

    fn with(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }
}

fn trimmed(path: &str) -> String {
    path.trim_end_matches('.').to_string()
}
