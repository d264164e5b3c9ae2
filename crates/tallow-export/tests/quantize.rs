//! Quantized programs: equal to their roundings in floats, close to what they were made of, the same in onnxruntime.

mod common;

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use candle_core::Tensor;
use common::{Case, models, noise};
use tallow_compile::{CompiledGraph, Options, interpret};
use tallow_export::{
    Calibration, FreezeOptions, Program, Quantization, QuantizeOptions, Runner, onnx, quantize,
};
use tallow_graph::Op;

/// The networks with convolutions.
fn networks() -> Vec<Case> {
    let convolutions = [
        "lenet",
        "simple_cifar",
        "alexnet",
        "resnet18_cifar",
        "resnet50",
    ];
    models()
        .into_iter()
        .filter(|case| convolutions.contains(&case.name))
        .collect()
}

fn frozen(case: &Case) -> Program {
    let options = FreezeOptions::new().params(&case.params);
    options.freeze(&case.model, &case.example).unwrap()
}

fn quantized(case: &Case) -> Quantization {
    let program = frozen(case);
    quantize(
        &program,
        std::slice::from_ref(&case.example),
        &QuantizeOptions::new(),
    )
    .unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// The largest difference, as a share of the largest value.
fn difference(found: &Tensor, expected: &Tensor) -> f32 {
    let (found, expected) = (values(found), values(expected));
    assert_eq!(found.len(), expected.len());
    let largest = expected
        .iter()
        .fold(0f32, |most, value| most.max(value.abs()));
    let pairs = found.iter().zip(&expected);
    pairs.fold(0f32, |most, (a, b)| most.max((a - b).abs())) / largest
}

/// What the program's graph says, operation by operation in floats.
fn interpreted(program: &Program, x: &Tensor) -> Tensor {
    let params: HashMap<String, Tensor> = program
        .weight_names()
        .map(|name| {
            let literal = program.weight(name).unwrap();
            let bytes = literal.bytes.as_chunks::<4>().0.iter();
            let values: Vec<f32> = bytes.map(|bytes| f32::from_le_bytes(*bytes)).collect();
            let tensor = Tensor::from_vec(values, literal.ty.shape.as_slice(), x.device()).unwrap();
            (name.to_string(), tensor)
        })
        .collect();
    let inputs = std::slice::from_ref(x);
    interpret(&program.graphs()[0], inputs, &params)
        .unwrap()
        .remove(0)
}

/// How many kernels of each name a run calls.
fn kernels(runner: &Runner, x: &Tensor) -> HashMap<&'static str, usize> {
    let graphs: &[CompiledGraph] = runner.graphs();
    graphs[0].measure(true);
    runner.forward(x).unwrap();
    let mut kernels = HashMap::new();
    for time in graphs[0].kernel_times() {
        *kernels.entry(time.kernel).or_insert(0) += 1;
    }
    kernels
}

#[test]
fn compiled_programs_compute_what_their_roundings_say() {
    for case in networks() {
        let quantized = quantized(&case);
        let runner = quantized.program.compile(Options::default()).unwrap();
        let found = runner.forward(&case.example).unwrap();
        let expected = interpreted(&quantized.program, &case.example);
        // A sum that lies between two numbers may be rounded either way; from there on values differ by a step.
        let worst = difference(&found, &expected);
        assert!(worst <= 0.02, "{}: {worst}", case.name);
    }
}

#[test]
fn every_convolution_is_one_of_whole_numbers_and_hardly_a_value_between_them_a_float() {
    for case in networks() {
        let quantized = quantized(&case);
        let graph = &quantized.program.graphs()[0];
        let convolutions = graph.nodes.iter().filter(|n| matches!(n.op, Op::Conv2d(_)));
        let convolutions = convolutions.count();
        assert_eq!(quantized.layers.len(), convolutions, "{}", case.name);
        assert!(quantized.in_floats.is_empty());
        assert!(!graph.nodes.iter().any(|n| matches!(n.op, Op::BatchNorm(_))));
        let runner = quantized.program.compile(Options::default()).unwrap();
        let kernels = kernels(&runner, &case.example);
        assert_eq!(
            kernels.get("int8_conv2d"),
            Some(&convolutions),
            "{}: {kernels:?}",
            case.name
        );
        let floats = ["fused_conv2d", "conv2d", "fake_quantize"];
        assert!(
            floats.iter().all(|name| !kernels.contains_key(name)),
            "{}: {kernels:?}",
            case.name
        );
        let roundings = kernels["quantize_to_words"];
        // The image, and what a pool gives; never between two convolutions.
        assert!(roundings <= 3, "{}: {kernels:?}", case.name);
    }
}

#[test]
fn logits_stay_close_to_those_of_floats() {
    for case in networks() {
        let floats = frozen(&case).compile(Options::default()).unwrap();
        let expected = floats.forward(&case.example).unwrap();
        let runner = quantized(&case)
            .program
            .compile(Options::default())
            .unwrap();
        let worst = difference(&runner.forward(&case.example).unwrap(), &expected);
        assert!(worst <= 0.05, "{}: {worst}", case.name);
        assert!(worst > 0.0, "{}: nothing was rounded", case.name);
    }
}

