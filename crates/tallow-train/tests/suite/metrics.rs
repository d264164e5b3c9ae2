//! Accuracy and running means: ties, NaN, weights, and what is refused.

use candle_core::{DType, Device, Tensor};
use proptest::prelude::{any, prop};
use proptest::{prop_assert, prop_assert_eq, proptest};
use tallow_train::metrics::{RunningMean, accuracy, top_k_accuracy};

fn logits(rows: &[[f32; 3]]) -> Tensor {
    Tensor::from_slice(rows.as_flattened(), (rows.len(), 3), &Device::Cpu).unwrap()
}

fn labels(labels: &[u32]) -> Tensor {
    Tensor::new(labels, &Device::Cpu).unwrap()
}

#[test]
fn top_k_counts_the_labels_among_the_k_highest_logits() {
    let logits = logits(&[[3.0, 2.0, 1.0]; 3]);
    let labels = labels(&[0, 1, 2]);
    for (k, hits) in [(1, 1.0), (2, 2.0), (3, 3.0), (100, 3.0)] {
        let share = top_k_accuracy(&logits, &labels, k).unwrap();
        assert_eq!(share, hits / 3.0, "k = {k}");
    }
}

#[test]
fn of_equal_logits_the_first_counts_as_the_higher() {
    let equal = logits(&[[1.0, 1.0, 1.0]; 3]);
    assert_eq!(accuracy(&equal, &labels(&[0, 0, 0])).unwrap(), 1.0);
    assert_eq!(accuracy(&equal, &labels(&[1, 2, 1])).unwrap(), 0.0);
}

#[test]
fn nan_is_never_right() {
    let nan = logits(&[[f32::NAN; 3], [f32::NAN, 1.0, 0.0]]);
    assert_eq!(accuracy(&nan, &labels(&[0, 0])).unwrap(), 0.0);
    assert_eq!(top_k_accuracy(&nan, &labels(&[2, 0]), 3).unwrap(), 0.0);
}

#[test]
fn half_precision_and_f64_logits_are_measured_too() {
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        let logits = logits(&[[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
            .to_dtype(dtype)
            .unwrap();
        assert_eq!(
            accuracy(&logits, &labels(&[1, 2])).unwrap(),
            0.5,
            "{dtype:?}"
        );
    }
}

#[test]
fn what_does_not_fit_is_an_error_with_both_shapes() {
    let two = logits(&[[0.0; 3]; 2]);
    let cases = [
        (accuracy(&two, &labels(&[0])), "labels [1]"),
        (
            accuracy(&two, &labels(&[0, 3])),
            "a class from 0 to 2, found 3",
        ),
        (top_k_accuracy(&two, &labels(&[0, 0]), 0), "k of top-k"),
        (
            accuracy(&two.flatten_all().unwrap(), &labels(&[0])),
            "logits [6]",
        ),
        (accuracy(&two, &two), "f32 labels [2, 3]"),
    ];
    for (result, part) in cases {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

proptest! {
    /// However samples are split into batches, the running mean is theirs.
    #[test]
    fn a_running_mean_weighs_every_sample_alike(
        values in prop::collection::vec(-100.0..100.0f64, 1..50),
        cut in any::<prop::sample::Index>(),
    ) {
        let (left, right) = values.split_at(cut.index(values.len()));
        let mut mean = RunningMean::default();
        for part in [left, right] {
            if !part.is_empty() {
                mean.add(part.iter().sum::<f64>() / part.len() as f64, part.len() as u64);
            }
        }
        let expected = values.iter().sum::<f64>() / values.len() as f64;
        prop_assert!((mean.mean().unwrap() - expected).abs() < 1e-9);
        prop_assert_eq!(mean.samples(), values.len() as u64);
    }

    /// Top-k accuracy never falls with k, and is 1 once every class is among the k.
    #[test]
    fn top_k_accuracy_rises_with_k(
        rows in prop::collection::vec(prop::array::uniform3(-3i8..3), 1..10),
        label in 0u32..3,
    ) {
        let rows: Vec<[f32; 3]> = rows.iter().map(|row| row.map(f32::from)).collect();
        let labels = labels(&vec![label; rows.len()]);
        let logits = logits(&rows);
        let shares = [1, 2, 3].map(|k| top_k_accuracy(&logits, &labels, k).unwrap());
        prop_assert!(shares[0] <= shares[1] && shares[1] <= shares[2]);
        prop_assert_eq!(shares[2], 1.0);
    }
}
