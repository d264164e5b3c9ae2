//! Values that candle's tape doesn't show: constants, and what only looks like one.

use candle_core::{DType, Device, Tensor, Var};
use tallow_tensor::graph::Op;
use tallow_tensor::{Params, capture, capture_model, ops};

use crate::{NORMAL, Outcome, breaks, vector};

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
