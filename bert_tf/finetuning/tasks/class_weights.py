"""`--class_weights`: factors of the classes in the loss.

Letters: C classes.
"""

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tfrecords.errors import InputError

BALANCED = "balanced"


def of_classes(text: str, labels: Sequence[str], counts: Sequence[int]) -> tuple[float, ...]:
    """Returns the factor of each class where an example has one label.

    The factors are divided by their mean over the training examples. So the loss stays a mean over the examples, and
    the learning rate keeps its meaning; only the ratios of the weights count.

    Args:
      text: `balanced`, for the inverse of the counts, or `label=weight,label=weight`, or a JSON object. Labels that are
        left out weigh 1.
      labels: C names.
      counts: training examples of each label.

    Returns:
      C factors.

    Raises:
      InputError: a label is unknown, or a weight is not above 0.
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
    weights = dict.fromkeys(labels, 1.0)
    for label, weight in _parse(text).items():
        if label not in weights:
            raise InputError(f"--class_weights: unknown label {label!r}; the labels are {', '.join(labels)}")
        try:
            weights[label] = float(weight)
        except (TypeError, ValueError):
            weights[label] = math.nan
        if not 0 < weights[label] < math.inf:
            raise InputError(f"--class_weights: the weight {weight!r} of {label!r} is not a finite number above 0")
    return np.array(list(weights.values()))


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
