//! Saving and loading: bytes, other programs, types, and names that don't fit.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use indexmap::IndexMap;
use tallow_tensor::params::{Metadata, Strict, TensorFile, write_atomically, write_tensors};
use tallow_tensor::{Error, Params};

use crate::{Folder, Outcome, message, model, values};

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
fn a_model_that_is_not_built_yet_is_pointed_out() -> Outcome {
    let tensors = model(1, DType::F32)?.to_tensors()?;
    let text = message(Params::f32_cpu().load_tensors(&tensors, Strict::Yes));
    assert!(text.contains("build it before loading"), "{text}");
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
