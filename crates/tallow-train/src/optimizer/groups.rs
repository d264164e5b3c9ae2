//! Parameter groups: options by rule instead of by list.

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::Tensor;
use tallow_tensor::Params;

use super::{OptimizerState, require_not_negative};
use crate::Result;

/// What a group of parameters does differently, as the dictionaries of PyTorch's `param_groups` say it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupOptions {
    lr_factor: f64,
    weight_decay: Option<f64>,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            lr_factor: 1.0,
            weight_decay: None,
        }
    }
}

impl GroupOptions {
    /// The optimizer's own learning rate and weight decay.
    pub fn new() -> Self {
        Self::default()
    }

    /// Multiplies the optimizer's learning rate, whatever the schedule makes of it; 0 leaves weights where they are.
    #[must_use]
    pub fn with_lr_factor(mut self, factor: f64) -> Self {
        self.lr_factor = factor;
        self
    }

    /// Sets the weight decay, in place of the optimizer's.
    #[must_use]
    pub fn with_weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = Some(weight_decay);
        self
    }

    /// What the learning rate is multiplied with; 1 unless a rule says otherwise.
    pub fn lr_factor(&self) -> f64 {
        self.lr_factor
    }

    /// The weight decay, if it isn't the optimizer's.
    pub fn weight_decay(&self) -> Option<f64> {
        self.weight_decay
    }

    /// The options of a group within a group: factors multiply, the inner weight decay holds.
    fn then(self, inner: Self) -> Self {
        Self {
            lr_factor: self.lr_factor * inner.lr_factor,
            weight_decay: inner.weight_decay.or(self.weight_decay),
        }
    }
}

/// Rules that say which parameters have which [`GroupOptions`].
///
/// Every rule that covers a parameter applies to it, in the order given: factors of the learning rate multiply, a later weight
/// decay replaces an earlier one. Parameters that end with the same options are one group of PyTorch's `param_groups`.
///
/// ```
/// use tallow_train::{AdamW, GroupOptions, ParamGroups};
///
/// // Fine-tuning a ResNet: earlier layers move less, and neither norms nor biases decay.
/// let groups = ParamGroups::new()
///     .layer_decay(0.5, &["conv1", "layer1", "layer2", "layer3", "layer4", "fc"])
///     .under("bn1", GroupOptions::new().with_lr_factor(0.1))
///     .no_decay_on_norms_and_biases();
/// assert_eq!(groups.options("fc.weight", &[10, 512]).lr_factor(), 1.0);
/// assert_eq!(groups.options("layer3.0.conv1.weight", &[256, 128, 3, 3]).lr_factor(), 0.25);
/// assert_eq!(groups.options("fc.bias", &[10]).weight_decay(), Some(0.0));
///
/// let optimizer = AdamW::new(1e-3).weight_decay(0.05).groups(groups);
/// # let _ = optimizer;
/// ```
#[derive(Clone, Default)]
pub struct ParamGroups {
    rules: Vec<Rule>,
}

/// Yes or no to the name and the shape of a parameter.
pub(super) type Predicate = dyn Fn(&str, &[usize]) -> bool;

#[derive(Clone)]
struct Rule {
    covers: Arc<Predicate>,
    options: GroupOptions,
}

/// Parameters that have the same options.
#[derive(Debug, Clone, PartialEq)]
pub struct ParamGroup {
    /// Their options.
    pub options: GroupOptions,
    /// Their names, in the order in which the model made them.
    pub names: Vec<String>,
}

impl std::fmt::Debug for ParamGroups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let options = self.rules.iter().map(|rule| rule.options);
        f.debug_list().entries(options).finish()
    }
}

impl ParamGroups {
    /// No rules: every parameter has the optimizer's own options.
    pub fn new() -> Self {
        Self::default()
    }

    /// No weight decay for what has one dimension (weights of norms, biases, scales) and for whatever is called `bias`.
    #[must_use]
    pub fn no_decay_on_norms_and_biases(self) -> Self {
        let vector =
            |name: &str, dims: &[usize]| dims.len() <= 1 || name.rsplit('.').next() == Some("bias");
        self.when(vector, GroupOptions::new().with_weight_decay(0.0))
    }

    /// Options for the parameter or module at `prefix`: `layer1` covers `layer1.0.weight` but not `layer10.weight`.
    #[must_use]
    pub fn under(self, prefix: &str, options: GroupOptions) -> Self {
        let prefix = prefix.trim_end_matches('.').to_string();
        self.when(move |name, _| is_under(name, &prefix), options)
    }

