//! A delivery: what makes one, what is refused, and that nothing can be changed in it unnoticed.

mod common;

use std::path::Path;

use candle_core::Tensor;
use candle_nn::ModuleT;
use common::noise;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tallow_export::{Delivery, Error, Manifest, Outcome, Program, deliver, verify};
use tallow_nn::LeNet5;
use tallow_tensor::Params;

const CLASSES: [&str; 3] = ["boot", "coat", "hat"];

fn described<'a>() -> Delivery<'a> {
    Delivery::new("clothes", "1.0.0")
        .classes(CLASSES)
        .normalisation(255.0, &[0.3], &[0.35])
        .trained_on(42, "noise, 8 images")
        .metric("test_accuracy", 0.5)
        .git_commit("0123456789abcdef0123456789abcdef01234567")
}

fn model() -> (LeNet5, Params, Tensor) {
    let params = Params::f32_cpu();
    let model = LeNet5::new(3, params.builder()).unwrap();
    (model, params, noise(&[1, 1, 28, 28], 1))
}

fn delivered(folder: &Path) {
    let (model, params, image) = model();
    let delivery = described().params(&params).batch_sizes(&[1, 4]);
    deliver(&model, &image, &delivery, folder).unwrap();
}

/// The names of the checks that fail, with what they found.
fn failures(folder: &Path) -> String {
    let report = verify(folder);
    assert_eq!(report.deploy(), report.failures().next().is_none());
    let failed = report.failures();
    failed
        .map(|check| format!("{}: {}\n", check.name, check.found))
        .collect()
}

#[test]
fn a_delivery_holds_all_that_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("deliveries/clothes");
    let (model, params, image) = model();
    let delivery = described().params(&params).batch_sizes(&[1, 4]);
    let made = deliver(&model, &image, &delivery, &target).unwrap();
    assert!(made.report.deploy(), "{}", made.report);

    let mut names: Vec<_> = std::fs::read_dir(&target)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        "SHA256SUMS",
        "golden.safetensors",
        "manifest.json",
        "model.onnx",
        "model.safetensors",
    ];
    assert_eq!(names, expected);
    let around = std::fs::read_dir(target.parent().unwrap()).unwrap().count();
    assert_eq!(around, 1, "nothing is left beside the delivery");

    let manifest = Manifest::read(&target).unwrap();
    assert_eq!(manifest, made.manifest);
    assert_eq!(manifest.interface.batch_sizes, [1, 4]);
    assert_eq!(manifest.latency.len(), 2);
    assert!(manifest.compile.kernels > 0);
    assert!(manifest.golden.max_deviation <= manifest.golden.tolerance);
    assert!(manifest.build.rustc.starts_with("rustc"));

    let report = verify(&target).to_string();
    assert!(
        report.contains("deploy: yes") && report.contains("golden output"),
        "{report}"
    );
    let program = Program::load(target.join("model.safetensors")).unwrap();
    assert_eq!(program.weight_names().collect::<Vec<_>>(), params.names());
}

#[test]
fn one_changed_byte_of_any_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("clothes");
    delivered(&target);
    assert_eq!(failures(&target), "");
    let names = [
        "SHA256SUMS",
        "golden.safetensors",
        "manifest.json",
        "model.onnx",
        "model.safetensors",
    ];
    for name in names {
        let path = target.join(name);
        let whole = std::fs::read(&path).unwrap();
        for place in [0, whole.len() / 3, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            let failed = failures(&target);
            assert!(failed.contains(name), "{name}, byte {place}: {failed:?}");
        }
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(failures(&target).contains(name), "{name}, cut off");
        std::fs::remove_file(&path).unwrap();
        assert!(failures(&target).contains(name), "{name}, gone");
        std::fs::write(&path, &whole).unwrap();
    }
    assert_eq!(failures(&target), "");
}

#[test]
fn other_files_are_part_of_it_under_names_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("clothes");
    let (model, _, image) = model();
    let with_card = described().onnx(false).file("card.md", "# Clothes");
    let made = deliver(&model, &image, &with_card, &target).unwrap();
    let card = target.join("card.md");
    assert_eq!(std::fs::read(&card).unwrap(), b"# Clothes");
    assert!(
        made.manifest
            .files
            .iter()
            .any(|file| file.name == "card.md")
    );
    std::fs::write(&card, "# Shoes!!").unwrap();
    assert!(failures(&target).contains("card.md"));

    // It goes when it is replaced, and no name gets out of the folder or over another file.
    deliver(&model, &image, &described(), &target).unwrap();
    assert!(!card.exists());
    for name in [
        "",
        "..",
        "../card.md",
        "a/card.md",
        "/card.md",
        "model.onnx",
        "manifest.json",
    ] {
        let delivery = described().file(name, "text");
        let error = deliver(&model, &image, &delivery, &target).unwrap_err();
        assert!(
            matches!(error, Error::Unsupported { .. }),
            "{name}: {error}"
        );
    }
    let twice = described().file("card.md", "a").file("card.md", "b");
    let error = deliver(&model, &image, &twice, &target).unwrap_err();
    assert!(error.to_string().contains("card.md"), "{error}");
    assert_eq!(failures(&target), "");
}

/// Changes the manifest as someone would who makes the checksums fit.
fn forge(folder: &Path, change: impl Fn(&mut Value)) {
    let path = folder.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut manifest);
    std::fs::write(&path, serde_json::to_string(&manifest).unwrap()).unwrap();
    resum(folder);
}

