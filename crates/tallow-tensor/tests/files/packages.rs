//! Weights that Python packages carry, read as PyTorch reads them: names, shapes, types, and every bit.
//!
//! The folder of the unpacked packages is given as `TALLOW_TORCH_PACKAGES`; `golden/torch_packages.py` says how it is made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Tensor};
use tallow_tensor::params::TorchFile;

use crate::Outcome;

/// Element type, shape, CRC-32 of the elements.
type Expected = (String, Vec<usize>, u32);

const FOLDER: &str = "TALLOW_TORCH_PACKAGES";

#[test]
fn weights_of_packages_are_read_to_the_bit() -> Outcome {
    let Ok(folder) = std::env::var(FOLDER) else {
        eprintln!("skipped: {FOLDER} names no folder of Python packages with weights");
        return Ok(());
    };
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/torch_packages.json");
    let golden: BTreeMap<String, BTreeMap<String, Expected>> =
        serde_json::from_slice(&std::fs::read(golden)?)?;
    let mut compared = 0;
    for (name, expected) in &golden {
        // A copy in the newer container may stand beside each file.
        for path in [Path::new(&folder).join(name), copy(&folder, name)] {
            if path.exists() {
                compare(&path, expected)?;
                compared += 1;
            } else {
                eprintln!("skipped: there is no {}", path.display());
            }
        }
    }
    assert!(
        compared > 0,
        "{FOLDER}={folder} holds none of the files; unset it, or unpack a package there"
    );
    Ok(())
}

fn copy(folder: &str, name: &str) -> PathBuf {
    Path::new(folder).join("zip").join(name)
}

fn compare(path: &Path, expected: &BTreeMap<String, Expected>) -> Outcome {
    let file = TorchFile::open(path)?;
    let mut names: Vec<_> = file.names().collect();
    names.sort_unstable();
    assert_eq!(
        names,
        expected.keys().collect::<Vec<_>>(),
        "{}",
        path.display()
    );
    for (name, (dtype, shape, crc)) in expected {
        let tensor = file.read(name)?;
        let at = format!("{name} of {}", path.display());
        assert_eq!(tensor.dims(), shape, "{at}");
        let (found, bytes) = match tensor.dtype() {
            DType::F32 => ("float32", bytes(&tensor, f32::to_le_bytes)?),
            DType::I64 => ("int64", bytes(&tensor, i64::to_le_bytes)?),
            other => (other.as_str(), Vec::new()),
        };
        assert_eq!(found, dtype, "{at}");
        assert_eq!(crc32fast::hash(&bytes), *crc, "{at}");
    }
    Ok(())
}

fn bytes<T: candle_core::WithDType, const N: usize>(
    tensor: &Tensor,
    to_bytes: impl Fn(T) -> [u8; N],
) -> candle_core::Result<Vec<u8>> {
    let values = tensor.flatten_all()?.to_vec1::<T>()?;
    Ok(values.into_iter().flat_map(to_bytes).collect())
}
