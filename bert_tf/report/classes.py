"""Statistics of a classifier's answers: confusion matrix, metrics of each class, calibration.

Letters: N examples, C classes.
"""

import dataclasses

import numpy as np

_BINS = 15


def confusion_matrix(labels: np.ndarray, predictions: np.ndarray, num_classes: int) -> np.ndarray:
    """Counts examples by label (rows) and prediction (columns).

    Args:
      labels: int [N].
      predictions: int [N].
      num_classes: C.

    Returns:
      int64 [C, C].
    """
    return np.bincount(labels * num_classes + predictions, minlength=num_classes**2).reshape(num_classes, num_classes)


@dataclasses.dataclass(frozen=True)
class ClassMetrics:
    """Metrics of each of C labels, float64 [C], 0 where they are undefined.

    `support` counts the examples that have the label, `predicted` those that the model says so of, int64 [C].
    """

    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    support: np.ndarray
    predicted: np.ndarray


def class_metrics(targets: np.ndarray, answers: np.ndarray) -> ClassMetrics:
    """Computes the metrics of each label from a yes or no for each example and label.

    Exactly one yes a row is a multi-class problem; any number is a multi-label one.

    Args:
      targets: bool [N, C], whether the example has the label.
      answers: bool [N, C], whether the model says so.
    """
    right = np.sum(targets & answers, axis=0)
    found, support = np.sum(answers, axis=0), np.sum(targets, axis=0)
    precision, recall = right / np.maximum(found, 1), right / np.maximum(support, 1)
    return ClassMetrics(precision, recall, 2 * right / np.maximum(found + support, 1), support, found)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How often answers of each confidence are right, in bins of equal width that are not empty.

    Attributes:
      confidence: mean confidence of each bin.
      accuracy: share of right answers of each bin.
      count: examples of each bin.
      error: the expected calibration error: mean distance of the two, weighted by the counts.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray
    error: float


def calibration(confidence: np.ndarray, is_right: np.ndarray) -> Calibration:
    """Computes the expected calibration error over 15 bins of equal width (C. Guo et al., 2017).

    Args:
      confidence: float [N], probability of the answer; a bin includes its upper end.
      is_right: bool [N].
    """
    numbers = np.clip(np.ceil(confidence * _BINS).astype(int) - 1, 0, _BINS - 1)
    counts = np.bincount(numbers, minlength=_BINS)
    some = counts > 0
    sums = (np.bincount(numbers, weights=values, minlength=_BINS) for values in (confidence, is_right))
    mean, accuracy = (total[some] / counts[some] for total in sums)
    error = float(np.sum(counts[some] * np.abs(mean - accuracy)) / max(len(confidence), 1))
    return Calibration(mean, accuracy, counts[some], error)