fn sum(path: &Path) -> String {
    let digest = Sha256::digest(std::fs::read(path).unwrap());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// New checksums for what is there.
fn resum(folder: &Path) {
    let path = folder.join("SHA256SUMS");
    let old = std::fs::read_to_string(&path).unwrap();
    let names = old.lines().filter_map(|line| line.split_once("  "));
    let lines = names.map(|(_, name)| format!("{}  {name}\n", sum(&folder.join(name))));
    std::fs::write(&path, lines.collect::<String>()).unwrap();
}

#[test]
fn what_contradicts_the_program_is_noticed_in_spite_of_its_checksums() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("clothes");
    let check = |what: &str, change: &dyn Fn(&mut Value)| {
        // A forged manifest may be one that can't be read, and then its folder isn't replaced.
        if target.exists() {
            std::fs::remove_dir_all(&target).unwrap();
        }
        delivered(&target);
        forge(&target, change);
        let failed = failures(&target);
        assert!(failed.contains(what), "{what}: {failed:?}");
        // A folder whose manifest can't be read any more is not replaced.
        std::fs::remove_dir_all(&target).unwrap();
    };
    check("classes", &|m| m["classes"] = json!(["boot", "coat"]));
    check("shape", &|m| {
        m["interface"]["inputs"][0]["shape"] = json!([1, 1, 28, 0])
    });
    check("inputs", &|m| {
        m["interface"]["inputs"][0]["shape"] = json!([1, 1, 28, 29])
    });
    check("inputs", &|m| {
        m["interface"]["inputs"][0]["name"] = json!("y")
    });
    check("outputs", &|m| {
        m["interface"]["outputs"][0]["shape"] = json!([2, 3])
    });
    check("batch sizes", &|m| {
        m["interface"]["batch_sizes"] = json!([1]);
        m["latency"].as_array_mut().unwrap().pop();
    });
    check("kernels", &|m| m["compile"]["kernels"] = json!(0));
    check("fallbacks", &|m| m["compile"]["fallbacks"] = json!(1));
    check("seed", &|m| {
        drop(m["training"].as_object_mut().unwrap().remove("seed"))
    });
    check("version", &|m| m["manifest_version"] = json!(2));
    check("model.safetensors", &|m| m["files"][0]["bytes"] = json!(1));
    check("latency", &|m| m["latency"][0]["limit_ms"] = json!(1e-9));
}

#[test]
fn another_golden_output_is_noticed_in_spite_of_its_checksums() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("clothes");
    delivered(&target);
    let path = target.join("golden.safetensors");
    let mut tensors = candle_core::safetensors::load(&path, &candle_core::Device::Cpu).unwrap();
    let wrong = (&tensors["output_0"] + 0.5).unwrap();
    tensors.insert("output_0".into(), wrong);
    candle_core::safetensors::save(&tensors, &path).unwrap();
    let sum = sum(&path);
    let bytes = std::fs::metadata(&path).unwrap().len();
    forge(&target, |manifest| {
        for file in manifest["files"].as_array_mut().unwrap() {
            if file["name"] == "golden.safetensors" {
                file["sha256"] = json!(sum);
                file["bytes"] = json!(bytes);
            }
        }
    });
    let failed = failures(&target);
    assert!(failed.contains("golden output"), "{failed:?}");
    assert_eq!(failed.lines().count(), 1, "{failed:?}");
}

#[test]
fn what_is_missing_is_listed_at_once_and_nothing_is_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("clothes");
    let (model, _, image) = model();
    let error = deliver(&model, &image, &Delivery::new("", "1"), &target).unwrap_err();
    let Error::Incomplete(missing) = &error else {
        panic!("{error}");
    };
    let text = missing.join("\n");
    for item in [
        "model.name",
        "classes",
        "normalisation",
        "dataset",
        "metrics",
    ] {
        assert!(text.contains(item), "{item}: {text}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_delivery_replaces_one_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("clothes");
    let (model, _, image) = model();
    deliver(&model, &image, &described().onnx(false), &target).unwrap();
    assert!(!target.join("model.onnx").exists());
    deliver(&model, &image, &described(), &target).unwrap();
    assert!(target.join("model.onnx").exists());

    // One that fails leaves the old one.
    let error = deliver(&model, &image, &described().classes(["one"]), &target);
    assert!(error.is_err());
    assert_eq!(failures(&target), "");

    std::fs::write(target.join("notes.txt"), b"mine").unwrap();
    let error = deliver(&model, &image, &described(), &target).unwrap_err();
    assert!(error.to_string().contains("notes.txt"), "{error}");
    let photos = folder.path().join("photos");
    std::fs::create_dir(&photos).unwrap();
    std::fs::write(photos.join("me.jpg"), b"not yours").unwrap();
    let error = deliver(&model, &image, &described(), &photos).unwrap_err();
    assert!(error.to_string().contains("holds `me.jpg`"), "{error}");
    assert_eq!(std::fs::read(photos.join("me.jpg")).unwrap(), b"not yours");
}

#[test]
fn a_model_that_is_too_slow_or_trains_is_not_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("clothes");
    let (model, _, image) = model();
    let error = deliver(&model, &image, &described().latency_limit_ms(1e-6), &target).unwrap_err();
    assert!(matches!(error, Error::Unverified(_)), "{error}");
    assert!(error.to_string().contains("latency"), "{error}");
    let stubborn = candle_nn::func_t(move |xs, _| {
        model.forward_t(&tallow_tensor::ops::dropout(xs, 0.5, true)?, true)
    });
    let error = deliver(&stubborn, &image, &described(), &target).unwrap_err();
    assert!(error.to_string().contains("dropout"), "{error}");
    assert!(!target.exists());
}

#[test]
fn a_folder_without_a_delivery_is_not_deployed() {
    let folder = tempfile::tempdir().unwrap();
    let report = verify(folder.path());
    assert!(!report.deploy());
    assert!(
        report
            .checks
            .iter()
            .all(|check| check.outcome == Outcome::Failed)
    );
}
