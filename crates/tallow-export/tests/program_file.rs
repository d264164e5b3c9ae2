//! The program's file: what it holds, and what happens to one that was tampered with.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::{Device, Tensor};
use candle_nn::{Module, ModuleT};
use common::{difference, models, noise};
use tallow_compile::Options;
use tallow_export::{FreezeOptions, Program};
use tallow_nn::{ConvNormAct, ConvNormActConfig, LeNet5, Linear};
use tallow_tensor::Params;
use tallow_tensor::ops::{self, Pool2dConfig};
use tallow_tensor::params::{TensorFile, write_tensors};
use tallow_tensor::rng::Stream;

const KEY: &str = "tallow.program";

#[test]
fn every_model_comes_back_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    for case in models() {
        let path = folder.path().join(format!("{}.safetensors", case.name));
        let options = FreezeOptions::new().params(&case.params);
        let program = options.freeze(&case.model, &case.example).unwrap();
        program.save(&path).unwrap();
        let loaded = Program::load(&path).unwrap();
        assert_eq!(loaded.graphs(), program.graphs(), "{}", case.name);
        let runner = loaded.compile(Options::default().winograd(false)).unwrap();
        let expected = case.model.forward_t(&case.example, false).unwrap();
        let worst = difference(&runner.forward(&case.example).unwrap(), &expected);
        assert!(worst <= 1e-5, "{}: {worst:e}", case.name);

        // Once more, from what is mapped, onto the file that is.
        loaded.save(&path).unwrap();
        let again = Program::load(&path).unwrap();
        assert_eq!(again.graphs(), program.graphs(), "{}", case.name);
    }
}

#[test]
fn any_reader_of_the_format_sees_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let params = Params::f32_cpu();
    let model = LeNet5::new(10, params.builder()).unwrap();
    let image = noise(&[1, 1, 28, 28], 1);
    let options = FreezeOptions::new().params(&params).batch_sizes(&[1, 4]);
    options.freeze(&model, &image).unwrap().save(&path).unwrap();

    let read = candle_core::safetensors::load(&path, &Device::Cpu).unwrap();
    let weights = params.to_tensors().unwrap();
    assert_eq!(read.len(), weights.len());
    for (name, weight) in &weights {
        assert_eq!(difference(&read[name], weight), 0.0, "{name}");
    }
    // And a model of the same names takes them.
    let other = Params::new(7, candle_core::DType::F32, &Device::Cpu);
    LeNet5::new(10, other.builder()).unwrap();
    other
        .load(&path, tallow_tensor::params::Strict::Yes)
        .unwrap();
    let equal = other.to_tensors().unwrap();
    assert_eq!(
        difference(&equal["fc1.weight"], &weights["fc1.weight"]),
        0.0
    );
}

/// A few operations of each kind, and few weights.
struct Small {
    block: ConvNormAct,
    head: Linear,
}

impl ModuleT for Small {
    fn forward_t(&self, xs: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let xs = self.block.forward_t(xs, train)?;
        let xs = ops::relu(&ops::max_pool2d(&xs, &Pool2dConfig::new(2))?)?;
        let xs = ops::slice(&ops::flatten(&xs, 1)?, 1, 0, 8)?;
        ops::softmax(&self.head.forward(&xs)?, 1)
    }
}

/// A small program's file.
fn small(path: &Path) -> Vec<u8> {
    let params = Params::f32_cpu();
    let vb = params.builder();
    let config = ConvNormActConfig::default();
    let model = Small {
        block: ConvNormAct::new(1, 2, config, vb.pp("block")).unwrap(),
        head: Linear::new(8, 3, vb.pp("fc")).unwrap(),
    };
    let options = FreezeOptions::new().params(&params).batch_sizes(&[1, 2]);
    let program = options.freeze(&model, &noise(&[1, 1, 8, 8], 1)).unwrap();
    program.save(path).unwrap();
    std::fs::read(path).unwrap()
}

/// Loads and compiles: whatever happens, it is no panic.
fn try_all(path: &Path) -> Result<(), String> {
    let program = Program::load(path).map_err(|error| error.to_string())?;
    let runner = program.compile(Options::default());
    runner.map(drop).map_err(|error| error.to_string())
}

