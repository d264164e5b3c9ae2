//! Graphs from runs of models: what is recorded, and what breaks it.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{Init, ModuleT, VarBuilder, VarMap};
use tallow_tensor::graph::{Graph, Op, TensorType};
use tallow_tensor::ops::{self, BatchNormArgs, Conv2dConfig, CrossEntropyConfig};
use tallow_tensor::{Break, Capture, Error, Params, capture, capture_model, params, rng, scope};

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

const NORMAL: Init = Init::Randn {
    mean: 0.0,
    stdev: 0.5,
};

/// Convolution, batch normalisation, `activation`, mean over positions, linear.
struct Net {
    conv: Tensor,
    scale: Tensor,
    shift: Tensor,
    mean: Tensor,
    var: Tensor,
    head: Tensor,
    activation: fn(&Tensor) -> Result<Tensor>,
}

impl Net {
    fn new(vb: VarBuilder<'_>, activation: fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        let bn = vb.pp("body.bn");
        Ok(Self {
            conv: vb
                .pp("body.conv")
                .get_with_hints((4, 3, 3, 3), "weight", NORMAL)?,
            scale: bn.get_with_hints(4, "weight", Init::Const(1.0))?,
            shift: bn.get_with_hints(4, "bias", NORMAL)?,
            mean: params::buffer(&bn, 4, "running_mean", 0.1)?,
            var: params::buffer(&bn, 4, "running_var", 1.0)?,
            head: vb.pp("head").get_with_hints((2, 4), "weight", NORMAL)?,
            activation,
        })
    }
}

impl ModuleT for Net {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let xs = {
            let _body = scope::enter("body");
            let xs = {
                let _conv = scope::enter("body.conv");
                let config = Conv2dConfig {
                    padding: [1, 1],
                    ..Default::default()
                };
                ops::conv2d(xs, &self.conv, None, &config)?
            };
            let xs = {
                let _bn = scope::enter("body.bn");
                let args = BatchNormArgs {
                    weight: &self.scale,
                    bias: &self.shift,
                    running_mean: &self.mean,
                    running_var: &self.var,
                    eps: 1e-5,
                    momentum: 0.1,
                };
                ops::batch_norm(&xs, &args, train)?
            };
            let xs = (self.activation)(&xs)?;
            let _pool = scope::enter("body.pool");
            ops::mean(&xs, &[2, 3], false)?
        };
        let _head = scope::enter("head");
        ops::linear(&xs, &self.head, None)
    }
}

fn image() -> Result<Tensor> {
    let values: Vec<f32> = (0..2 * 3 * 6 * 6)
        .map(|i| ((i * 37 % 101) as f32 - 50.0) / 25.0)
        .collect();
    Tensor::from_vec(values, (2, 3, 6, 6), &Device::Cpu)
}

fn vector(values: &[f32]) -> Result<Tensor> {
    Tensor::new(values, &Device::Cpu)
}

fn operations(graph: &Graph) -> Vec<&'static str> {
    let sources = |op: &Op| matches!(op, Op::Input(_) | Op::Param(_) | Op::Constant(_));
    let nodes = graph.nodes.iter().filter(|node| !sources(&node.op));
    nodes.map(|node| node.op.name()).collect()
}

fn breaks<T>(result: tallow_tensor::Result<T>) -> Vec<Break> {
    match result {
        Err(Error::GraphBreaks(breaks)) => breaks,
        Err(other) => panic!("not a graph break: {other}"),
        Ok(_) => Vec::new(),
    }
}

fn raw_relu_net() -> Result<(Params, Net)> {
    let params = Params::f32_cpu();
    let net = Net::new(params.builder(), Tensor::relu)?;
    Ok((params, net))
}

