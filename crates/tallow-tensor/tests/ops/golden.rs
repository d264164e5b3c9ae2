//! One driver for many rows: a named operation against the numbers of `tests/golden/ops.py`.
//!
//! Each case is run against PyTorch's f64 outputs and gradients, in f64 and in f32 (the kernels), on contiguous inputs
//! and on others, and in f64 against central differences of its own outputs.

use candle_core::{DType, Device, Result, Tensor, Var};
use std::collections::HashMap;
use std::path::Path;
use std::sync::LazyLock;

/// A row: the name in the golden file and the call.
pub(crate) struct Case {
    name: &'static str,
    run: fn(&[Tensor]) -> Result<Tensor>,
    differences: bool,
}

/// A case whose output is smooth near its inputs.
pub(crate) const fn case(name: &'static str, run: fn(&[Tensor]) -> Result<Tensor>) -> Case {
    Case {
        name,
        run,
        differences: true,
    }
}

/// A case with a kink or a tie at its inputs, where differences say nothing; PyTorch's gradient decides.
pub(crate) const fn kinked(name: &'static str, run: fn(&[Tensor]) -> Result<Tensor>) -> Case {
    Case {
        name,
        run,
        differences: false,
    }
}

static FILE: LazyLock<HashMap<String, Tensor>> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/ops.safetensors");
    candle_core::safetensors::load(path, &Device::Cpu)
        .expect("the golden file is part of the crate")
});

fn stored(case: &Case, what: &str) -> Option<Tensor> {
    FILE.get(&format!("{}/{what}", case.name)).cloned()
}

fn inputs(case: &Case) -> Vec<Tensor> {
    let inputs: Vec<Tensor> = (0..)
        .map_while(|i| stored(case, &format!("in{i}")))
        .collect();
    assert!(
        !inputs.is_empty(),
        "{} is not in the golden file",
        case.name
    );
    inputs
}

/// Runs every case in all these ways.
pub(crate) fn check_all(cases: &[Case]) {
    for case in cases {
        agrees_with_pytorch(case, DType::F64, 1e-9, Layout::Contiguous);
        agrees_with_pytorch(case, DType::F64, 1e-9, Layout::Strided);
        if case.differences {
            agrees_with_differences(case);
        }
        agrees_with_pytorch(case, DType::F32, 2e-5, Layout::Contiguous);
        agrees_with_pytorch(case, DType::F32, 2e-5, Layout::Strided);
    }
}

#[derive(Clone, Copy)]
enum Layout {
    Contiguous,
    Strided,
}

fn agrees_with_pytorch(case: &Case, dtype: DType, tolerance: f64, layout: Layout) {
    let vars: Vec<Var> = inputs(case)
        .iter()
        .map(|input| variable(input, dtype).expect("a plain conversion"))
        .collect();
    let args: Vec<Tensor> = vars
        .iter()
        .map(|var| arrange(var, layout).expect("a plain copy"))
        .collect();
    let out = (case.run)(&args).unwrap_or_else(|e| panic!("{} in {dtype:?}: {e}", case.name));
    assert_eq!(out.dtype(), dtype, "{}", case.name);
    let what = |part: &str| format!("{} {part} in {dtype:?}", case.name);
    close(
        &out,
        &stored(case, "out").expect("stored"),
        tolerance,
        &what("out"),
    );

    let weights = stored(case, "weights").expect("stored");
    let weights = weights.to_dtype(dtype).expect("a plain conversion");
    let loss = out
        .mul(&weights)
        .and_then(|l| l.sum_all())
        .expect("equal shapes");
    let grads = loss
        .backward()
        .unwrap_or_else(|e| panic!("{}: {e}", case.name));
    for (i, var) in vars.iter().enumerate() {
        let Some(expected) = stored(case, &format!("grad{i}")) else {
            continue;
        };
        let part = what(&format!("gradient of input {i}"));
        let found = grads
            .get(var)
            .unwrap_or_else(|| panic!("{part} is missing"));
        close(found, &expected, tolerance, &part);
    }
}

