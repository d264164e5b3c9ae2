//! Models with layers that can't be captured: those run as they are, and the rest is compiled around them.

mod common;

use candle_core::{Device, Result, Tensor, Var};
use candle_nn::{Init, ModuleT, VarBuilder};
use common::{batch, close, close_at, eager_step};
use tallow_compile::{Options, StepCompiler, compile, explain, explain_step};
use tallow_nn::{
    Activation, AdaptiveAvgPool2d, BatchNorm2d, BatchNormConfig, Conv2d, Conv2dConfig, Dropout,
    Flatten, Layer, Linear, Sequential,
};
use tallow_tensor::ops::{self, CrossEntropyConfig};
use tallow_tensor::params::Strict;
use tallow_tensor::{Params, rng, scope};

/// `x · sigmoid(x · slope)`, slope learned, in candle's own operations.
struct Swish {
    slope: Tensor,
    path: String,
}

impl Swish {
    fn new(vb: VarBuilder) -> Result<Self> {
        Ok(Self {
            slope: vb.get_with_hints(1, "slope", Init::Const(0.5))?,
            path: vb.prefix(),
        })
    }
}

impl ModuleT for Swish {
    fn forward_t(&self, xs: &Tensor, _train: bool) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        xs * candle_nn::ops::sigmoid(&xs.broadcast_mul(&self.slope)?)?
    }
}

/// Dropout, then a raw operation: what is drawn must be what an eager step draws at this place.
struct RawDropout(Dropout);

impl ModuleT for RawDropout {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        self.0.forward_t(xs, train)?.affine(2.0, 0.0)
    }
}

/// Divides by the largest element, which it reads: nothing on the tape shows that.
struct Largest;

impl ModuleT for Largest {
    fn forward_t(&self, xs: &Tensor, _train: bool) -> Result<Tensor> {
        let largest = xs.detach().flatten_all()?.max(0)?.to_scalar::<f32>()?;
        ops::mul_scalar(xs, 1.0 / f64::from(largest))
    }
}

fn conv(inputs: usize, outputs: usize, vb: VarBuilder) -> Result<Conv2d> {
    let config = Conv2dConfig {
        padding: [1, 1],
        ..Conv2dConfig::default()
    };
    Conv2d::new(inputs, outputs, 3, config, vb)
}

/// A convolution, `middle`, and a head; layer 2 is `middle`.
fn net<M: ModuleT + Send + Sync + 'static>(
    params: &Params,
    middle: impl FnOnce(VarBuilder) -> Result<M>,
) -> Sequential {
    let build = || {
        Ok::<_, candle_core::Error>(
            Sequential::builder(params.builder())
                .layer(|vb| conv(3, 8, vb))?
                .layer(|vb| BatchNorm2d::new(8, BatchNormConfig::default(), vb))?
                .layer(middle)?
                .then(Dropout::new(0.25)?)
                .layer(|vb| conv(8, 8, vb))?
                .then(Activation::Relu)
                .then(AdaptiveAvgPool2d::new(1))
                .then(Flatten)
                .layer(|vb| Linear::new(8, 5, vb))?
                .build(),
        )
    };
    build().unwrap()
}

fn partial() -> Options {
    Options::default().fullgraph(false)
}

#[test]
fn inference_compiles_what_stands_around_a_layer() {
    let params = Params::f32_cpu();
    let model = net(&params, Swish::new);
    let (images, _) = batch([2, 3, 8, 8], 5);
    let compiled = compile(&model, &images, partial()).unwrap();
    let expected = model.forward_t(&images, false).unwrap();
    close(
        "logits",
        &compiled.forward(&images).unwrap(),
        &expected,
        1e-5,
    );
    // The layer's own parameter is read anew in every run.
    let slope = params.get("2.slope").unwrap().var;
    slope
        .set(&Tensor::new(&[-1.5f32], &Device::Cpu).unwrap())
        .unwrap();
    let expected = model.forward_t(&images, false).unwrap();
    close(
        "logits",
        &compiled.forward(&images).unwrap(),
        &expected,
        1e-5,
    );
    let metrics = compiled.metrics();
    assert_eq!((metrics.fallbacks, metrics.recompiles), (3, 0));
    assert!(metrics.kernels > 3, "{metrics:?}");

    let refused = match compile(&model, &images, Options::default()) {
        Ok(_) => panic!("compiled a broken graph"),
        Err(error) => error.to_string(),
    };
    assert!(refused.contains("write instead"), "{refused}");
}

#[test]
fn values_that_are_read_behind_the_tape_are_no_constants() {
    let params = Params::f32_cpu();
    let model = net(&params, |_| Ok(Largest));
    let (images, _) = batch([2, 3, 8, 8], 5);
    let compiled = compile(&model, &images, partial()).unwrap();
    for factor in [1.0, 3.0, -2.0] {
        let images = (&images * factor).unwrap();
        let expected = model.forward_t(&images, false).unwrap();
        close(
            "logits",
            &compiled.forward(&images).unwrap(),
            &expected,
            1e-5,
        );
    }
    assert_eq!(compiled.metrics().fallbacks, 4);
}

