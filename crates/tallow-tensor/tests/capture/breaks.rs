//! Raw candle operations between recorded ones: found, named, and with what to write instead.

use candle_core::{DType, Device, Result, Tensor};
use tallow_tensor::graph::TensorType;
use tallow_tensor::{Capture, Params, capture, capture_model, no_grad, ops, scope};

use crate::{NORMAL, Net, Outcome, breaks, image, operations, vector};

fn raw_relu_net() -> Result<(Params, Net)> {
    let params = Params::f32_cpu();
    let net = Net::new(params.builder(), Tensor::relu)?;
    Ok((params, net))
}

#[test]
fn breaks_are_found_without_a_tape_too() -> Outcome {
    let (params, net) = raw_relu_net()?;
    let example = image()?;
    let _guard = no_grad::enter();
    let captured = capture_model(&net, &example, false, Some(&params));
    assert_eq!(
        breaks(captured)[0].operation,
        "relu of %7 batch_norm in body.bn"
    );
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
