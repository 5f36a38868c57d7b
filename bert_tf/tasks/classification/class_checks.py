"""Refuses data with only one class, and warns about classes of unequal size."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.tasks.classification.example import Example

# Warn if the largest class has at least this share of the examples. A constant answer then has an accuracy of at least
# this share.
_LARGE_SHARE = 0.9


def check_classes(examples: Mapping[str, Sequence[Example]], labels: Sequence[str], is_weighted: bool) -> None:
    """Checks the classes in train and dev for a task with one label per example.

    Args:
      examples: the examples of each split that was read.
      labels: names of all classes.
      is_weighted: whether the loss has class weights.

    Raises:
      InputError: all examples of train have the same label.
    """
    counts = _counts(examples.get("train", ()))
    if not counts:
        return
    if len(counts) == 1:
        raise InputError(f"train: every example has the label {next(iter(counts))!r}; add examples of another label")
    warn_of_unseen(examples, labels)
    label, most = counts.most_common(1)[0]
    if most >= _LARGE_SHARE * counts.total() and not is_weighted:
        logging.warning("train: %.1f%% of the examples have the label %r; look at macro_f1 rather than accuracy, or "
                        "give --class_weights=balanced", 100 * most / counts.total(), label)  # fmt: skip


def warn_of_unseen(examples: Mapping[str, Sequence[Example]], labels: Iterable[str]) -> None:
    """Warns about labels that no training example has; the warning counts the dev examples with these labels."""
    counts, dev = _counts(examples.get("train", ())), _counts(examples.get("dev", ()))
    unseen = [label for label in labels if not counts[label]]
    if unseen:
        logging.warning("no example of train has the label %s; %d examples of dev have such a label",
                        " or ".join(unseen), sum(dev[label] for label in unseen))  # fmt: skip


def _counts(examples: Iterable[Example]) -> Counter:
    counts: Counter = Counter()
    for example in examples:
        counts.update(example.label if isinstance(example.label, tuple) else [example.label])
    return counts
