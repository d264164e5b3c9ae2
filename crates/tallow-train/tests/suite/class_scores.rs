//! Confusion matrices and what follows from them, against scikit-learn.

use std::collections::BTreeMap;

use candle_core::{Device, Tensor};
use serde_json::Value;
use tallow_train::hooks::ClassScores;
use tallow_train::metrics::{Average, ConfusionMatrix, Scores, top_k_accuracy};

use crate::toy::{CLASSES, batches, quiet, toy};

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    classes: usize,
    labels: Vec<u32>,
    logits: Vec<Vec<f32>>,
    matrix: Vec<Vec<u64>>,
    scores: BTreeMap<String, Value>,
    top_k: BTreeMap<String, f64>,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../golden/classification.json")).unwrap()
}

fn close(scores: Scores, expected: &Value, what: &str) {
    for (index, score) in [scores.precision, scores.recall, scores.f1]
        .into_iter()
        .enumerate()
    {
        let expected = expected[index].as_f64().unwrap();
        assert!(
            (score - expected).abs() < 1e-12,
            "{what}: {scores:?} and {expected}"
        );
    }
}

#[test]
fn matrix_and_scores_are_those_of_scikit_learn() {
    for case in cases() {
        let name = &case.name;
        let logits = Tensor::new(case.logits.clone(), &Device::Cpu).unwrap();
        let labels = Tensor::new(case.labels.as_slice(), &Device::Cpu).unwrap();
        for (zero, expected) in &case.scores {
            let matrix = ConfusionMatrix::new(case.classes).unwrap();
            let mut matrix = matrix.zero_division(zero == "1");
            matrix.add_batch(&logits, &labels, None).unwrap();
            let rows: Vec<&[u64]> = matrix.rows().collect();
            assert_eq!(rows, case.matrix, "{name}");
            for (average, key) in [
                (Average::Macro, "macro"),
                (Average::Micro, "micro"),
                (Average::Weighted, "weighted"),
            ] {
                let what = format!("{name}, {key}, zero division {zero}");
                close(matrix.average(average), &expected[key], &what);
            }
            for (class, scores) in matrix.per_class().into_iter().enumerate() {
                let expected = &expected["classes"][class];
                close(scores, expected, &format!("{name}, class {class}"));
                assert_eq!(scores.support as f64, expected[3].as_f64().unwrap());
            }
        }
        for (k, expected) in &case.top_k {
            let share = top_k_accuracy(&logits, &labels, k.parse().unwrap()).unwrap();
            assert!((share - expected).abs() < 1e-12, "{name}, top {k}");
        }
    }
}

#[test]
fn nothing_is_added_from_what_does_not_fit() {
    let mut matrix = ConfusionMatrix::new(2).unwrap();
    assert!(matrix.add(&[0, 1], &[0]).is_err());
    let message = matrix.add(&[0, 2], &[0, 1]).unwrap_err().to_string();
    assert!(message.contains("from 0 to 1, found 2"), "{message}");
    let logits = Tensor::new(&[[0f32, 1.0, 2.0]], &Device::Cpu).unwrap();
    let labels = Tensor::new(&[0u32], &Device::Cpu).unwrap();
    let message = matrix
        .add_batch(&logits, &labels, None)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("logits [N, 2]") && message.contains("[1, 3]"),
        "{message}"
    );
    assert_eq!((matrix.samples(), matrix.accuracy()), (0, None));
    assert!(ConfusionMatrix::new(0).is_err());
}

#[test]
fn nan_is_the_lowest_logit_and_ignored_labels_are_left_out() {
    let mut matrix = ConfusionMatrix::new(2).unwrap();
    let logits = Tensor::new(
        &[[f32::NAN, -9.0], [1.0, f32::NAN], [0.0, 1.0]],
        &Device::Cpu,
    )
    .unwrap();
    let labels = Tensor::new(&[1u32, 0, 255], &Device::Cpu).unwrap();
    matrix.add_batch(&logits, &labels, Some(255)).unwrap();
    assert_eq!((matrix.samples(), matrix.accuracy()), (2, Some(1.0)));
    assert_eq!(matrix.to_string(), "label  0  1\n    0  1  0\n    1  0  1");
}

#[test]
fn the_hook_records_the_scores_of_every_evaluation() {
    let (model, params) = toy();
    let scores = ClassScores::new(CLASSES)
        .unwrap()
        .average(Average::Weighted);
    let matrix = scores.matrix();
    let mut trainer = quiet(model, params)
        .hook(Box::new(scores))
        .epochs(2)
        .build()
        .unwrap();
    let history = trainer.fit(&batches(2), Some(&batches(3))).unwrap();
    assert_eq!(matrix.get().samples(), 18);
    let record = history.last().unwrap();
    let average = matrix.get().average(Average::Weighted);
    assert_eq!(record.value("f1_weighted").unwrap(), average.f1);
    assert_eq!(
        matrix.get().accuracy(),
        record.value("evaluation/accuracy").ok()
    );

    trainer.evaluate(&batches(1)).unwrap();
    assert_eq!(matrix.get().samples(), 6);
    assert_eq!(
        trainer.history(),
        &history,
        "an evaluation by itself records nothing"
    );
}
