//! NaN and infinity: what the guard sees, eager and compiled, and what a compiled step says about a bad loss.

use candle_core::{Device, Tensor};
use candle_nn::ModuleT;
use tallow_compile::Options;
use tallow_tensor::{Params, ops, scope};
use tallow_train::hooks::NanGuard;
use tallow_train::{BadValue, Error, Sgd};

use crate::toy::{batches, bits, quiet};

/// A linear layer whose outputs go through a root, after a module that may divide by zero.
struct Fragile {
    scale: Tensor,
    head: Tensor,
    /// What the stem divides by.
    divisor: Tensor,
    /// Whether the head takes roots.
    root: bool,
}

impl Fragile {
    fn new(params: &Params, divisor: f32, root: bool) -> Self {
        let vb = params.builder();
        Self {
            scale: vb
                .pp("stem")
                .get_with_hints(3, "scale", candle_nn::Init::Const(1.0))
                .unwrap(),
            head: vb
                .pp("head")
                .get_with_hints(3, "weight", candle_nn::Init::Const(0.0))
                .unwrap(),
            divisor: Tensor::full(divisor, 3, &Device::Cpu).unwrap(),
            root,
        }
    }
}

impl ModuleT for Fragile {
    fn forward_t(&self, images: &Tensor, _train: bool) -> candle_core::Result<Tensor> {
        let pixels = ops::slice(&ops::flatten(images, 1)?, 1, 0, 3)?;
        let stem = {
            let _stem = scope::enter("stem");
            ops::div(&ops::mul(&pixels, &self.scale)?, &self.divisor)?
        };
        let _head = scope::enter("head");
        let logits = ops::mul(&stem, &self.head)?;
        // Not differentiable at zero, where the weights are.
        if self.root { logits.sqrt() } else { Ok(logits) }
    }
}

fn fragile(divisor: f32, root: bool) -> (Fragile, Params) {
    let params = Params::f32_cpu();
    (Fragile::new(&params, divisor, root), params)
}

#[test]
fn a_bad_gradient_under_a_finite_loss_is_named_before_the_update() {
    let (model, params) = fragile(1.0, true);
    let before = bits(&params);
    let guard = Box::new(NanGuard::new());
    let mut trainer = quiet(model, params.clone()).hook(guard).build().unwrap();
    let error = trainer.fit(&batches(1), None).unwrap_err();
    let message = error.to_string();
    let Error::Spoiled {
        step: 0,
        epoch: 0,
        loss,
        cause:
            BadValue::Gradient {
                name,
                module,
                spoiled,
                ..
            },
    } = error
    else {
        panic!("{message}");
    };
    assert!(loss.is_finite());
    assert_eq!(
        (name.as_str(), module.as_str(), spoiled),
        ("head.weight", "head", 2)
    );
    assert!(message.contains("nothing was updated"), "{message}");
    assert_eq!(bits(&params), before);
}

#[test]
fn an_update_that_overflows_is_named() {
    for compiled in [false, true] {
        let (model, params) = fragile(1.0, false);
        let builder = quiet(model, params)
            .optimizer(Sgd::new(f64::from(f32::MAX)).momentum(0.9))
            .loss(|logits: &Tensor, _: &Tensor| {
                ops::mul_scalar(&ops::sum(logits, &[0, 1], false)?, 1e3)
            })
            .hook(Box::new(NanGuard::new()));
        let builder = if compiled {
            builder.compile(Options::default())
        } else {
            builder
        };
        let error = builder.build().unwrap().fit(&batches(1), None).unwrap_err();
        let message = error.to_string();
        let Error::Spoiled {
            step: 0,
            cause: BadValue::Update { module, .. },
            ..
        } = error
        else {
            panic!("compiled {compiled}: {message}");
        };
        assert_eq!(module, "head");
    }
}

#[test]
fn a_compiled_step_names_the_module_of_a_bad_loss() {
    let (model, params) = fragile(0.0, false);
    let mut trainer = quiet(model, params)
        .compile(Options::default())
        .build()
        .unwrap();
    let error = trainer.fit(&batches(1), None).unwrap_err();
    let message = error.to_string();
    let Error::NonFinite {
        cause: BadValue::Module { module, operation },
        ..
    } = error
    else {
        panic!("{message}");
    };
    assert_eq!((module.as_str(), operation), ("stem", "div"));
}

#[test]
fn a_guard_changes_nothing_in_a_good_training() {
    let trained = |guard: bool| {
        let (model, params) = fragile(1.0, false);
        let builder = quiet(model, params.clone());
        let builder = if guard {
            builder.hook(Box::new(NanGuard::new()))
        } else {
            builder
        };
        builder.build().unwrap().fit(&batches(4), None).unwrap();
        bits(&params)
    };
    assert_eq!(trained(true), trained(false));
}
