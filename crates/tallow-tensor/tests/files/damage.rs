//! Truncated, flipped and hostile bytes: a clear error that names the file, never a panic or a changed model.

use std::sync::OnceLock;

use candle_core::DType;
use proptest::prelude::*;
use tallow_tensor::params::{Metadata, Strict, TensorFile};
use tallow_tensor::{Error, Params};

use crate::{Folder, Outcome, message, model, values};

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