/// A compiled step beside the tape: loss, outputs, every gradient, the buffers; one opaque module.
fn compare_step(params: &Params, model: &Sequential) {
    let (images, labels) = batch([4, 3, 8, 8], 5);
    let forward = |images: &Tensor, labels: &Tensor| {
        let outputs = model.forward_t(images, true)?;
        let loss = ops::cross_entropy(&outputs, labels, &CrossEntropyConfig::default())?;
        Ok((loss, outputs))
    };
    let before = params.to_tensors().unwrap();
    rng::begin_step(7, 3);
    let eager = eager_step(&images, &labels, &forward);
    let buffers = params.to_tensors().unwrap();
    let mut compiler = StepCompiler::new(partial()).unwrap();
    for _ in 0..2 {
        params.load_tensors(&before, Strict::Yes).unwrap();
        rng::begin_step(7, 3);
        let step = compiler.run(params, &images, &labels, &forward).unwrap();
        assert!(
            (f64::from(step.loss) - eager.loss).abs() < 1e-5,
            "{}",
            step.loss
        );
        close("outputs", &step.outputs, &eager.outputs, 1e-5);
        for (name, var) in params.trainable() {
            let found = step.gradients.get(&var);
            let found = found.unwrap_or_else(|| panic!("{name} has no gradient"));
            // A bias before a batch norm has no gradient but rounding errors.
            close_at(&name, found, eager.gradients.get(&var).unwrap(), 1e-5, 1e-2);
        }
        for (name, after) in params.to_tensors().unwrap() {
            close(&name, &after, &buffers[&name], 1e-5);
        }
    }
    assert_eq!(compiler.metrics().fallbacks, 2);
    let explanation = explain_step(params, &images, &labels, forward, &partial()).unwrap();
    assert_eq!((explanation.graphs, explanation.opaque.len()), (1, 1));
}

#[test]
fn training_takes_a_layers_gradients_from_the_tape() {
    let params = Params::f32_cpu();
    let model = net(&params, Swish::new);
    compare_step(&params, &model);
}

#[test]
fn a_layer_draws_what_it_draws_eagerly() {
    let params = Params::f32_cpu();
    let model = net(&params, |_| Ok(RawDropout(Dropout::new(0.5)?)));
    compare_step(&params, &model);
}

#[test]
fn the_first_layer_learns_though_its_input_needs_no_gradient() {
    let params = Params::f32_cpu();
    let build = || {
        Ok::<_, candle_core::Error>(
            Sequential::builder(params.builder())
                .layer(Swish::new)?
                .layer(|vb| conv(3, 4, vb))?
                .then(AdaptiveAvgPool2d::new(1))
                .then(Flatten)
                .layer(|vb| Linear::new(4, 5, vb))?
                .build(),
        )
    };
    compare_step(&params, &build().unwrap());
}

#[test]
fn a_chain_with_a_raw_operation_between_its_layers_is_one_module() {
    /// Two layers, and a raw operation of its own between them.
    struct Pair(Layer, Layer);
    impl ModuleT for Pair {
        fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
            let xs = self.0.forward_t(xs, train)?.sqr()?;
            self.1.forward_t(&xs, train)
        }
    }
    let params = Params::f32_cpu();
    let model = net(&params, |vb| {
        Ok(Pair(
            Layer::new(conv(8, 8, vb.pp("a"))?),
            Layer::new(conv(8, 8, vb.pp("b"))?),
        ))
    });
    compare_step(&params, &model);
}

#[test]
fn a_break_outside_all_layers_runs_the_whole_model() {
    struct Root(Layer, Var);
    impl ModuleT for Root {
        fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
            ops::linear(&self.0.forward_t(xs, train)?.exp()?, &self.1, None)
        }
    }
    let weight = Var::new(&[[1f32, -2.0]], &Device::Cpu).unwrap();
    let model = Root(Layer::new(Activation::Relu), weight);
    let xs = Tensor::new(&[[1f32, 2.0]], &Device::Cpu).unwrap();
    let compiled = compile(&model, &xs, partial()).unwrap();
    let expected = model.forward_t(&xs, false).unwrap();
    close("logits", &compiled.forward(&xs).unwrap(), &expected, 0.0);
    assert_eq!(
        (compiled.metrics().fallbacks, compiled.metrics().kernels),
        (2, 0)
    );
}

#[test]
fn the_explanation_names_layer_and_remedy() {
    let params = Params::f32_cpu();
    let model = net(&params, Swish::new);
    let (images, _) = batch([2, 3, 8, 8], 5);
    let whole = explain(&model, &images, &Options::default()).unwrap();
    assert_eq!((whole.graphs, whole.breaks.len()), (0, 1));
    let explanation = explain(&model, &images, &partial()).unwrap();
    assert_eq!((explanation.graphs, explanation.breaks.len()), (1, 0));
    assert_eq!(explanation.opaque[0].module, "2");
    assert_eq!(explanation.operations["opaque"], 1);
    let text = explanation.to_string();
    assert!(
        text.contains("in module `2`") && text.contains("write instead"),
        "{text}"
    );
}