#[test]
fn a_model_of_operations_gives_its_graph() -> Outcome {
    let params = Params::f32_cpu();
    let net = Net::new(params.builder(), ops::relu)?;
    params.freeze("body.conv");
    let graph = capture_model(&net, &image()?, false, Some(&params))?;
    assert_eq!(
        graph.to_string(),
        r#"graph: 5 operations, 124 parameters, 16744 flops
%0: f32[2, 3, 6, 6] = input("x")
%1: f32[4, 3, 3, 3] = param("body.conv.weight", kind=Frozen)  @ body.conv
%2: f32[2, 4, 6, 6] = conv2d(%0, %1, padding=[1, 1])  @ body.conv
%3: f32[4] = param("body.bn.weight")  @ body.bn
%4: f32[4] = param("body.bn.bias")  @ body.bn
%5: f32[4] = param("body.bn.running_mean", kind=Buffer)  @ body.bn
%6: f32[4] = param("body.bn.running_var", kind=Buffer)  @ body.bn
%7: f32[2, 4, 6, 6] = batch_norm(%2, %3, %4, %5, %6, eps=1e-5)  @ body.bn
%8: f32[2, 4, 6, 6] = relu(%7)  @ body
%9: f32[2, 4] = mean(%8, dims=[2, 3])  @ body.pool
%10: f32[2, 4] = param("head.weight")  @ head
%11: f32[2, 2] = linear(%9, %10)  @ head
return %11"#
    );
    Ok(())
}

#[test]
fn without_params_variables_are_named_by_module_and_role() -> Outcome {
    let map = VarMap::new();
    let net = Net::new(
        VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu),
        ops::relu,
    )?;
    let graph = capture(|xs| net.forward_t(xs, false), &image()?)?;
    let names: Vec<&str> = graph
        .params()
        .map(|(_, param)| param.name.as_str())
        .collect();
    let expected = [
        "body.conv.weight",
        "body.bn.weight",
        "body.bn.bias",
        "body.bn.running_mean",
        "body.bn.running_var",
        "head.weight",
    ];
    assert_eq!(names, expected);
    Ok(())
}

#[test]
fn names_that_collide_are_numbered() -> Outcome {
    let (a, b) = (
        Var::new(&[1f32, 2.0], &Device::Cpu)?,
        Var::new(&[3f32, 4.0], &Device::Cpu)?,
    );
    let graph = capture(
        |xs| {
            let _scope = scope::enter("block");
            ops::mul(&ops::mul(xs, &a)?, &b)
        },
        &vector(&[1.0, 2.0])?,
    )?;
    let names: Vec<&str> = graph
        .params()
        .map(|(_, param)| param.name.as_str())
        .collect();
    assert_eq!(names, ["block.b", "block.b_2"]);
    Ok(())
}

#[test]
fn a_value_used_twice_is_one_node() -> Outcome {
    let weight = Var::new(&[[1f32, 2.0], [3.0, 4.0]], &Device::Cpu)?;
    let example = Tensor::ones((1, 2), DType::F32, &Device::Cpu)?;
    let graph = capture(
        |xs| {
            let once = ops::linear(xs, &weight, None)?;
            let twice = ops::linear(&once, &weight, None)?;
            ops::add(&twice, xs)
        },
        &example,
    )?;
    assert_eq!(graph.params().count(), 1);
    assert_eq!(operations(&graph), ["linear", "linear", "add"]);
    Ok(())
}

#[test]
fn a_training_capture_records_batch_statistics_and_leaves_the_model_as_it_was() -> Outcome {
    let params = Params::f32_cpu();
    let net = Net::new(params.builder(), ops::relu)?;
    rng::begin_step(9, 5);
    rng::next_draw();
    let (before, state) = (params.to_tensors()?, rng::state());
    let graph = capture_model(&net, &image()?, true, Some(&params))?;
    let training = graph
        .nodes
        .iter()
        .any(|node| matches!(&node.op, Op::BatchNorm(bn) if bn.train));
    assert!(training, "{graph}");
    assert_eq!(rng::state(), state);
    for (name, after) in params.to_tensors()? {
        let (before, after) = (&before[&name].flatten_all()?, after.flatten_all()?);
        assert_eq!(before.to_vec1::<f32>()?, after.to_vec1::<f32>()?, "{name}");
    }
    Ok(())
}

