"""Reads examples from lists of texts and labels in memory."""

import dataclasses
import hashlib
import json
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.tasks.classification.classification_task import CLASSIFICATION, REGRESSION, Example
from bert_tf.tasks.classification.multi_label import MULTI_LABEL
from bert_tf.tasks.classification.table_source import TextSource, label_text
from bert_tf.tasks.example_source import Placed

_INTEGERS = (numbers.Integral, np.bool_)
# If float labels are whole numbers and have at most this many different values, they are perhaps classes.
_FEW = 10
_KINDS = {"strings": CLASSIFICATION, "integers": CLASSIFICATION, "floats": REGRESSION, "sets": MULTI_LABEL}


@dataclasses.dataclass(frozen=True)
class MemorySource(TextSource):
    """A source of texts and labels that are in memory.

    Attributes:
      splits: maps the name of a split, "train" or "dev", to its examples.
      kind: kind of the task, which depends on the type of the labels.
      labels: names of the classes; () for a regression.
    """

    splits: Mapping[str, Sequence[Placed]]
    kind: str
    labels: tuple[str, ...]

    @property
    def has_pairs(self) -> bool:
        return next(iter(self.splits.values()))[0].example.text_b is not None

    @property
    def has_label_sets(self) -> bool:
        return self.kind == MULTI_LABEL

    @property
    def has_dev(self) -> bool:
        return "dev" in self.splits

    def files(self, split: str) -> list[str]:
        """Returns [], because the texts are not in files."""
        return []

    def fingerprint(self, split: str) -> list[str]:
        """Returns the number of examples and a hash of their texts and labels."""
        rows = [(example.text_a, example.text_b, example.label) for _, example in self.splits[split]]
        return [f"{len(rows):,} examples, {hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]}"]

    def _read(self, split: str) -> Sequence[Placed]:
        if split not in self.splits:
            raise InputError(f"there are no {split} texts in memory; call predict for texts without labels")
        return self.splits[split]


def memory_source(texts: Sequence, labels: Sequence, dev: tuple[Sequence, Sequence] | None) -> MemorySource:
    """Returns a source that reads lists of texts and labels.

    Args:
      texts: strings, or pairs of strings.
      labels: strings or integers for classes; floats for a regression; lists, tuples or sets of strings for sets of
        labels.
      dev: texts and labels for evaluation; None if there are no separate dev texts.

    Raises:
      InputError: a text or a label is invalid; the message names the text or the label.
    """
    labels = _list_of(labels, "labels")
    kind = _kind_of(labels)
    placed = _placed(examples_of(texts, labels), "texts")
    names = () if kind == REGRESSION else _class_names(labels)
    if kind == REGRESSION and len(set(labels)) <= _FEW and all(float(label).is_integer() for label in labels):
        logging.warning("the labels are floats, so the model learns numbers; if they are classes, give integers")
    if dev is None:
        return MemorySource({"train": placed}, kind, names)
    dev_texts, dev_labels = dev[0], _list_of(dev[1], "dev_labels")
    if (found := _kind_of(dev_labels)) != kind:
        raise InputError(f"dev_labels: are for {found}, but the labels are for {kind}; give labels of one kind")
    placed_dev = _placed(examples_of(dev_texts, dev_labels, "dev_texts"), "dev_texts")
    return MemorySource({"train": placed, "dev": placed_dev}, kind, names)


def evaluation_source(texts: Sequence, labels: Sequence, kind: str, names: Sequence[str]) -> MemorySource:
    """Returns a source whose "dev" split has texts for the evaluation of a model.

    Args:
      texts: see `memory_source`.
      labels: labels of the texts; for a regression, integers are also allowed.
      kind: kind of the model's task.
      names: names of the model's classes; () for a regression.

    Raises:
      InputError: a text or a label is invalid, or the labels are for another kind of task.
    """
    labels = _list_of(labels, "labels")
    if kind == REGRESSION:
        labels = [float(label) if isinstance(label, _INTEGERS) else label for label in labels]
    if (found := _kind_of(labels)) != kind:
        raise InputError(f"labels: are for {found}, but the model is for {kind}; give labels for {kind}")
    return MemorySource({"dev": _placed(examples_of(texts, labels), "texts")}, kind, tuple(names))


