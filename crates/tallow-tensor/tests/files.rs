//! Parameter files: what is written, what fits, and what damage does.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use candle_core::{DType, Device, Tensor};
use candle_nn::Init;
use indexmap::IndexMap;
use proptest::prelude::*;
use tallow_tensor::params::{self, Metadata, Strict, TensorFile, write_atomically, write_tensors};
use tallow_tensor::{Error, Params};
use tempfile::TempDir;

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

const NORMAL: Init = Init::Randn {
    mean: 0.0,
    stdev: 1.0,
};

/// `fc.weight` `[2, 3]`, `fc.bias` `[2]`, and the buffer `bn.running_mean` `[2]`.
fn model(seed: u64, dtype: DType) -> candle_core::Result<Params> {
    let params = Params::new(seed, dtype, &Device::Cpu);
    let vb = params.builder();
    vb.pp("fc").get_with_hints((2, 3), "weight", NORMAL)?;
    vb.pp("fc").get_with_hints(2, "bias", NORMAL)?;
    params::buffer(&vb.pp("bn"), 2, "running_mean", seed as f64)?;
    Ok(params)
}

/// All values, converted to f64.
fn values(params: &Params) -> candle_core::Result<Vec<(String, Vec<f64>)>> {
    let entries = params.iter();
    let value = |t: &Tensor| t.flatten_all()?.to_dtype(DType::F64)?.to_vec1();
    entries
        .map(|entry| Ok((entry.name, value(entry.var.as_tensor())?)))
        .collect()
}

struct Folder(TempDir);

impl Folder {
    fn new() -> std::io::Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("model.safetensors")
    }

    fn files(&self) -> std::io::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.0.path())?;
        entries
            .map(|e| Ok(e?.file_name().to_string_lossy().into_owned()))
            .collect()
    }
}

fn message<T>(result: tallow_tensor::Result<T>) -> String {
    result.err().map(|e| e.to_string()).unwrap_or_default()
}

#[test]
fn what_is_saved_is_loaded() -> Outcome {
    let folder = Folder::new()?;
    let (saved, loaded) = (model(1, DType::F32)?, model(2, DType::F32)?);
    saved.save(folder.path())?;
    assert_ne!(values(&saved)?, values(&loaded)?);
    let report = loaded.load(folder.path(), Strict::Yes)?;
    assert_eq!(report.loaded, ["fc.weight", "fc.bias", "bn.running_mean"]);
    assert!(report.is_complete());
    assert_eq!(values(&saved)?, values(&loaded)?);
    Ok(())
}

#[test]
fn equal_content_gives_equal_bytes() -> Outcome {
    let folder = Folder::new()?;
    let params = model(1, DType::F32)?;
    let strings = ["seed", "epoch", "created by", "a", "b", "c", "d"];
    let metadata: Metadata = strings
        .iter()
        .map(|s| (s.to_string(), s.to_uppercase()))
        .collect();
    let mut bytes = Vec::new();
    for _ in 0..5 {
        params.save_with(folder.path(), &metadata)?;
        bytes.push(std::fs::read(folder.path())?);
    }
    assert!(bytes.iter().all(|b| *b == bytes[0]));
    assert_eq!(TensorFile::open(folder.path())?.metadata(), &metadata);
    assert_eq!(
        folder.files()?,
        ["model.safetensors"],
        "no temporary file is left"
    );
    Ok(())
}