#[test]
fn buffers_are_kept_without_params_too() -> Outcome {
    let map = VarMap::new();
    let net = Net::new(
        VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu),
        ops::relu,
    )?;
    let before = net.mean.to_vec1::<f32>()?;
    capture_model(&net, &image()?, true, None)?;
    assert_eq!(net.mean.to_vec1::<f32>()?, before);
    net.forward_t(&image()?, true)?;
    assert_ne!(
        net.mean.to_vec1::<f32>()?,
        before,
        "outside a capture they are updated"
    );
    Ok(())
}

#[test]
fn a_model_with_its_loss_has_two_inputs() -> Outcome {
    let params = Params::f32_cpu();
    let net = Net::new(params.builder(), ops::relu)?;
    let targets = Tensor::new(&[0u32, 1], &Device::Cpu)?;
    let graph = Capture::new()
        .params(&params)
        .input("images", &image()?)
        .input("targets", &targets)
        .run(|inputs| {
            let logits = net.forward_t(&inputs[0], true)?;
            let loss = ops::cross_entropy(&logits, &inputs[1], &CrossEntropyConfig::default())?;
            Ok(vec![loss, logits])
        })?;
    assert_eq!(graph.inputs.len(), 2);
    let outputs: Vec<&TensorType> = graph
        .outputs
        .iter()
        .filter_map(|&id| graph.node(id))
        .map(|node| &node.output)
        .collect();
    assert_eq!(outputs, [&TensorType::f32([]), &TensorType::f32([2, 2])]);
    Ok(())
}

#[test]
fn a_raw_relu_is_named_with_module_operation_and_remedy() -> Outcome {
    let (params, net) = raw_relu_net()?;
    let found = breaks(capture_model(&net, &image()?, false, Some(&params)));
    assert_eq!(found.len(), 1, "{found:?}");
    let broken = &found[0];
    assert_eq!(broken.module, "body");
    assert_eq!(broken.operation, "relu of %7 batch_norm in body.bn");
    assert_eq!(broken.value, TensorType::f32([2, 4, 6, 6]));
    assert_eq!(broken.reader, "mean in body.pool, as x");
    assert_eq!(broken.after.as_deref(), Some("%7 batch_norm in body.bn"));
    assert_eq!(broken.remedy, "ops::relu(xs)");
    Ok(())
}

#[test]
fn the_error_reads_as_stored() -> Outcome {
    let (params, net) = raw_relu_net()?;
    let error = capture_model(&net, &image()?, false, Some(&params))
        .err()
        .ok_or("no error")?;
    assert_eq!(
        error.to_string(),
        "the model can't be captured whole: 1 graph break
1. in module `body`: relu of %7 batch_norm in body.bn gave f32[2, 4, 6, 6]
   read by: mean in body.pool, as x
   last recorded before: %7 batch_norm in body.bn
   why: candle made it from an input or a parameter, outside tallow_tensor::ops, so it was not recorded
   write instead: ops::relu(xs)"
    );
    Ok(())
}

#[test]
fn all_breaks_are_reported_at_once() -> Outcome {
    let found = breaks(capture(
        |xs| {
            let ys = ops::add_scalar(&xs.exp()?, 1.0)?;
            let ys = ops::mul_scalar(&ys.tanh()?, 2.0)?;
            ys.sqr()
        },
        &vector(&[0.5, -1.0, 2.0])?,
    ));
    let operations: Vec<&str> = found.iter().map(|b| b.operation.as_str()).collect();
    assert_eq!(
        operations,
        [
            "exp of %0 input",
            "tanh of %2 add_scalar",
            "sqr of %4 mul_scalar"
        ]
    );
    assert_eq!(found[2].reader, "the caller, as the model's result");
    Ok(())
}

#[test]
fn a_break_read_twice_is_one_break() -> Outcome {
    let found = breaks(capture(
        |xs| {
            let raw = xs.tanh()?;
            ops::add(&ops::relu(&raw)?, &raw)
        },
        &vector(&[0.5, -1.0])?,
    ));
    assert_eq!(found.len(), 1);
    Ok(())
}