def examples_of(texts: Sequence, labels: Sequence | None = None, what: str = "texts") -> list[Example]:
    """Converts texts and labels to examples.

    Args:
      texts: strings, or pairs of strings.
      labels: see `memory_source`; None for texts without labels.
      what: name of the texts in messages.

    Raises:
      InputError: a text or a label is invalid; the message names the text or the label.
    """
    texts = _list_of(texts, what)
    if not texts:
        raise InputError(f"{what}: is empty; give at least one text")
    pairs = [_pair(text, f"{what}[{number}]") for number, text in enumerate(texts)]
    for number, (_, second) in enumerate(pairs):
        if (second is None) != (pairs[0][1] is None):
            raise InputError(
                f"{what}[{number}]: single texts and pairs are mixed; give only single texts or only pairs"
            )
    if labels is None:
        return [Example(first, second, None) for first, second in pairs]
    if len(labels) != len(texts):
        raise InputError(f"{len(texts)} {what}, but {len(labels)} labels; give one label for each text")
    named = [_label(label, f"the label of {what}[{number}]") for number, label in enumerate(labels)]
    return [Example(*pair, label) for pair, label in zip(pairs, named, strict=True)]


def _list_of(values: Any, what: str) -> list:
    """Converts a list, an array, a column of a table or a similar sequence to a list.

    Raises:
      InputError: the value is a string or a table.
    """
    if isinstance(values, (str, bytes)):
        raise InputError(f"{what}: is one string; give a list")
    if getattr(values, "ndim", 1) > 1:  # iterating over a data frame would give the names of its columns
        raise InputError(
            f"{what}: is a table; give a list of texts, or a list of pairs such as table[['a', 'b']].values.tolist()"
        )
    return list(values)


def _placed(examples: Sequence[Example], what: str) -> list[Placed]:
    return [Placed(f"{what}[{number}]", example) for number, example in enumerate(examples)]


def _kind_of(labels: Sequence) -> str:
    """Returns the kind of task that the type of the labels determines.

    Raises:
      InputError: labels of different types are mixed.
    """
    types = {_type(label) for label in labels}
    if len(types) > 1:
        raise InputError(f"the labels mix {' and '.join(sorted(types))}; give labels of one kind")
    return _KINDS.get("".join(types), CLASSIFICATION)


def _type(label) -> str:
    if isinstance(label, (list, tuple, set, frozenset)):
        return "sets"
    if isinstance(label, str):
        return "strings"
    if isinstance(label, _INTEGERS):
        return "integers"
    return "floats" if isinstance(label, numbers.Real) else "other values"


def _class_names(labels: Sequence) -> tuple[str, ...]:
    """Returns the names of the classes: strings in alphabetical order, integers in ascending order.

    Raises:
      InputError: there is only one class, or no text has a label.
    """
    is_sets = _type(labels[0]) == "sets"
    each = {name for label in labels for name in label} if is_sets else set(labels)
    names = tuple(dict.fromkeys(_label(name, "a label") for name in sorted(each)))
    if not names:
        raise InputError("no text has a label; give at least two different labels")
    if len(names) < 2:
        raise InputError(f"all labels are {names[0]!r}; a classifier needs at least two classes")
    return names


def _pair(text, where: str) -> tuple[str, str | None]:
    parts = text if isinstance(text, (tuple, list)) else (text, None)
    if len(parts) != 2 or not isinstance(parts[0], str) or not isinstance(parts[1], (str, type(None))):
        raise InputError(f"{where}: is {text!r:.60}; give a string, or a pair of strings")
    return parts[0], parts[1]


def _label(label, where: str) -> str | tuple[str, ...]:
    if _type(label) == "sets":
        if strange := [name for name in label if not isinstance(name, str)]:
            raise InputError(f"{where} has {strange[0]!r:.60}; give sets of strings")
        return tuple(sorted({label_text(where, name) for name in label}))
    if isinstance(label, str):
        return label_text(where, label)
    if isinstance(label, _INTEGERS):
        return str(int(label))
    if isinstance(label, numbers.Real) and math.isfinite(label):
        return repr(float(label))
    raise InputError(f"{where} is {label!r:.60}; give a string, an integer, a finite float, or a set of strings")
