//! State dicts of torchvision and timm load by name: names, shapes and counts against the originals' lists, a file in
//! PyTorch's form, and, where `TALLOW_RESNET18` names one, a real torchvision file with its logits.

mod reference;

use std::collections::HashMap;
use std::path::PathBuf;

use candle_core::{Device, Result, Tensor};
use candle_nn::{ModuleT, VarBuilder};
use tallow_nn::*;
use tallow_tensor::Params;
use tallow_tensor::params::Strict;

use reference::{TOLERANCE, formula, relative_error};

/// `[name, shape]` of every entry of the original's state dict, in its order.
fn original(model: &str) -> Vec<(String, Vec<usize>)> {
    let text = std::fs::read_to_string(reference::folder().join("state_dicts.json"))
        .expect("state_dicts.json");
    let mut lists: HashMap<String, Vec<(String, Vec<usize>)>> =
        serde_json::from_str(&text).expect("lists of entries");
    lists.remove(model).expect("a list of this model")
}

fn build<M>(make: impl FnOnce(VarBuilder) -> Result<M>) -> (Params, M) {
    let params = Params::f32_cpu();
    let model = make(params.builder()).expect("construction");
    (params, model)
}

#[test]
fn names_and_shapes_are_those_of_torchvision_and_timm() {
    let rows: [(&str, Params); 6] = [
        (
            "resnet18",
            build(|vb| ResNet::resnet18(1000, Stem::ImageNet, vb)).0,
        ),
        (
            "resnet34",
            build(|vb| ResNet::resnet34(1000, Stem::ImageNet, vb)).0,
        ),
        (
            "resnet50",
            build(|vb| ResNet::resnet50(1000, Stem::ImageNet, vb)).0,
        ),
        ("alexnet", build(|vb| AlexNet::new(1000, vb)).0),
        ("vit_tiny", build(|vb| VisionTransformer::tiny(1000, vb)).0),
        (
            "vit_small",
            build(|vb| VisionTransformer::small(1000, vb)).0,
        ),
    ];
    for (name, params) in rows {
        let mut ours: Vec<_> = params
            .iter()
            .map(|e| (e.name.clone(), e.var.dims().to_vec()))
            .collect();
        let mut theirs = original(name);
        theirs.retain(|(entry, _)| !entry.ends_with("num_batches_tracked"));
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs, "{name}");
    }
}

/// Writes the state dict of a torchvision ResNet-18 as Python would, with values of the formula.
fn write_state_dict(path: &PathBuf, change: impl Fn(&mut HashMap<String, Tensor>)) {
    let entries = original("resnet18").into_iter();
    let mut tensors: HashMap<String, Tensor> = entries
        .map(|(name, shape)| (name.clone(), formula::parameter(&name, &shape).unwrap()))
        .collect();
    change(&mut tensors);
    candle_core::safetensors::save(&tensors, path).unwrap();
}

/// The model gives the logits that PyTorch gives with the formula's values.
fn check_logits(model: &ResNet) {
    let case = reference::case("models/resnet18", "eval");
    let seed = reference::values(case.get("input_seed"))[0];
    let images = formula::image(&format!("resnet18.input.{seed}"), &[2, 3, 32, 32]).unwrap();
    case.check("logits", &model.forward_t(&images, false).unwrap());
}

#[test]
fn a_resnet18_state_dict_loads_strictly_and_gives_pytorchs_logits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("resnet18.safetensors");
    write_state_dict(&path, |_| {});
    let (params, model) = build(|vb| ResNet::resnet18(1000, Stem::ImageNet, vb));
    params
        .load(&path, Strict::Yes)
        .expect("num_batches_tracked is no parameter of ours, and no error");
    check_logits(&model);
}

#[test]
fn the_same_file_serves_candles_own_builder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("resnet18.safetensors");
    write_state_dict(&path, |_| {});
    let tensors = candle_core::safetensors::load(&path, &Device::Cpu).unwrap();
    let vb = VarBuilder::from_tensors(tensors, candle_core::DType::F32, &Device::Cpu);
    let model = ResNet::resnet18(1000, Stem::ImageNet, vb).unwrap();
    check_logits(&model);
}

#[test]
fn a_state_dict_that_does_not_fit_names_what_is_wrong_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.safetensors");
    write_state_dict(&path, |tensors| {
        let fc = tensors.remove("fc.bias").unwrap();
        tensors.insert("head.bias".into(), fc);
        tensors.insert(
            "bn1.weight".into(),
            Tensor::zeros(32, candle_core::DType::F32, &Device::Cpu).unwrap(),
        );
    });
    let (params, _) = build(|vb| ResNet::resnet18(1000, Stem::ImageNet, vb));
    let before = reference::values(params.get("conv1.weight").unwrap().var.as_tensor());
    let error = params.load(&path, Strict::Yes).unwrap_err().to_string();
    for part in ["odd.safetensors", "fc.bias", "head.bias", "bn1.weight"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    assert_eq!(
        before,
        reference::values(params.get("conv1.weight").unwrap().var.as_tensor())
    );
}

/// `python tests/golden/make_golden.py --resnet18 PATH` writes the file and, beside it, an input and its logits.
#[test]
fn a_real_torchvision_file_gives_torchvisions_logits() {
    let Some(path) = std::env::var_os("TALLOW_RESNET18").map(PathBuf::from) else {
        eprintln!(
            "skipped: set TALLOW_RESNET18 to a file of `make_golden.py --resnet18 PATH` to run this"
        );
        return;
    };
    let stored =
        candle_core::safetensors::load(path.with_extension("logits.safetensors"), &Device::Cpu)
            .unwrap();
    let (params, model) = build(|vb| ResNet::resnet18(1000, Stem::ImageNet, vb));
    params.load(&path, Strict::Yes).unwrap();
    let logits = model.forward_t(&stored["input"], false).unwrap();
    let error = relative_error(&logits, &stored["logits"]);
    eprintln!("logits of {} differ by {error:.2e} at most", path.display());
    assert!(error < TOLERANCE);
}
