//! Files of `torch.save`: both containers against what PyTorch says is in them, and damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Tensor};
use proptest::prelude::*;
use serde::Deserialize;
use tallow_tensor::params::{NameMap, Strict, TorchFile};
use tallow_tensor::{Error, Params};

use crate::{Folder, Outcome, message, model, values};

#[derive(Deserialize)]
struct Expected {
    shape: Vec<usize>,
    values: Vec<f64>,
}

fn golden(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/torch");
    folder.join(name)
}

fn expected() -> std::result::Result<BTreeMap<String, Expected>, Box<dyn std::error::Error>> {
    Ok(serde_json::from_slice(&std::fs::read(golden(
        "expected.json",
    ))?)?)
}

fn numbers(tensor: &Tensor) -> candle_core::Result<Vec<f64>> {
    tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1()
}

#[test]
fn every_type_and_layout_is_read_from_both_containers() -> Outcome {
    let expected = expected()?;
    for name in [
        "state.zip.pth",
        "state.legacy.pth",
        "training.zip.pth",
        "training.legacy.pth",
    ] {
        let file = TorchFile::open(golden(name))?;
        assert_eq!(file.names().count(), expected.len(), "{name}");
        for (tensor, expected) in &expected {
            let read = file.read(tensor)?;
            assert_eq!(read.dims(), expected.shape, "{tensor} of {name}");
            assert_eq!(file.dtype(tensor), Some(read.dtype()), "{tensor} of {name}");
            assert_eq!(numbers(&read)?, expected.values, "{tensor} of {name}");
        }
        assert_eq!(file.read_all()?.len(), expected.len());
    }
    Ok(())
}

#[test]
fn a_model_loads_them_as_it_loads_safetensors() -> Outcome {
    let expected = expected()?;
    for name in ["state.zip.pth", "training.legacy.pth"] {
        let params = model(3, DType::F64)?;
        let report = params.load(golden(name), Strict::No)?;
        assert_eq!(report.loaded, ["fc.weight", "fc.bias", "bn.running_mean"]);
        assert!(report.missing.is_empty() && report.mismatched.is_empty());
        assert!(report.unexpected.contains(&"types.i8".to_string()));
        assert!(
            !report
                .unexpected
                .contains(&"bn.num_batches_tracked".to_string())
        );
        for (name, values) in values(&params)? {
            assert_eq!(values, expected[&name].values, "{name}");
        }
        let strict = message(params.load(golden(name), Strict::Yes));
        assert!(
            strict.contains(name) && strict.contains("unexpected"),
            "{strict}"
        );
    }
    Ok(())
}

#[test]
fn names_are_mapped_before_they_are_compared() -> Outcome {
    let params = Params::f32_cpu();
    params.builder().pp("net.head").get((2, 3), "weight")?;
    params.builder().pp("net.head").get(5, "bias")?;
    let names = NameMap::new()
        .rename("fc", "head")
        .add_prefix("net")
        .skip("net.types");
    let report = params.load_renamed(golden("state.zip.pth"), &names, Strict::No)?;
    assert_eq!(report.loaded, ["net.head.weight"]);
    assert_eq!(report.mismatched[0].name, "net.head.bias");
    assert_eq!(report.mismatched[0].found, [2]);
    assert!(report.unexpected.contains(&"net.scalar".to_string()));
    assert!(report.unexpected.iter().all(|name| !name.contains("types")));

    let both = NameMap::new().rename("fc.weight", "fc.bias");
    let refused = message(params.load_renamed(golden("state.zip.pth"), &both, Strict::No));
    assert!(
        refused.contains("both `fc.weight` and `fc.bias`"),
        "{refused}"
    );
    Ok(())
}

#[test]
fn a_pickled_model_is_refused_without_running_it() -> Outcome {
    // The old container refers to classes by their source.
    let mut old = b"\x80\x02(X\x06\0\0\0modulectorch.nn.modules.linear\nLinear\n".to_vec();
    old.extend(b"X\x01\0\0\0fX\x01\0\0\0stQ)\x81}b.");
    for refused in [
        message(TorchFile::open(golden("module.zip.pth"))),
        message(read(&legacy(&old))),
    ] {
        assert!(
            refused.contains("torch.nn.modules.linear.Linear"),
            "{refused}"
        );
        assert!(refused.contains("state_dict()"), "{refused}");
    }
    Ok(())
}