#[test]
fn other_readers_of_the_format_read_the_file() -> Outcome {
    let folder = Folder::new()?;
    let params = model(1, DType::F32)?;
    let half = Tensor::new(&[1.5f64, -2.0], &Device::Cpu)?.to_dtype(DType::F16)?;
    let bytes = Tensor::new(&[1u8, 2, 3], &Device::Cpu)?;
    let mut tensors = params.to_tensors()?;
    tensors.insert("half".to_string(), half);
    tensors.insert("bytes".to_string(), bytes);
    let by_name = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
    write_tensors(
        folder.path(),
        by_name,
        &Metadata::from([("k".into(), "v".into())]),
    )?;

    let bytes = std::fs::read(folder.path())?;
    let read = safetensors::SafeTensors::deserialize(&bytes)?;
    assert_eq!(read.len(), 5);
    assert_eq!(read.tensor("fc.weight")?.shape(), [2, 3]);
    let candle = candle_core::safetensors::load(folder.path(), &Device::Cpu)?;
    for (name, tensor) in &tensors {
        let wide = |t: &Tensor| t.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>();
        assert_eq!(wide(&candle[name])?, wide(tensor)?, "{name}");
        assert_eq!(candle[name].dtype(), tensor.dtype(), "{name}");
    }
    Ok(())
}

#[test]
fn files_of_other_writers_are_read() -> Outcome {
    let folder = Folder::new()?;
    let params = model(1, DType::F32)?;
    let tensors: HashMap<String, Tensor> = params.to_tensors()?.into_iter().collect();
    candle_core::safetensors::save(&tensors, folder.path())?;
    let loaded = model(2, DType::F32)?;
    loaded.load(folder.path(), Strict::Yes)?;
    assert_eq!(values(&loaded)?, values(&params)?);
    Ok(())
}

#[test]
fn floating_point_types_are_converted() -> Outcome {
    let folder = Folder::new()?;
    let wide = model(1, DType::F64)?;
    wide.save(folder.path())?;
    let single = model(2, DType::F32)?;
    single.load(folder.path(), Strict::Yes)?;
    assert_eq!(
        values(&single)?,
        values(&wide)?,
        "the f64 values come from f32 draws"
    );
    assert!(single.iter().all(|entry| entry.var.dtype() == DType::F32));
    Ok(())
}

#[test]
fn scalars_and_empty_tensors_survive() -> Outcome {
    let folder = Folder::new()?;
    let tensors = [
        ("scalar", Tensor::new(2.5f32, &Device::Cpu)?),
        ("empty", Tensor::zeros((0, 3), DType::F32, &Device::Cpu)?),
    ];
    write_tensors(
        folder.path(),
        tensors.iter().map(|(n, t)| (*n, t)),
        &Metadata::new(),
    )?;
    let read = TensorFile::open(folder.path())?.read_all()?;
    assert_eq!(read["scalar"].to_scalar::<f32>()?, 2.5);
    assert_eq!(read["empty"].dims(), [0, 3]);
    Ok(())
}

#[test]
fn views_are_saved_in_their_own_order() -> Outcome {
    let folder = Folder::new()?;
    let t = Tensor::new(&[[1f32, 2.0], [3.0, 4.0]], &Device::Cpu)?.t()?;
    write_tensors(folder.path(), [("t", &t)], &Metadata::new())?;
    let read = TensorFile::open(folder.path())?.read("t")?;
    assert_eq!(read.to_vec2::<f32>()?, [[1.0, 3.0], [2.0, 4.0]]);
    Ok(())
}

/// A file with a missing, an unexpected and two mismatched names for [`model`], and PyTorch's counter.
fn misfit() -> candle_core::Result<IndexMap<String, Tensor>> {
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, &Device::Cpu);
    Ok(IndexMap::from([
        ("fc.weight".to_string(), zeros(&[3, 2], DType::F32)?),
        ("bn.running_mean".to_string(), zeros(&[2], DType::U32)?),
        (
            "bn.num_batches_tracked".to_string(),
            zeros(&[], DType::I64)?,
        ),
        ("head.weight".to_string(), zeros(&[1], DType::F32)?),
    ]))
}

