//! What the golden tests share: the stored numbers, the comparison, and the parameter formula.
#![allow(dead_code)] // each test target uses its part

pub(crate) mod formula;

use std::collections::HashMap;
use std::path::PathBuf;

use candle_core::{DType, Device, Tensor};

/// What outputs and gradients may differ by, relative to the largest element.
pub(crate) const TOLERANCE: f64 = 1e-4;

/// The tensors of one case, by role.
pub(crate) struct Case {
    pub(crate) name: String,
    tensors: HashMap<String, Tensor>,
}

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Case `name` of `layers/conv2d` or `models/resnet18`.
pub(crate) fn case(file: &str, name: &str) -> Case {
    let path = folder().join(format!("{file}.safetensors"));
    let all = candle_core::safetensors::load(&path, &Device::Cpu).expect("golden file");
    let prefix = format!("{name}/");
    let tensors: HashMap<_, _> = all
        .into_iter()
        .filter_map(|(key, tensor)| Some((key.strip_prefix(&prefix)?.to_string(), tensor)))
        .collect();
    assert!(!tensors.is_empty(), "{} has no case {name}", path.display());
    Case {
        name: format!("{file} {name}"),
        tensors,
    }
}

impl Case {
    pub(crate) fn get(&self, role: &str) -> &Tensor {
        self.tensors
            .get(role)
            .unwrap_or_else(|| panic!("{}: no {role}", self.name))
    }

    /// `{name: tensor}` of all roles `kind.name`, in the order of names.
    pub(crate) fn all(&self, kind: &str) -> Vec<(String, Tensor)> {
        let prefix = format!("{kind}.");
        let mut found: Vec<_> = self
            .tensors
            .iter()
            .filter_map(|(role, tensor)| {
                Some((role.strip_prefix(&prefix)?.to_string(), tensor.clone()))
            })
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    pub(crate) fn has(&self, role: &str) -> bool {
        self.tensors.contains_key(role)
    }

    /// Fails unless `actual` has the shape and values of the stored `role`.
    pub(crate) fn check(&self, role: &str, actual: &Tensor) {
        let expected = self.get(role);
        assert_eq!(
            actual.dims(),
            expected.dims(),
            "{}: shape of {role}",
            self.name
        );
        let error = relative_error(actual, expected);
        assert!(
            error < TOLERANCE,
            "{}: {role} is off by {error:.2e}",
            self.name
        );
    }
}

pub(crate) fn values(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor.flatten_all().and_then(|t| t.to_dtype(DType::F64));
    flat.and_then(|t| t.to_vec1()).expect("values")
}

/// Largest difference over largest expected element; the plain difference where all expected are zero, but for rounding
/// in f64 (the bias of a key norm shifts all scores of a row alike, so its gradient is zero).
pub(crate) fn relative_error(actual: &Tensor, expected: &Tensor) -> f64 {
    let (actual, expected) = (values(actual), values(expected));
    let largest = expected.iter().fold(0f64, |m, v| m.max(v.abs()));
    let difference = actual.iter().zip(&expected).map(|(a, e)| (a - e).abs());
    let difference = difference.fold(0f64, |m, d| if d > m || d.is_nan() { d } else { m });
    if largest < 1e-12 {
        difference
    } else {
        difference / largest
    }
}