/// Opens bytes and reads all that they claim to hold.
fn read(bytes: &[u8]) -> tallow_tensor::Result<()> {
    let folder = Folder::new().map_err(candle_core::Error::wrap)?;
    let path = folder.path();
    std::fs::write(&path, bytes).map_err(candle_core::Error::wrap)?;
    let result = TorchFile::open(&path).and_then(|file| file.read_all());
    if let Err(error) = &result {
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        assert!(
            error.to_string().contains(&path.display().to_string()),
            "{error}"
        );
    }
    result.map(|_| ())
}

#[test]
fn a_file_cut_off_anywhere_is_refused() -> Outcome {
    for name in ["state.zip.pth", "state.legacy.pth"] {
        let bytes = std::fs::read(golden(name))?;
        read(&bytes)?;
        for end in (0..bytes.len()).step_by(7) {
            assert!(
                read(&bytes[..end]).is_err(),
                "{name} cut off after {end} bytes"
            );
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        if name.contains("legacy") {
            assert!(read(&longer).is_err(), "{name} with a byte too many");
        }
    }
    Ok(())
}

/// A file of the old container with this pickle as its content.
fn legacy(pickle: &[u8]) -> Vec<u8> {
    let mut file = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.".to_vec();
    file.extend(b"\x80\x02M\xe9\x03.");
    file.extend(b"\x80\x02}.");
    file.extend(pickle);
    file.extend(b"\x80\x02].");
    file
}

#[test]
fn hostile_pickles_are_errors() -> Outcome {
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        (
            "code",
            b"\x80\x02cos\nsystem\n(X\x04\0\0\0evil\x85tR.".to_vec(),
            "os.system",
        ),
        ("nothing", b"\x80\x02.".to_vec(), "operand"),
        ("no mark", b"\x80\x02t.".to_vec(), "no beginning"),
        ("no memo", b"\x80\x02h\x07.".to_vec(), "before it is made"),
        (
            "a text of 4 GB",
            b"\x80\x02X\xff\xff\xff\xffabc".to_vec(),
            "in the middle of a text",
        ),
        ("another protocol", b"\x80\x02I12\n.".to_vec(), "0x49 (I)"),
        (
            "half an entry",
            b"\x80\x02}(K\x01u.".to_vec(),
            "without a value",
        ),
        (
            "a list of numbers",
            b"\x80\x02](K\x01e.".to_vec(),
            "no state dict",
        ),
        (
            "no tensor",
            b"\x80\x02}X\x01\0\0\0aK\x01s.".to_vec(),
            "`a` (the number 1)",
        ),
    ];
    for (what, pickle, part) in cases {
        let refused = message(read(&legacy(&pickle)));
        assert!(refused.contains(part), "{what}: {refused}");
    }
    Ok(())
}

#[test]
fn what_reaches_beyond_its_storage_is_refused() -> Outcome {
    // Offset, shape and strides.
    type Case = ([&'static [u8]; 3], &'static str);
    let cases: [Case; 5] = [
        ([b"K\x00", b"K\x05\x85", b"K\x01\x85"], "reach beyond its 4"),
        ([b"K\x04", b"K\x01\x85", b"K\x01\x85"], "reach beyond its 4"),
        (
            [b"K\x00", b"K\x02\x85", b"J\xff\xff\xff\xff\x85"],
            "a size is -1",
        ),
        ([b"K\x00", b"K\x05\x85", b"K\x00\x85"], "repeats"),
        ([b"K\x00", b"K\x02\x85", b"K\x01K\x01\x86"], "the strides"),
    ];
    for (arguments, part) in cases {
        let mut pickle = b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(".to_vec();
        pickle
            .extend(b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0aX\x03\0\0\0cpuK\x04tQ");
        for part in arguments {
            pickle.extend(part);
        }
        pickle.extend(b"tRs.");
        let refused = message(read(&legacy(&pickle)));
        assert!(refused.contains(part), "{refused}");
    }
    Ok(())
}

#[test]
fn nesting_without_end_needs_no_stack() -> Outcome {
    let mut pickle = b"\x80\x02)".to_vec();
    pickle.resize(pickle.len() + 1_000_000, 0x85);
    pickle.push(b'.');
    assert!(message(read(&legacy(&pickle))).contains("a tuple"));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Flipped bytes give an error or other numbers, and never a panic.
    #[test]
    fn flipped_bytes_never_panic(
        zip in any::<bool>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let name = if zip { "state.zip.pth" } else { "state.legacy.pth" };
        let mut bytes = std::fs::read(golden(name)).unwrap();
        for (index, value) in flips {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        let _ = read(&bytes);
    }
}