fn variable(input: &Tensor, dtype: DType) -> Result<Var> {
    if input.dtype().is_float() {
        Var::from_tensor(&input.to_dtype(dtype)?)
    } else {
        Var::from_tensor(input)
    }
}

/// The same values, through memory in another order; the tape leads back to the variable.
fn arrange(var: &Var, layout: Layout) -> Result<Tensor> {
    let rank = var.rank();
    match layout {
        Layout::Strided if rank >= 2 => {
            let swapped = var.transpose(0, rank - 1)?.contiguous()?;
            swapped.transpose(0, rank - 1)
        }
        // A vector with a gap before it and between its elements.
        Layout::Strided if rank == 1 => {
            let pairs = Tensor::stack(&[var.as_tensor(), var.as_tensor()], 1)?;
            pairs.narrow(1, 1, 1)?.squeeze(1)
        }
        _ => Ok(var.as_tensor().clone()),
    }
}

/// Largest difference relative to the largest expected value (or 1).
pub(crate) fn close(found: &Tensor, expected: &Tensor, tolerance: f64, what: &str) {
    assert_eq!(found.dims(), expected.dims(), "{what}");
    let (found, expected) = (flat(found), flat(expected));
    let scale = expected.iter().fold(1f64, |max, v| max.max(v.abs()));
    for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
        assert!(
            (f - e).abs() <= tolerance * scale,
            "{what}: element {i} is {f}, expected {e}"
        );
    }
}

pub(crate) fn flat(tensor: &Tensor) -> Vec<f64> {
    let values = tensor.flatten_all().and_then(|t| t.to_dtype(DType::F64));
    values.and_then(|t| t.to_vec1()).expect("numbers")
}

fn agrees_with_differences(case: &Case) {
    let inputs = inputs(case);
    let weights = flat(&stored(case, "weights").expect("stored"));
    for i in 0..inputs.len() {
        let Some(expected) = stored(case, &format!("grad{i}")) else {
            continue;
        };
        let expected = flat(&expected);
        let scale = expected.iter().fold(1f64, |max, v| max.max(v.abs()));
        // A few dozen elements, spread over the input, say as much as all.
        let stride = expected.len().div_ceil(40);
        for element in (0..expected.len()).step_by(stride) {
            let slope = central_difference(case, &inputs, &weights, i, element);
            assert!(
                (slope - expected[element]).abs() <= 2e-6 * scale,
                "{}: input {i}, element {element}: slope {slope}, gradient {}",
                case.name,
                expected[element]
            );
        }
    }
}

fn central_difference(
    case: &Case,
    inputs: &[Tensor],
    weights: &[f64],
    input: usize,
    element: usize,
) -> f64 {
    let step = 1e-5;
    let loss = |shift: f64| -> f64 {
        let mut moved: Vec<Tensor> = inputs
            .iter()
            .map(|t| Var::from_tensor(t).expect("a copy").into_inner())
            .collect();
        let mut values = flat(&inputs[input]);
        values[element] += shift;
        moved[input] =
            Tensor::from_vec(values, inputs[input].dims(), &Device::Cpu).expect("its shape");
        let out = flat(&(case.run)(&moved).expect("it ran before"));
        out.iter().zip(weights).map(|(o, w)| o * w).sum()
    };
    (loss(step) - loss(-step)) / (2. * step)
}

#[test]
fn every_stored_case_is_run() {
    let run: Vec<&str> = [
        super::activation::CASES,
        super::arithmetic::CASES,
        super::convolution::CASES,
        super::loss::CASES,
        super::normalization::CASES,
        super::pooling::CASES,
        super::product::CASES,
        super::shape::CASES,
    ]
    .iter()
    .flat_map(|cases| cases.iter().map(|case| case.name))
    .collect();
    let mut missing: Vec<&str> = FILE
        .keys()
        .filter_map(|key| key.strip_suffix("/out"))
        .filter(|name| !run.contains(name))
        .collect();
    missing.sort_unstable();
    assert!(missing.is_empty(), "stored but not run: {missing:?}");
}
