//! ONNX files as they are written, in the eyes of onnx's checker, of onnxruntime, and of our own reader.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use candle_core::{DType, Device, Tensor};
use candle_nn::ModuleT;
use common::{Case, difference, models, noise};
use tallow_compile::Options;
use tallow_export::{FreezeOptions, Program, onnx};
use tallow_graph::op::{Conv2d, FakeQuantize, Input, Interpolation, Param, ParamKind, Quantized};
use tallow_graph::{Graph, NodeId, Op, TensorType};
use tallow_tensor::Params;
use tallow_tensor::ops::{self, Pool2dConfig};
use tallow_tensor::params::write_tensors;

fn frozen(case: &Case) -> Program {
    let options = FreezeOptions::new().params(&case.params);
    options.freeze(&case.model, &case.example).unwrap()
}

/// The Python with onnx and onnxruntime that `TALLOW_PYTHON` names, if it does.
fn python() -> Option<std::path::PathBuf> {
    let python = std::path::PathBuf::from(std::env::var_os("TALLOW_PYTHON")?);
    let has = Command::new(&python)
        .args(["-c", "import onnx, onnxruntime"])
        .output();
    has.is_ok_and(|output| output.status.success())
        .then_some(python)
}

/// Checks and runs every model of a folder with onnxruntime.
fn check(folder: &Path, count: usize) {
    let Some(python) = python() else {
        eprintln!("skipped: TALLOW_PYTHON names no Python with onnx and onnxruntime");
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx/run_models.py");
    let output = Command::new(python)
        .arg(script)
        .arg(folder)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert_eq!(stdout.lines().count(), count, "{stdout}");
    for line in stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let numbers: Vec<f64> = words[1..]
            .iter()
            .map(|word| word.parse().unwrap())
            .collect();
        assert!(numbers[0] <= 1e-5 * numbers[1].max(1.0), "{line}");
        eprintln!("onnxruntime: {line}");
    }
}

fn store(folder: &Path, name: &str, program: &Program, input: &Tensor, output: &Tensor) {
    onnx::write(program, folder.join(format!("{name}.onnx"))).unwrap();
    for (what, tensor) in [("input", input), ("output", output)] {
        let path = folder.join(format!("{name}.{what}.npy"));
        tensor.detach().write_npy(path).unwrap();
    }
}

#[test]
fn onnxruntime_gives_what_every_model_gives() {
    let folder = tempfile::tempdir().unwrap();
    let cases = models();
    for case in &cases {
        let expected = case.model.forward_t(&case.example, false).unwrap();
        store(
            folder.path(),
            case.name,
            &frozen(case),
            &case.example,
            &expected,
        );
    }
    check(folder.path(), cases.len());
}

#[test]
fn what_is_written_can_be_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for case in models() {
        let path = folder.path().join("model.onnx");
        let program = frozen(&case);
        onnx::write(&program, &path).unwrap();
        let again = onnx::read(&path, &[]).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let names = |program: &Program| -> Vec<String> {
            let mut names: Vec<String> = program.weight_names().map(str::to_string).collect();
            names.retain(|name| !name.contains('/') && !name.starts_with("constant"));
            names.sort();
            names
        };
        assert_eq!(names(&again), names(&program), "{}", case.name);
        let options = Options::default().winograd(false);
        let runner = again.compile(options).unwrap();
        let expected = case.model.forward_t(&case.example, false).unwrap();
        let worst = difference(&runner.forward(&case.example).unwrap(), &expected);
        assert!(worst <= 1e-5, "{}: {worst:e}", case.name);
    }
}

type Run = fn(&Tensor) -> candle_core::Result<Tensor>;

fn pool(kernel: usize, stride: usize, padding: usize, ceil_mode: bool) -> Pool2dConfig {
    Pool2dConfig {
        stride: [stride; 2],
        padding: [padding; 2],
        ceil_mode,
        ..Pool2dConfig::new(kernel)
    }
}

