"""Refuses data with only one class, and warns about doubtful classes, such as two spellings of a class."""

import contextlib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.tasks.classification.classification_task import Example, parse_score

# Warn if the largest class has at least this share of the examples. A constant answer then has an accuracy of at least
# this share.
_LARGE_SHARE = 0.9
# Possible separators between the labels in a cell.
_SEPARATORS = (",", ";", "|", "/", "+")


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


def warn_of_names(labels: Sequence[str], has_sets: bool) -> None:
    """Warns about classes that are probably the same, and about a class that is probably several labels in one cell.

    Args:
      labels: names of all classes.
      has_sets: whether an example may have several labels.
    """
    if len({unicodedata.normalize("NFC", label.casefold()) for label in labels}) < len(set(labels)):
        logging.warning(
            "some classes differ only in case or in the encoding of accents (Unicode NFC or NFD); if this is a "
            "mistake, fix the labels in the files"
        )
    numbers: dict[float, list[str]] = {}
    for label in sorted(set(labels)):
        with contextlib.suppress(InputError):
            numbers.setdefault(parse_score(label), []).append(label)
    for same in numbers.values():
        if len(same) > 1:
            logging.warning("the classes %s are the same number; if this is a mistake, fix the labels in the files",
                            " and ".join(map(repr, same)))  # fmt: skip
    for separator in _SEPARATORS:
        parts = {label: [part.strip() for part in label.split(separator)] for label in labels}
        known = Counter(part for found in parts.values() for part in set(found))
        if joined := [label for label, found in parts.items() if len(found) > 1 and all(known[p] > 1 for p in found)]:
            logging.warning(
                "the class %r looks like several labels; if it is, give %s--label_separator=%r",
                joined[0], "" if has_sets else "--multi_label ", separator,
            )  # fmt: skip


def _counts(examples: Iterable[Example]) -> Counter:
    """Returns the number of examples with each label."""
    counts: Counter = Counter()
    for example in examples:
        counts.update(example.label if isinstance(example.label, tuple) else [example.label])
    return counts
