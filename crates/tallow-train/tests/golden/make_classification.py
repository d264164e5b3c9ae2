"""Writes classification.json: confusion matrices, scores and top-k accuracies of scikit-learn.

    python make_classification.py     # needs scikit-learn and numpy; written with scikit-learn 1.9.1
"""

import json
import pathlib

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support, top_k_accuracy_score


def case(name, labels, logits):
    classes = logits.shape[1]
    predictions = logits.argmax(1)
    ids = list(range(classes))
    out = {"name": name, "classes": classes, "labels": labels.tolist(), "logits": logits.tolist(),
           "matrix": confusion_matrix(labels, predictions, labels=ids).tolist(), "scores": {}, "top_k": {}}
    for zero in (0, 1):
        scores = {}
        for average in ("macro", "micro", "weighted"):
            p, r, f, _ = precision_recall_fscore_support(labels, predictions, labels=ids, average=average, zero_division=zero)
            scores[average] = [p, r, f]
        rows = precision_recall_fscore_support(labels, predictions, labels=ids, average=None, zero_division=zero)
        scores["classes"] = [[float(x) for x in row] for row in zip(*rows)]
        out["scores"][str(zero)] = scores
    for k in (1, 2, 3):
        if k < classes:
            out["top_k"][str(k)] = float(top_k_accuracy_score(labels, logits, k=k, labels=ids))
    return out


def main():
    rng = np.random.default_rng(0)
    logits = lambda n, c: rng.normal(size=(n, c)).round(4)
    cases = [
        case("random", rng.integers(0, 5, 60), logits(60, 5)),
        case("a class without samples", rng.integers(0, 3, 40), logits(40, 4)),
        case("a class never predicted", rng.integers(0, 4, 40), logits(40, 4) - np.array([0, 0, 0, 100])),
        case("neither", rng.integers(0, 3, 30), logits(30, 4) - np.array([0, 0, 0, 100])),
        case("one sample", np.array([1]), logits(1, 3)),
        case("all wrong", np.array([0, 1, 2]), np.array([[0., 1, 0], [0, 0, 1], [1, 0, 0]]) + np.array([0, .01, .02])),
    ]
    path = pathlib.Path(__file__).parent / "classification.json"
    path.write_text(json.dumps(cases, separators=(",", ":")) + "\n")


main()