/// Operations that no model has, or in forms that none has.
const OPERATIONS: &[(&str, [usize; 4], Run)] = &[
    ("hardswish", [2, 4, 5, 7], ops::hardswish),
    ("silu", [2, 4, 5, 7], ops::silu),
    ("gelu_tanh", [2, 4, 5, 7], ops::gelu_tanh),
    ("add_scalar", [2, 4, 5, 7], |x| ops::add_scalar(x, -0.25)),
    ("div", [2, 4, 5, 7], |x| {
        ops::div(x, &Tensor::full(3f32, (4, 1, 1), &Device::Cpu)?)
    }),
    ("expand", [2, 4, 1, 7], |x| ops::expand(x, &[2, 4, 3, 7])),
    ("sum", [2, 4, 5, 7], |x| ops::sum(x, &[1, 3], true)),
    ("log_softmax", [2, 4, 5, 7], |x| ops::log_softmax(x, 1)),
    ("group_norm", [2, 4, 5, 7], |x| {
        let weight = Tensor::arange(1f32, 5., &Device::Cpu)?;
        ops::group_norm(x, &weight, &(&weight * 0.5)?, 2, 1e-5)
    }),
    ("conv_dilated", [2, 4, 9, 9], |x| {
        let weight = noise(&[6, 2, 3, 3], 5);
        let conv = Conv2d {
            stride: [2, 1],
            padding: [2, 1],
            dilation: [2, 1],
            groups: 2,
        };
        ops::conv2d(x, &weight, None, &conv)
    }),
    ("max_pool_ceil", [2, 4, 8, 7], |x| {
        ops::max_pool2d(x, &pool(3, 2, 0, true))
    }),
    ("max_pool_padded", [2, 4, 8, 7], |x| {
        ops::max_pool2d(x, &pool(3, 2, 1, false))
    }),
    ("avg_pool", [2, 4, 8, 7], |x| {
        ops::avg_pool2d(x, &pool(3, 2, 1, false), true)
    }),
    ("avg_pool_ceil", [2, 4, 8, 7], |x| {
        ops::avg_pool2d(x, &pool(3, 2, 1, true), false)
    }),
    ("adaptive_avg", [2, 4, 8, 7], |x| {
        ops::adaptive_avg_pool2d(x, [3, 5])
    }),
    ("adaptive_max", [2, 4, 8, 7], |x| {
        ops::adaptive_max_pool2d(x, [3, 5])
    }),
    ("adaptive_max_even", [2, 4, 8, 6], |x| {
        ops::adaptive_max_pool2d(x, [2, 3])
    }),
    ("nearest", [2, 4, 5, 7], |x| {
        ops::interpolate(x, [10, 3], Interpolation::Nearest)
    }),
    ("bilinear", [2, 4, 5, 7], |x| {
        ops::interpolate(
            x,
            [8, 9],
            Interpolation::Bilinear {
                align_corners: false,
            },
        )
    }),
    ("bilinear_aligned", [2, 4, 5, 7], |x| {
        ops::interpolate(
            x,
            [8, 9],
            Interpolation::Bilinear {
                align_corners: true,
            },
        )
    }),
];

#[test]
fn onnxruntime_gives_what_other_operations_give() {
    let folder = tempfile::tempdir().unwrap();
    for &(name, shape, run) in OPERATIONS {
        let model = candle_nn::func_t(move |xs, _| run(xs));
        let xs = noise(&shape, 3);
        let program = FreezeOptions::new().freeze(&model, &xs).unwrap();
        store(folder.path(), name, &program, &xs, &run(&xs).unwrap());
        // Ours reads all but the one without an operation for it.
        let read = onnx::read(folder.path().join(format!("{name}.onnx")), &[]);
        match read {
            Ok(program) => {
                let runner = program.compile(Options::default().winograd(false)).unwrap();
                let found = runner.forward(&xs).unwrap();
                let worst = difference(&found, &run(&xs).unwrap());
                assert!(worst <= 1e-5, "{name}: {worst:e}");
            }
            Err(error) => {
                assert_eq!(name, "adaptive_max", "{error}");
                assert!(error.to_string().contains("ReduceMax"), "{error}");
            }
        }
    }
    check(folder.path(), OPERATIONS.len());
}

