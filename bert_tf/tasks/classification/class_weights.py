"""`--class_weights`: factors of the classes in the loss.

Letters: C classes.
"""

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.core.errors import InputError

BALANCED = "balanced"
# Gives the weight of all classes that are not named, unless a class has this name.
OTHER = "other"


def of_classes(text: str, labels: Sequence[str], counts: Sequence[int]) -> tuple[float, ...]:
    """Returns the factor of each class where an example has one label.

    The factors are divided by their mean over the training examples. So the loss stays a mean over the examples, and
    the learning rate keeps its meaning; only the ratios of the weights count.

    Args:
      text: `balanced`, for the inverse of the counts, or `label=weight,label=weight`, or a JSON object. Each label has
        a weight there, or `other` has the weight of those that are left out.
      labels: C names.
      counts: training examples of each label.

    Returns:
      C factors.

    Raises:
      InputError: a label is unknown or lacks a weight, or a weight is not above 0.
    """
    counts = np.asarray(counts, np.float64)
    given = 1 / np.maximum(counts, 1) if text == BALANCED else _given(text, labels)
    return tuple((given * counts.sum() / (given * counts).sum()).tolist())


def of_label_sets(text: str, labels: Sequence[str], counts: Sequence[int], num_examples: int) -> tuple[float, ...]:
    """Returns the factor of each label on the examples that have it, where an example has any number of labels.

    `balanced` gives the number of examples without the label for each with it, so that both sides weigh the same.

    Args, Raises: those of `of_classes`; `num_examples` of training.
    """
    if text != BALANCED:
        return tuple(_given(text, labels).tolist())
    return tuple((num_examples - count) / count if 0 < count < num_examples else 1.0 for count in counts)


def _given(text: str, labels: Sequence[str]) -> np.ndarray:
    given = {label: _weight(label, weight) for label, weight in _parse(text).items()}
    if unknown := [label for label in given if label not in (*labels, OTHER)]:
        raise InputError(f"--class_weights: unknown label {unknown[0]!r}; the labels are {', '.join(labels)}")
    missing = [label for label in labels if label not in given]
    if missing and (OTHER not in given or OTHER in labels):
        rest = "" if OTHER in labels else f", or add {OTHER}=1 for all that are not named"
        raise InputError(f"--class_weights: {', '.join(missing)} without a weight; name every class{rest}")
    return np.array([given[label] if label in given else given[OTHER] for label in labels])


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