#[test]
fn files_with_mutated_bytes_give_errors_or_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let whole = small(&path);
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let mut stream = Stream::new(5);
    let mut below = |limit: usize| (stream.uniform() * limit as f64) as usize;
    let mut refused = 0;
    for round in 0..10_000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + below(3) {
            let place = below(header);
            match round % 4 {
                // Another digit makes another shape, place, node or attribute.
                0 => {
                    let digits = (0..header).filter(|&i| bytes[i].is_ascii_digit());
                    let digits: Vec<usize> = digits.collect();
                    bytes[digits[below(digits.len())]] = b'0' + below(10) as u8;
                }
                1 => bytes[place] = below(256) as u8,
                2 => {
                    let end = (place + below(40)).min(header);
                    bytes[place..end].reverse();
                }
                _ => bytes.truncate(bytes.len() - below(bytes.len() / 2).min(bytes.len())),
            }
            if bytes.len() < header {
                break;
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        refused += usize::from(try_all(&path).is_err());
    }
    assert!(refused > 5_000, "only {refused} of 10,000 were refused");
}

/// The small program's graph, changed as JSON text, in a file that is otherwise right.
fn with_graph(change: impl Fn(&str) -> String) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    small(&path);
    let file = TensorFile::open(&path).unwrap();
    let changed = change(&file.metadata()[KEY]);
    let tensors = file.read_all().unwrap();
    let metadata = BTreeMap::from([(KEY.to_string(), changed)]);
    let named = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
    write_tensors(&path, named, &metadata).unwrap();
    try_all(&path)
}

fn replaced(from: &'static str, to: &'static str) -> impl Fn(&str) -> String {
    move |json| {
        assert!(json.contains(from), "no {from} in {json}");
        json.replacen(from, to, 1)
    }
}

#[test]
fn hostile_graphs_are_refused_by_what_is_wrong() {
    with_graph(str::to_string).unwrap();
    let mut wrong = Vec::new();
    let mut refused = |what: &str, change: &dyn Fn(&str) -> String| match with_graph(change) {
        Err(error) if error.contains(what) => {}
        other => wrong.push(format!("{what}: {other:?}")),
    };
    refused("unknown variant", &replaced("\"relu\"", "\"launch\""));
    refused("version 2", &replaced("\"version\":1", "\"version\":2"));
    refused("0 graphs, not 1 to 64", &|_| {
        "{\"version\":1,\"graphs\":[]}".into()
    });
    refused("can't be read", &|_| "[".repeat(1 << 20));
    let nested = "{\"version\":1,\"graphs\":".to_string() + &"[".repeat(100_000);
    refused("can't be read", &|_| nested.clone());
    let gradient = "{\"grad\":{\"of\":".repeat(10_000);
    let nested = format!("{{\"version\":1,\"graphs\":[{{\"nodes\":[{{\"id\":0,\"op\":{gradient}");
    refused("can't be read", &|_| nested.clone());
    refused("can't be read", &|json| {
        json.replacen("\"id\":0", "\"id\":-1", 1)
    });
    refused("ids count nodes", &|json| {
        json.replacen("\"id\":0", "\"id\":18446744073709551615", 1)
    });
    // A value that is made later: a cycle.
    refused("not made before", &|json| {
        let place = json.find("\"inputs\":[0").unwrap();
        format!("{}\"inputs\":[9{}", &json[..place], &json[place + 11..])
    });
    // More memory than there is, in what is claimed and in what follows from it.
    refused("that a machine can hold", &|json| {
        json.replace("[1,1,8,8]", "[1,1,8,4611686018427387904]")
    });
    refused("at least one element", &|json| {
        json.replace("[1,1,8,8]", "[1,1,8,0]")
    });
    refused("absurd size", &|json| {
        json.replacen(
            "\"padding\":[1,1]",
            "\"padding\":[1,18446744073709551615]",
            1,
        )
    });
    refused(
        "is not there",
        &replaced("\"name\":\"fc.weight\"", "\"name\":\"other\""),
    );
    let dropout = "{\"dropout\":{\"p\":0.5,\"draw\":0}}";
    refused("drops at random", &|json| {
        json.replacen("\"relu\"", dropout, 1)
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn other_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    assert!(Program::load(&path).is_err());
    let tensor = Tensor::zeros(3, candle_core::DType::F32, &Device::Cpu).unwrap();
    write_tensors(&path, [("w", &tensor)], &BTreeMap::new()).unwrap();
    let error = Program::load(&path).unwrap_err().to_string();
    assert!(error.contains("no program"), "{error}");
    std::fs::write(&path, b"not a file of tensors").unwrap();
    assert!(Program::load(&path).is_err());
}