#[test]
fn switching_the_fusion_off_changes_roundings_at_most() {
    let case = &networks()[1];
    let quantized = quantized(case);
    let options = Options::default().without_pass("fuse_int8");
    let runner = quantized.program.compile(options).unwrap();
    let found = runner.forward(&case.example).unwrap();
    assert!(difference(&found, &interpreted(&quantized.program, &case.example)) <= 0.02);
}

#[test]
fn a_saved_program_is_the_same_to_the_bit_and_a_quarter_of_the_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("int8.safetensors");
    for case in networks() {
        let quantized = quantized(&case);
        quantized.program.save(&path).unwrap();
        let again = Program::load(&path).unwrap();
        assert_eq!(again.graphs(), quantized.program.graphs());
        let run = |program: &Program| {
            let runner = program.compile(Options::default()).unwrap();
            values(&runner.forward(&case.example).unwrap())
        };
        assert_eq!(run(&again), run(&quantized.program), "{}", case.name);
        let floats = folder.path().join("f32.safetensors");
        frozen(&case).save(&floats).unwrap();
        let size = |path: &Path| std::fs::metadata(path).unwrap().len();
        if case.name.starts_with("resnet") {
            assert!(size(&path) * 10 < size(&floats) * 3, "{}", case.name);
        }
        // Twice through a file changes nothing.
        let first = std::fs::read(&path).unwrap();
        again.save(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first, "{}", case.name);
    }
}

#[test]
fn modules_can_be_kept_in_floats() {
    let case = networks().remove(3);
    let options = QuantizeOptions::new().keep(&["conv1", "layer4"]);
    let batches = [case.example.clone()];
    let quantized = quantize(&frozen(&case), &batches, &options).unwrap();
    assert_eq!(quantized.in_floats[0], "conv1");
    assert!(
        quantized.in_floats[1..]
            .iter()
            .all(|module| module.starts_with("layer4."))
    );
    assert_eq!(quantized.layers.len() + quantized.in_floats.len(), 20);
    let text = quantized.to_string();
    assert!(
        text.starts_with("14 convolutions in int8, 6 in f32"),
        "{text}"
    );
    let runner = quantized.program.compile(Options::default()).unwrap();
    let kernels = kernels(&runner, &case.example);
    assert_eq!(kernels["int8_conv2d"], 14);
}

#[test]
fn percentiles_leave_outliers_out() {
    let case = networks().remove(1);
    let range = |calibration| {
        let options = QuantizeOptions::new().calibration(calibration);
        let batches = [case.example.clone(), noise(&[2, 3, 32, 32], 12)];
        let quantized = quantize(&frozen(&case), &batches, &options).unwrap();
        quantized.layers[0].input.scale
    };
    assert!(range(Calibration::Percentile(99.0)) < 0.9 * range(Calibration::MinMax));
    assert!(range(Calibration::Percentile(100.0)) <= range(Calibration::MinMax));
}

#[test]
fn wrong_use_says_what_to_do() {
    let case = networks().remove(0);
    let program = frozen(&case);
    let error = |batches: &[Tensor], options| {
        quantize(&program, batches, &options)
            .unwrap_err()
            .to_string()
    };
    let text = error(&[], QuantizeOptions::new());
    assert!(
        text.contains("no batch") && text.contains("give some batches"),
        "{text}"
    );
    let text = error(&[noise(&[2, 3, 28, 28], 1)], QuantizeOptions::new());
    assert!(
        text.contains("f32[2, 3, 28, 28]") && text.contains("f32[2, 1, 28, 28]"),
        "{text}"
    );
    let batches = [case.example.clone()];
    let options = QuantizeOptions::new().calibration(Calibration::Percentile(3.0));
    assert!(error(&batches, options).contains("99.99"));
    let odd = (&case.example * f64::NAN).unwrap();
    assert!(error(&[odd], QuantizeOptions::new()).contains("NaN"));
    let options =
        QuantizeOptions::new().keep(&["conv1", "conv2", "features", "layer1", "c1", "c3", "net"]);
    let names = quantize(&program, &batches, &QuantizeOptions::new()).unwrap();
    let all: Vec<&str> = names
        .layers
        .iter()
        .map(|layer| layer.module.as_str())
        .collect();
    let text = error(&batches, options.keep(&all));
    assert!(text.contains("no convolution"), "{text}");
}

#[test]
fn onnxruntime_computes_the_same_from_qdq() {
    let Some(python) = std::env::var_os("TALLOW_PYTHON") else {
        eprintln!("skipped: TALLOW_PYTHON names no Python with onnx and onnxruntime");
        return;
    };
    let has = Command::new(&python)
        .args(["-c", "import onnx, onnxruntime"])
        .output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: TALLOW_PYTHON names no Python with onnx and onnxruntime");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for case in networks() {
        let quantized = quantized(&case);
        let at = |what: &str| folder.path().join(format!("{}.{what}", case.name));
        onnx::write(&quantized.program, at("onnx")).unwrap();
        let output = interpreted(&quantized.program, &case.example);
        case.example.detach().write_npy(at("input.npy")).unwrap();
        output.detach().write_npy(at("output.npy")).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx/run_models.py");
    let output = Command::new(python)
        .arg(script)
        .arg(folder.path())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let numbers: Vec<f64> = words[1..]
            .iter()
            .map(|word| word.parse().unwrap())
            .collect();
        // As above: a number that is rounded the other way is a step of its scale.
        assert!(numbers[0] <= 0.05 * numbers[1], "{line}");
        eprintln!("onnxruntime: {line}");
    }
}
