"""Converts the flag `--class_weights` to factors of the classes in the loss."""

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.core.errors import InputError

BALANCED = "balanced"
# Unless a class has this name, the weight of this name applies to all classes without a given weight.
OTHER = "other"


def of_classes(text: str, labels: Sequence[str], counts: Sequence[int]) -> tuple[float, ...]:
    """Returns the factor of each class in the loss, for a task with one label per example. The factors are divided by
    their mean over the training examples, so only the ratios of the given weights matter. Because the loss keeps its
    scale, the same learning rate suits training with and without class weights.
    `text`: `balanced`, `label=weight,label=weight`, or a JSON object that maps labels to weights. `balanced` means that
      the weight of a class is the inverse of its count. Labels that are left out have the weight of `other`.
    `labels`: names of the C classes.
    `counts`: number of training examples of each class."""
    counts = np.asarray(counts, np.float64)
    weights = 1 / np.maximum(counts, 1) if text == BALANCED else _weights(text, labels)
    return tuple((weights * counts.sum() / (weights * counts).sum()).tolist())


def of_label_sets(text: str, labels: Sequence[str], counts: Sequence[int], num_examples: int) -> tuple[float, ...]:
    """Returns the factor of each label in the loss of the examples with this label, for a task with sets of labels. For
    `balanced`, the factor is the number of examples without the label, divided by the number of examples with the
    label. Both groups of examples then have the same total weight. If one of these numbers is 0, the factor is 1.
    `text`: see `of_classes`.
    `labels`: names of the C labels.
    `counts`: number of training examples with each label.
    `num_examples`: number of training examples."""
    if text != BALANCED:
        return tuple(_weights(text, labels).tolist())
    return tuple((num_examples - count) / count if 0 < count < num_examples else 1.0 for count in counts)


def _weights(text: str, labels: Sequence[str]) -> np.ndarray:
    weights = {label: _weight(label, weight) for label, weight in _parse(text).items()}
    if unknown := [label for label in weights if label not in (*labels, OTHER)]:
        raise InputError(f"--class_weights: unknown label {unknown[0]!r}; the labels are {', '.join(labels)}")
    missing = [label for label in labels if label not in weights]
    if missing and (OTHER not in weights or OTHER in labels):
        rest = "" if OTHER in labels else f", or add {OTHER}=1 for all other classes"
        raise InputError(f"--class_weights: no weight for {', '.join(missing)}; give a weight for every class{rest}")
    return np.array([weights[label if label in weights else OTHER] for label in labels])


def _weight(label: str, weight: object) -> float:
    try:
        value = float(weight)
    except (TypeError, ValueError):
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"--class_weights: the weight {weight!r} of {label!r} is not a finite number above 0")
    return value


def _parse(text: str) -> Mapping[str, object]:
    wrong = f"--class_weights={text}: write balanced, or label=weight,label=weight, or a JSON object"
    if text.startswith("{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise InputError(wrong) from error
    pairs = [part.rpartition("=") for part in text.split(",")]
    if not all(label.strip() for label, _, _ in pairs):
        raise InputError(wrong)
    return {label.strip(): weight.strip() for label, _, weight in pairs}
