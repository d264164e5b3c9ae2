//! What a graph says of the run that it comes from, and that the run leaves no trace on the model.

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{ModuleT, VarBuilder, VarMap};
use tallow_tensor::graph::{Op, TensorType};
use tallow_tensor::ops::{self, CrossEntropyConfig};
use tallow_tensor::{Capture, Error, Params, capture, capture_model, rng, scope};

use crate::{Net, Outcome, image, operations, vector};

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
fn dropout_is_recorded_with_its_draw_and_only_in_training() -> Outcome {
    let example = Tensor::ones((4, 8), DType::F32, &Device::Cpu)?;
    let model = candle_nn::func_t(|xs, train| {
        let xs = ops::dropout(xs, 0.25, train)?;
        let xs = ops::drop_path(&xs, 0.5, train)?;
        ops::dropout(&xs, 0.125, train)
    });
    rng::begin_step(3, 8);
    rng::next_draw();
    let state = rng::state();
    let training = capture_model(&model, &example, true, None)?;
    assert_eq!(rng::state(), state);
    let lines: Vec<String> = training.nodes.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines[1..],
        [
            "%1: f32[4, 8] = dropout(%0, p=0.25, draw=0)",
            "%2: f32[4, 8] = drop_path(%1, p=0.5, draw=1)",
            "%3: f32[4, 8] = dropout(%2, p=0.125, draw=2)",
        ]
    );
    assert!(operations(&capture_model(&model, &example, false, None)?).is_empty());
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