#[test]
fn a_raw_operation_that_nobody_reads_is_no_break() -> Outcome {
    let graph = capture(
        |xs| {
            let _printed = xs.exp()?.sum_all()?.to_scalar::<f32>()?;
            ops::relu(xs)
        },
        &vector(&[0.5, -1.0])?,
    )?;
    assert_eq!(operations(&graph), ["relu"]);
    Ok(())
}

/// Raw operations on `[2, 3, 4]`, the name that the break must have, and what it must say to write.
type Row = (&'static str, &'static str, fn(&Tensor) -> Result<Tensor>);

#[test]
fn usual_raw_operations_are_recognised() -> Outcome {
    let rows: &[Row] = &[
        ("relu of", "ops::relu", |x| x.relu()),
        ("relu6 of", "ops::relu6", |x| x.clamp(0.0, 6.0)),
        ("gelu of", "ops::gelu(", |x| x.gelu_erf()),
        ("gelu_tanh of", "ops::gelu_tanh", |x| x.gelu()),
        ("silu of", "ops::silu", |x| x.silu()),
        ("sigmoid of", "ops::sigmoid", candle_nn::ops::sigmoid),
        ("hardswish of", "ops::hardswish", |x| {
            (x * (x + 3.0)?.clamp(0.0, 6.0)?)? / 6.0
        }),
        ("sqr of", "ops::mul(xs, xs)", |x| x.sqr()),
        (
            "arithmetic with numbers (x·-1.0000 + 0.0000)",
            "ops::mul_scalar",
            |x| x.neg(),
        ),
        (
            "arithmetic with numbers (x·2.0000 + 1.0000)",
            "ops::add_scalar",
            |x| x.affine(2.0, 1.0),
        ),
        ("reshape of", "ops::flatten", |x| x.flatten_all()),
        (
            "permute to [0, 2, 1] of",
            "ops::permute(xs, &[0, 2, 1])",
            |x| x.transpose(1, 2),
        ),
        ("softmax of", "ops::softmax(xs, 2)", |x| {
            candle_nn::ops::softmax(x, 2)
        }),
        ("log_softmax of", "ops::log_softmax(xs, 1)", |x| {
            candle_nn::ops::log_softmax(x, 1)
        }),
        ("mean of", "ops::mean(xs, &[1], false)", |x| x.mean(1)),
        ("sum of", "ops::sum(xs, &[0, 2], true)", |x| {
            x.sum_keepdim((0, 2))
        }),
        ("narrow of", "ops::slice(xs, 2, 1, 3)", |x| {
            x.narrow(2, 1, 2)
        }),
        ("narrow of", "ops::slice(xs, 1, 2, 3)", |x| {
            x.get_on_dim(1, 2)
        }),
        ("to_dtype of", "one element type", |x| {
            x.to_dtype(DType::F64)
        }),
        ("a copy of", "the value itself", |x| x.copy()),
        ("mul of", "ops::mul(a, b)", |x| x.mul(&x.tanh()?)),
    ];
    let values: Vec<f32> = (0..24).map(|i| ((i * 7 % 24) as f32 - 9.3) * 0.7).collect();
    let example = Tensor::from_vec(values, (2, 3, 4), &Device::Cpu)?;
    for (name, remedy, raw) in rows {
        let is_product = *name == "mul of";
        let found = breaks(capture(
            |xs| {
                if is_product {
                    // Both operands are recorded, their product is not.
                    return ops::relu(&xs.mul(&ops::tanh(xs)?)?);
                }
                ops::mul_scalar(&raw(xs)?, 2.0)
            },
            &example,
        ));
        assert_eq!(found.len(), 1, "{name}");
        assert!(
            found[0].operation.starts_with(name),
            "{name}: {:?}",
            found[0].operation
        );
        assert!(
            found[0].remedy.contains(remedy),
            "{remedy}: {:?}",
            found[0].remedy
        );
    }
    Ok(())
}

#[test]
fn an_unrecognised_operation_lists_candidates_that_give_its_shape() -> Outcome {
    let example = vector(&[0.5, -1.0, 2.0])?;
    let found = breaks(capture(
        |xs| ops::relu(&ops::relu(xs)?.sin()?.cos()?),
        &example,
    ));
    assert_eq!(found[0].operation, "a raw operation");
    assert!(found[0].remedy.contains("hardswish"), "{}", found[0].remedy);
    Ok(())
}