#[test]
fn what_onnx_has_no_word_for_is_refused() {
    let model = candle_nn::func_t(|xs, _| ops::avg_pool2d(xs, &pool(3, 2, 1, true), true));
    let program = FreezeOptions::new()
        .freeze(&model, &noise(&[1, 2, 8, 7], 1))
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = onnx::write(&program, folder.path().join("model.onnx")).unwrap_err();
    assert!(error.to_string().contains("AveragePool"), "{error}");
    assert!(!folder.path().join("model.onnx").exists());
}

#[test]
fn names_survive_even_where_they_clash() {
    let params = Params::new(1, DType::F32, &Device::Cpu);
    let weight = params.builder().get((3, 3), "x").unwrap();
    let model = candle_nn::func_t(move |xs, _| {
        let ys = ops::matmul(xs, &weight)?;
        ops::add(&ys, xs)
    });
    let xs = noise(&[3, 3], 1);
    let options = FreezeOptions::new().params(&params);
    let program = options.freeze(&model, &xs).unwrap();
    let folder = tempfile::tempdir().unwrap();
    store(
        folder.path(),
        "clash",
        &program,
        &xs,
        &model.forward_t(&xs, false).unwrap(),
    );
    check(folder.path(), 1);
}

/// A convolution of quantized values, from a file, since no model of ours is one.
fn quantized(folder: &Path) -> Program {
    let mut graph = Graph::default();
    let mut push = |op: Op, inputs: &[NodeId]| graph.push(op, inputs, "conv").unwrap();
    let ty = TensorType::f32([1, 2, 6, 6]);
    let name = "x".to_string();
    let x = push(Op::Input(Input { name, ty }), &[]);
    let activations = Quantized {
        scale: 0.02,
        zero_point: 100,
    };
    let x = push(
        Op::FakeQuantize(FakeQuantize::activations(activations)),
        &[x],
    );
    let ty = TensorType::f32([3, 2, 3, 3]);
    let param = Param {
        name: "conv.weight".into(),
        ty,
        kind: ParamKind::Frozen,
    };
    let weight = push(Op::Param(param), &[]);
    let weights = FakeQuantize::weights(vec![0.01, 0.02, 0.03]);
    let weight = push(Op::FakeQuantize(weights), &[weight]);
    let y = push(Op::Conv2d(Conv2d::default()), &[x, weight]);
    graph.outputs.push(y);

    let path = folder.join("quantized.safetensors");
    let json = serde_json::json!({ "version": 1, "graphs": [graph] }).to_string();
    let metadata = BTreeMap::from([("tallow.program".to_string(), json)]);
    let weight = (noise(&[3, 2, 3, 3], 5) * 0.5).unwrap();
    write_tensors(&path, [("conv.weight", &weight)], &metadata).unwrap();
    Program::load(path).unwrap()
}

#[test]
fn quantized_values_are_written_as_whole_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let program = quantized(folder.path());
    let xs = noise(&[1, 2, 6, 6], 7);
    let runner = program.compile(Options::default().winograd(false)).unwrap();
    let expected = runner.forward(&xs).unwrap();
    store(folder.path(), "quantized", &program, &xs, &expected);
    check(folder.path(), 1);
    let bytes = std::fs::read(folder.path().join("quantized.onnx")).unwrap();
    let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    assert!(has(b"QuantizeLinear") && has(b"conv.weight"));
    // 54 weights as bytes, not as floats.
    assert!(bytes.len() < 1500, "{} bytes", bytes.len());
}