#[test]
fn a_strict_load_that_does_not_fit_changes_nothing_and_says_why() -> Outcome {
    let folder = Folder::new()?;
    let tensors = misfit()?;
    write_tensors(
        folder.path(),
        tensors.iter().map(|(n, t)| (n.as_str(), t)),
        &Metadata::new(),
    )?;
    let params = model(1, DType::F32)?;
    let before = values(&params)?;
    for error in [
        params.load(folder.path(), Strict::Yes),
        params.load_tensors(&tensors, Strict::Yes),
    ] {
        let Err(Error::Load { report, .. }) = &error else {
            panic!("loaded: {error:?}");
        };
        assert_eq!(report.missing, ["fc.bias"]);
        assert_eq!(report.unexpected, ["head.weight"]);
        let names: Vec<&str> = report.mismatched.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, ["fc.weight", "bn.running_mean"]);
        assert!(report.loaded.is_empty());
    }
    assert_eq!(values(&params)?, before);

    let text = message(params.load(folder.path(), Strict::Yes));
    let expected = format!(
        "{} does not fit this model, nothing was loaded
0 names fit
1 missing (in the model only):
  fc.bias
1 unexpected (in the source only):
  head.weight
2 mismatched:
  fc.weight: model F32 [2, 3], source F32 [3, 2]
  bn.running_mean: model F32 [2], source U32 [2]",
        folder.path().display()
    );
    assert_eq!(text, expected);
    Ok(())
}

#[test]
fn a_lenient_load_takes_what_fits_and_reports_the_rest() -> Outcome {
    let params = model(1, DType::F32)?;
    let before = values(&params)?;
    let mut tensors = misfit()?;
    tensors.insert(
        "fc.bias".to_string(),
        Tensor::new(&[7f32, 8.0], &Device::Cpu)?,
    );
    let report = params.load_tensors(&tensors, Strict::No)?;
    assert_eq!(report.loaded, ["fc.bias"]);
    assert_eq!(report.mismatched.len(), 2);
    let after = values(&params)?;
    assert_eq!(after[1].1, [7.0, 8.0]);
    assert_eq!((&after[0], &after[2]), (&before[0], &before[2]));
    Ok(())
}

#[test]
fn a_prefix_that_one_side_lacks_is_pointed_out() -> Outcome {
    let params = model(1, DType::F32)?;
    let prefixed = params
        .to_tensors()?
        .into_iter()
        .map(|(name, t)| (format!("module.{name}"), t));
    let text = message(params.load_tensors(&prefixed.collect(), Strict::Yes));
    assert!(
        text.contains("names of the source begin with `module.`"),
        "{text}"
    );
    Ok(())
}

#[test]
fn long_lists_are_cut_off_in_messages_only() -> Outcome {
    let tensor = Tensor::zeros(1, DType::F32, &Device::Cpu)?;
    let many = (0..30)
        .map(|i| (format!("extra{i}"), tensor.clone()))
        .collect();
    let params = Params::f32_cpu();
    let report = params.load_tensors(&many, Strict::No)?;
    assert_eq!(report.unexpected.len(), 30);
    let text = report.to_string();
    assert!(
        text.contains("extra19") && !text.contains("extra20") && text.contains("and 10 more"),
        "{text}"
    );
    Ok(())
}

#[test]
fn values_that_share_memory_with_the_model_load_as_well() -> Outcome {
    let params = model(1, DType::F32)?;
    let before = values(&params)?;
    let own = params
        .iter()
        .map(|entry| (entry.name, entry.var.as_tensor().clone()));
    params.load_tensors(&own.collect(), Strict::Yes)?;
    assert_eq!(values(&params)?, before);
    Ok(())
}

#[test]
fn a_missing_file_or_folder_is_named() -> Outcome {
    let folder = Folder::new()?;
    let params = model(1, DType::F32)?;
    let text = message(params.load(folder.path(), Strict::Yes));
    assert!(
        text.contains("cannot open") && text.contains("model.safetensors"),
        "{text}"
    );
    let nowhere = folder.0.path().join("no/such/folder/model.safetensors");
    let text = message(params.save(&nowhere));
    assert!(
        text.contains("cannot write") && text.contains("no/such/folder"),
        "{text}"
    );
    let text = message(params.load(folder.0.path(), Strict::Yes));
    assert!(
        text.contains(&folder.0.path().display().to_string()),
        "a folder is no file: {text}"
    );
    Ok(())
}