#[test]
fn a_raw_operation_on_a_parameter_is_a_break() -> Outcome {
    let params = Params::f32_cpu();
    let weight = params
        .builder()
        .pp("fc")
        .get_with_hints((2, 3), "weight", NORMAL)?;
    let example = Tensor::ones((1, 2), DType::F32, &Device::Cpu)?;
    let found = breaks(
        Capture::new()
            .params(&params)
            .input("x", &example)
            .run(|inputs| {
                let _fc = scope::enter("fc");
                Ok(vec![ops::matmul(&inputs[0], &weight.sqr()?)?])
            }),
    );
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].operation, "sqr of parameter fc.weight");
    assert_eq!(found[0].reader, "matmul in fc, as b");
    Ok(())
}

#[test]
fn a_value_that_follows_from_nothing_is_a_constant() -> Outcome {
    let graph = capture(
        |xs| {
            let mask = vector(&[1.0, 0.0, 1.0])?;
            ops::mul(xs, &mask)
        },
        &vector(&[1.0, 2.0, 3.0])?,
    )?;
    let literal = graph.nodes.iter().find_map(|node| match &node.op {
        Op::Constant(constant) => Some(constant.value.clone()),
        _ => None,
    });
    let expected = tallow_tensor::graph::op::Literal::from_f32([3], &[1.0, 0.0, 1.0]);
    assert_eq!(literal, Some(expected));
    Ok(())
}

#[test]
fn constants_keep_their_order_whatever_their_layout() -> Outcome {
    let table = Tensor::new(&[[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]], &Device::Cpu)?;
    let example = Tensor::ones((3, 2), DType::F32, &Device::Cpu)?;
    let graph = capture(|xs| ops::add(xs, &table.t()?), &example)?;
    let text: Vec<f32> = graph
        .nodes
        .iter()
        .filter_map(|node| match &node.op {
            Op::Constant(constant) => Some(constant.value.bytes.clone()),
            _ => None,
        })
        .flat_map(|bytes| {
            let values = bytes
                .chunks(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            values.collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(text, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    Ok(())
}

#[test]
fn a_detached_value_is_found_by_the_second_run() -> Outcome {
    let example = vector(&[0.5, -1.0])?;
    let found = breaks(capture(
        |xs| ops::mul(xs, &ops::relu(xs)?.detach()),
        &example,
    ));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].operation, "detach of %1 relu");
    assert!(
        found[0].reason.contains("changes with the input"),
        "{}",
        found[0].reason
    );
    Ok(())
}

#[test]
fn a_value_read_off_the_tape_is_found_by_the_second_run() -> Outcome {
    let example = vector(&[0.5, -1.0, 3.0])?;
    let found = breaks(capture(
        |xs| {
            let greatest = xs.to_vec1::<f32>()?.into_iter().fold(f32::MIN, f32::max);
            ops::div(xs, &vector(&[greatest])?)
        },
        &example,
    ));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].reader, "div, as b");
    Ok(())
}

#[test]
fn an_example_of_zeros_is_no_excuse() -> Outcome {
    let example = Tensor::zeros(4, DType::F32, &Device::Cpu)?;
    let found = breaks(capture(|xs| ops::add(xs, &xs.detach()), &example));
    assert_eq!(found.len(), 1);
    Ok(())
}

#[test]
fn a_value_that_follows_from_integers_is_found_too() -> Outcome {
    let ids = Tensor::new(&[0u32, 2, 1], &Device::Cpu)?;
    let table = Var::new(&[[1f32, 2.0], [3.0, 4.0], [5.0, 6.0]], &Device::Cpu)?;
    let found = breaks(capture(
        |ids| {
            let rows = ops::embedding(ids, &table)?;
            let mask = ids
                .to_vec1::<u32>()?
                .iter()
                .map(|&i| i as f32)
                .collect::<Vec<_>>();
            ops::mul(&rows, &Tensor::from_vec(mask, (3, 1), &Device::Cpu)?)
        },
        &ids,
    ));
    assert_eq!(found.len(), 1);
    Ok(())
}