    /// Options for the parameters whose name and shape `covers` says yes to.
    #[must_use]
    pub fn when(
        mut self,
        covers: impl Fn(&str, &[usize]) -> bool + 'static,
        options: GroupOptions,
    ) -> Self {
        self.rules.push(Rule {
            covers: Arc::new(covers),
            options,
        });
        self
    }

    /// Layer-wise decay of the learning rate (ULMFiT, BEiT; timm's `layer_decay`): `layers` are prefixes from the input to the
    /// output, and the rate of each is `decay` times that of the next. The last one's, and that of parameters under none, is the
    /// optimizer's.
    #[must_use]
    pub fn layer_decay(mut self, decay: f64, layers: &[&str]) -> Self {
        let mut factor = 1.0;
        for layer in layers.iter().rev() {
            self = self.under(layer, GroupOptions::new().with_lr_factor(factor));
            factor *= decay;
        }
        self
    }

    /// The options of a parameter of this name and shape.
    pub fn options(&self, name: &str, dims: &[usize]) -> GroupOptions {
        let rules = self.rules.iter().filter(|rule| (rule.covers)(name, dims));
        rules.fold(GroupOptions::default(), |all, rule| all.then(rule.options))
    }

    /// The groups that the parameters fall into, in the order of their first parameters: what PyTorch's `param_groups` would list.
    pub fn split(&self, params: &Params) -> Vec<ParamGroup> {
        let mut groups: Vec<ParamGroup> = Vec::new();
        for (name, var) in params.trainable() {
            let options = self.options(&name, var.dims());
            match groups.iter_mut().find(|group| group.options == options) {
                Some(group) => group.names.push(name),
                None => groups.push(ParamGroup {
                    options,
                    names: vec![name],
                }),
            }
        }
        groups
    }

    pub(super) fn check(&self) -> Result<()> {
        for rule in &self.rules {
            let GroupOptions {
                lr_factor,
                weight_decay,
            } = rule.options;
            require_not_negative("the learning-rate factor of a parameter group", lr_factor)?;
            let decay = weight_decay.unwrap_or(0.0);
            require_not_negative("the weight decay of a parameter group", decay)?;
        }
        Ok(())
    }
}

fn is_under(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('.'))
}

const LR_FACTOR: &str = "group.lr_factor.";
const WEIGHT_DECAY: &str = "group.weight_decay.";

/// The rules of an optimizer, and the options that parameters were found to have. A state holds the latter, since rules can't be
/// written to a file.
#[derive(Debug, Default)]
pub(super) struct Grouping {
    pub(super) rules: ParamGroups,
    known: HashMap<String, GroupOptions>,
}

impl Grouping {
    pub(super) fn new(rules: ParamGroups) -> Self {
        Self {
            rules,
            known: HashMap::new(),
        }
    }

    /// Finds the options of a parameter, if they aren't known.
    pub(super) fn meet(&mut self, name: &str, parameter: &Tensor) {
        if !self.known.contains_key(name) {
            let options = self.rules.options(name, parameter.dims());
            self.known.insert(name.to_string(), options);
        }
    }

    /// Learning rate and weight decay of a parameter.
    pub(super) fn of(&self, name: &str, lr: f64, weight_decay: f64) -> (f64, f64) {
        let options = self.known.get(name).copied().unwrap_or_default();
        let decay = options.weight_decay.unwrap_or(weight_decay);
        (lr * options.lr_factor, decay)
    }

    /// Writes what differs from the optimizer's own options.
    pub(super) fn write(&self, state: &mut OptimizerState) {
        for (name, options) in &self.known {
            if options.lr_factor != 1.0 {
                let key = format!("{LR_FACTOR}{name}");
                state.settings.insert(key, options.lr_factor);
            }
            if let Some(decay) = options.weight_decay {
                state
                    .settings
                    .insert(format!("{WEIGHT_DECAY}{name}"), decay);
            }
        }
    }

    /// The same rules with the options that a state has for its parameters.
    pub(super) fn restored(&self, state: &OptimizerState) -> Self {
        let setting =
            |kind: &str, name: &str| state.settings.get(&format!("{kind}{name}")).copied();
        let known = state.parameters.keys().map(|name| {
            let options = GroupOptions {
                lr_factor: setting(LR_FACTOR, name).unwrap_or(1.0),
                weight_decay: setting(WEIGHT_DECAY, name),
            };
            (name.clone(), options)
        });
        Self {
            known: known.collect(),
            rules: self.rules.clone(),
        }
    }
}