#[test]
fn a_failed_write_leaves_the_old_file_and_nothing_else() -> Outcome {
    let folder = Folder::new()?;
    std::fs::write(folder.path(), b"precious")?;
    let failed = write_atomically(folder.path(), |file| {
        file.write_all(&[0; 4_000_000])?;
        Err(std::io::Error::other("disk on fire"))
    });
    assert!(message(failed).contains("disk on fire"));
    assert_eq!(std::fs::read(folder.path())?, b"precious");
    assert_eq!(folder.files()?, ["model.safetensors"]);
    Ok(())
}

#[test]
fn a_name_given_twice_is_refused() -> Outcome {
    let folder = Folder::new()?;
    let t = Tensor::new(1f32, &Device::Cpu)?;
    for names in [["w", "w"], ["w", "__metadata__"]] {
        let text = message(write_tensors(
            folder.path(),
            names.map(|n| (n, &t)),
            &Metadata::new(),
        ));
        assert!(text.contains(names[1]), "{text}");
    }
    assert!(folder.files()?.is_empty());
    Ok(())
}

fn saved() -> std::result::Result<Vec<u8>, Box<dyn std::error::Error>> {
    let folder = Folder::new()?;
    model(1, DType::F32)?.save_with(
        folder.path(),
        &Metadata::from([("epoch".into(), "3".into())]),
    )?;
    Ok(std::fs::read(folder.path())?)
}

/// Loads bytes as a file into a fresh model; a failure must name the file and change nothing.
fn load_bytes(
    bytes: &[u8],
) -> std::result::Result<tallow_tensor::Result<()>, Box<dyn std::error::Error>> {
    let folder = Folder::new()?;
    std::fs::write(folder.path(), bytes)?;
    let params = model(2, DType::F32)?;
    let before = values(&params)?;
    let result = params.load(folder.path(), Strict::Yes).map(|_| ());
    if let Err(error) = &result {
        let path = folder.path().display().to_string();
        assert!(error.to_string().contains(&path), "{error}");
        assert_eq!(values(&params)?, before);
    }
    Ok(result)
}

#[test]
fn a_file_cut_off_anywhere_is_refused() -> Outcome {
    let bytes = saved()?;
    load_bytes(&bytes)??;
    for length in 0..bytes.len() {
        let result = load_bytes(&bytes[..length])?;
        assert!(
            matches!(result, Err(Error::Corrupt { .. })),
            "{length} bytes: {result:?}"
        );
    }
    let text = message(load_bytes(&bytes[..bytes.len() - 3])?);
    assert!(
        text.contains("ends 3 bytes too early") && text.contains("again"),
        "{text}"
    );
    let longer = [bytes.as_slice(), b"tail"].concat();
    assert!(message(load_bytes(&longer)?).contains("4 bytes too many"));
    Ok(())
}

fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [length.as_slice(), header.as_bytes(), data].concat()
}