#[test]
fn a_value_that_follows_from_a_parameter_behind_the_tape_is_found_by_the_third_run() -> Outcome {
    let params = Params::f32_cpu();
    let weight = params.builder().get_with_hints(3, "weight", NORMAL)?;
    let before = weight.to_vec1::<f32>()?;
    let found = breaks(capture_model(
        &candle_nn::func_t(move |xs, _| {
            let norm = weight.detach().sqr()?.sum_all()?;
            ops::div(&ops::mul(xs, &weight)?, &norm)
        }),
        &vector(&[1.0, 2.0, 3.0])?,
        false,
        Some(&params),
    ));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].reason.contains("changes with a parameter"),
        "{}",
        found[0].reason
    );
    let after = params.get("weight").ok_or("gone")?.var.to_vec1::<f32>()?;
    assert_eq!(after, before, "the parameter is put back");
    Ok(())
}

#[test]
fn a_branch_on_elements_is_found_by_the_second_run() -> Outcome {
    let example = Tensor::zeros(64, DType::F32, &Device::Cpu)?;
    let found = breaks(capture(
        |xs| {
            let any = xs.abs()?.sum_all()?.to_scalar::<f32>()? > 0.0;
            if any { ops::relu(xs) } else { ops::tanh(xs) }
        },
        &example,
    ));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].operation, "a branch on a value");
    assert!(
        found[0].reason.contains("relu here, not tanh"),
        "{}",
        found[0].reason
    );
    Ok(())
}

#[test]
fn a_variable_made_anew_in_each_run_is_no_parameter() -> Outcome {
    let found = breaks(capture(
        |xs| ops::relu(Var::from_tensor(&ops::tanh(xs)?)?.as_tensor()),
        &vector(&[0.5, -1.0])?,
    ));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].operation, "Var::from_tensor");
    Ok(())
}

#[test]
fn a_capture_inside_a_capture_is_an_error() -> Outcome {
    let example = vector(&[1.0])?;
    let mut inner = None;
    capture(
        |xs| {
            inner = capture(ops::relu, xs).err();
            ops::relu(xs)
        },
        &example,
    )?;
    assert!(matches!(inner, Some(Error::NestedCapture)));
    Ok(())
}

#[test]
fn a_failing_or_panicking_model_leaves_no_recorder_behind() -> Outcome {
    let example = vector(&[1.0])?;
    let failed = capture(|_| candle_core::bail!("broken on purpose"), &example);
    assert!(failed.is_err_and(|e| e.to_string().contains("broken on purpose")));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        capture(|_| panic!("on purpose"), &example)
    }));
    assert!(panicked.is_err());
    assert!(!tallow_tensor::record::is_active());
    assert_eq!(operations(&capture(ops::relu, &example)?), ["relu"]);
    Ok(())
}

#[test]
fn recording_can_be_paused() -> Outcome {
    let graph = capture(
        |xs| {
            let pause = tallow_tensor::record::pause();
            let _ignored = ops::relu(xs)?;
            drop(pause);
            ops::tanh(xs)
        },
        &vector(&[1.0])?,
    )?;
    assert_eq!(operations(&graph), ["tanh"]);
    Ok(())
}

#[test]
fn a_model_that_gives_its_input_back_is_a_graph() -> Outcome {
    let graph = capture(|xs| Ok(xs.clone()), &vector(&[1.0])?)?;
    assert_eq!(graph.outputs, graph.inputs);
    Ok(())
}

#[test]
fn two_inputs_of_one_name_are_an_error() -> Outcome {
    let x = vector(&[1.0])?;
    let result = Capture::new()
        .input("x", &x)
        .input("x", &x)
        .run(|inputs| Ok(vec![ops::add(&inputs[0], &inputs[1])?]));
    assert!(result.is_err_and(|e| e.to_string().contains("named `x`")));
    Ok(())
}