#[test]
fn hostile_headers_are_refused() -> Outcome {
    let tensor = |shape: &str, start: u128, end: u128| {
        format!(r#"{{"dtype":"U8","shape":{shape},"data_offsets":[{start},{end}]}}"#)
    };
    // Eight tensors of 2^61 bytes whose sum wraps around to 0.
    let step = 1u128 << 61;
    let wrapping: Vec<String> = (0..8)
        .map(|i| {
            let end = ((i + 1) * step).min(u128::from(u64::MAX));
            format!(
                r#""t{i}":{}"#,
                tensor(&format!("[{}]", end - i * step), i * step, end)
            )
        })
        .collect();
    let rows = [
        ("wrapping sum", format!("{{{}}}", wrapping.join(","))),
        (
            "shape that overflows",
            format!(r#"{{"t":{}}}"#, tensor("[4294967296,4294967296,16]", 0, 0)),
        ),
        (
            "empty with huge strides",
            format!(
                r#"{{"t":{}}}"#,
                tensor("[0,1099511627776,1099511627776]", 0, 0)
            ),
        ),
        (
            "end before start",
            format!(r#"{{"t":{}}}"#, tensor("[0]", 8, 0)),
        ),
        (
            "overlap",
            format!(
                r#"{{"a":{},"b":{}}}"#,
                tensor("[4]", 0, 4),
                tensor("[4]", 2, 6)
            ),
        ),
        (
            "gap",
            format!(
                r#"{{"a":{},"b":{}}}"#,
                tensor("[4]", 0, 4),
                tensor("[4]", 8, 12)
            ),
        ),
        ("not json", "not json at all".to_string()),
        ("another json", "[1, 2, 3]".to_string()),
        (
            "unknown type",
            r#"{"t":{"dtype":"Q7","shape":[1],"data_offsets":[0,1]}}"#.to_string(),
        ),
        ("deep json", "[".repeat(100_000)),
        (
            "negative offset",
            r#"{"t":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}}"#.to_string(),
        ),
    ];
    for (what, header) in rows {
        let result = load_bytes(&with_header(&header, &[0; 12]))?;
        assert!(
            matches!(result, Err(Error::Corrupt { .. })),
            "{what}: {result:?}"
        );
    }
    for length in [u64::MAX, u64::MAX - 7, 1 << 40, 100_000_001] {
        let bytes = [length.to_le_bytes().as_slice(), b"{}"].concat();
        assert!(load_bytes(&bytes)?.is_err(), "header length {length}");
    }
    Ok(())
}

#[test]
fn a_type_that_candle_lacks_matters_only_where_it_is_wanted() -> Outcome {
    let folder = Folder::new()?;
    let header = r#"{"mask":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}}"#;
    std::fs::write(folder.path(), with_header(header, &[1; 4]))?;
    let params = Params::f32_cpu();
    let report = params.load(folder.path(), Strict::No)?;
    assert_eq!(report.unexpected, ["mask"]);
    params.builder().get(4, "mask")?;
    let report = params.load(folder.path(), Strict::No)?;
    assert_eq!(report.mismatched.len(), 1);
    assert!(message(TensorFile::open(folder.path())?.read("mask").map(|_| ())).contains("mask"));
    Ok(())
}

#[test]
fn a_file_is_read_from_a_relative_path_too() -> Outcome {
    // The folder to sync is the working directory then.
    let name = format!("relative-{}.safetensors", std::process::id());
    let params = model(1, DType::F32)?;
    let saved = params.save(Path::new(&name));
    let loaded = saved.and_then(|()| params.load(Path::new(&name), Strict::Yes));
    std::fs::remove_file(&name)?;
    assert!(loaded?.is_complete());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn flipped_bytes_never_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..6)) {
        static SAVED: OnceLock<Vec<u8>> = OnceLock::new();
        let mut bytes = SAVED.get_or_init(|| saved().unwrap_or_default()).clone();
        prop_assert!(!bytes.is_empty());
        for (place, flip) in flips {
            let place = place.index(bytes.len());
            bytes[place] ^= flip;
        }
        // Whether it loads depends on what was hit; `load_bytes` checks what a failure must do.
        let _ = load_bytes(&bytes).map_err(|e| TestCaseError::fail(e.to_string()))?;
    }

    #[test]
    fn random_headers_never_panic(header in "\\PC{0,200}", data in prop::collection::vec(any::<u8>(), 0..32)) {
        let result = load_bytes(&with_header(&header, &data));
        prop_assert!(result.map_err(|e| TestCaseError::fail(e.to_string()))?.is_err());
    }
}
