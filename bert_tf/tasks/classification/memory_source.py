"""Reads examples from lists of texts and labels in memory."""

import collections
import hashlib
import json
import math
import numbers
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.core.json_lines import without_surrogates
from bert_tf.finetuning.task_data import TaskData
from bert_tf.tasks.classification.example import CLASSIFICATION, MULTI_LABEL, REGRESSION, Example, TextData, in_order
from bert_tf.tasks.classification.table_source import label_text
from bert_tf.tasks.tables import rows_of

_INTEGERS = (numbers.Integral, np.bool_)
# If float labels are whole numbers and have at most this many different values, they are perhaps classes.
_FEW = 10
# The columns of a table with the texts; the first that all are there count.
_TEXT_COLUMNS = (("text_a", "text_b"), ("sentence1", "sentence2"), ("text",))
_KINDS = {"strings": CLASSIFICATION, "integers": CLASSIFICATION, "floats": REGRESSION, "sets": MULTI_LABEL}


def memory_source(
    texts: Sequence, labels: Sequence, dev: tuple[Sequence, Sequence] | None, wanted: str = ""
) -> TextData:
    """Returns the data in lists of texts and labels.
    `texts`: strings, pairs of strings, or a table: a list of dicts, a dict of lists, a DataFrame of pandas or polars,
      or a Dataset of the library datasets, with the texts in text, in text_a and text_b, or in sentence1 and sentence2.
    `labels`: strings or integers for classes; floats for a regression; lists, tuples or sets of strings for sets of
      labels; or the name of a table's column.
    `dev`: texts and labels for evaluation; None if there are no separate dev texts.
    `wanted`: the kind of task that the settings name; for REGRESSION, integers are also numbers. "" for the kind that
      fits the labels."""
    stated = _stated_names(texts, labels)
    texts, labels = _columns(texts, labels, "labels", wanted)
    kind = _kind_of(labels)
    if wanted not in ("", kind):
        raise InputError(
            f"labels: are for {kind}, but {wanted}=True is given; give labels for {wanted}, or drop {wanted}"
        )
    splits = {"train": examples_of(texts, labels)}
    names = () if kind == REGRESSION else stated or _class_names(labels)
    values = set(labels) if kind == REGRESSION and not wanted else ()
    if 0 < len(values) <= _FEW and all(float(value).is_integer() for value in values):
        logging.warning("the labels are floats, so the model learns numbers; if they are classes, give integers")
    if dev is not None:
        dev_texts, dev_labels = _columns(*dev, "dev_labels", kind)
        if (found := _kind_of(dev_labels)) != kind:
            raise InputError(f"dev_labels: are for {found}, but the labels are for {kind}; give labels of one kind")
        splits["dev"] = examples_of(dev_texts, dev_labels, "dev_texts")
        if len({examples[0].text_b is None for examples in splits.values()}) > 1:
            raise InputError("dev_texts: texts and dev_texts must both be single texts or both be pairs")
    return _data(splits, kind, names)


def evaluation_source(texts: Sequence, labels: Sequence, kind: str, names: Sequence[str]) -> TextData:
    """Returns data whose "dev" split has texts for the evaluation of a model.
    `texts`: see `memory_source`.
    `labels`: labels of the texts; for a regression, integers are also allowed.
    `names`: names of the model's classes; () for a regression."""
    texts, labels = _columns(texts, labels, "labels", kind)
    if (found := _kind_of(labels)) != kind:
        raise InputError(f"labels: are for {found}, but the model is for {kind}; give labels for {kind}")
    return _data({"dev": examples_of(texts, labels)}, kind, tuple(names))


def _data(splits: Mapping[str, Sequence[Example]], kind: str, labels: tuple[str, ...]) -> TextData:
    def fingerprint(split: str) -> list[str]:
        rows = [(example.text_a, example.text_b, example.label) for example in splits[split]]
        return [f"{len(rows):,} examples, {hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]}"]

    def load(split: str) -> Sequence[Example]:
        if split not in splits:
            raise InputError(f"there are no {split} texts in memory; call predict for texts without labels")
        return splits[split]

    has_pairs = next(iter(splits.values()))[0].text_b is not None
    return TextData(TaskData(load=load, has_dev="dev" in splits, own_fingerprint=fingerprint), kind, has_pairs, labels)


def examples_of(texts: Sequence, labels: Sequence | None = None, what: str = "texts") -> list[Example]:
    """Converts texts and labels to examples.
    `labels`: see `memory_source`; None for texts without labels."""
    if (rows := rows_of(texts)) is not None:
        texts = [_text_in(row, f"{what}[{number}]") for number, row in enumerate(rows)]
    texts = _list_of(texts, what)
    if not texts and labels is not None:
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
    places = [f"{what}[{number}]" for number in range(len(texts))]
    named = [_label(label, f"the label of {place}") for label, place in zip(labels, places, strict=True)]
    return [Example(*pair, label, place=place) for pair, label, place in zip(pairs, named, places, strict=True)]


def _text_in(row: Mapping, where: str) -> Any:
    for names in _TEXT_COLUMNS:
        if all(name in row for name in names):
            return row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)
    raise InputError(f"{where}: is {row!r:.60}; name the columns of the texts text, or text_a and text_b")


def _columns(texts: Any, labels: Any, what: str, kind: str) -> tuple[Any, list]:
    """Returns texts and labels; for a regression, integers become floats. `labels` may name a column of the table
    `texts`, whose rows are then the texts."""
    rows, names = rows_of(texts), _stated_names(texts, labels)
    if rows is not None and isinstance(labels, str):
        for number, row in enumerate(rows):
            if labels not in row:
                raise InputError(f"{what}: row {number} has no column {labels!r}; it has {', '.join(row)}")
        labels = [row[labels] for row in rows]
    labels = _list_of(labels, what)
    if kind == REGRESSION:
        labels = [float(label) if isinstance(label, _INTEGERS) else label for label in labels]
    elif names:
        labels = _named(labels, names)
    return texts if rows is None else rows, labels


def _stated_names(table: Any, column: Any) -> tuple[str, ...]:
    """Returns the names of the classes that a Dataset of the library datasets states for a column; () if none. `column`
    is the column, or its name in `table`."""
    if not isinstance(column, str):
        table, column = getattr(column, "source", None), getattr(column, "column_name", None)
    feature = (getattr(table, "features", None) or {}).get(column)
    return tuple(getattr(getattr(feature, "feature", feature), "names", ()))  # the names of one class or of a list


def _named(label: Any, names: Sequence[str]) -> Any:
    """Replaces the number of a class, also in lists, by the name of the class."""
    if isinstance(label, list):
        return [_named(one, names) for one in label]
    return names[label] if label in range(len(names)) else label  # -1 means no label


def _list_of(values: Any, what: str) -> list:
    """Converts a list, an array, a column of a table or a similar sequence to a list."""
    if isinstance(values, (str, bytes, Mapping, Set)) or not hasattr(values, "__iter__"):
        raise InputError(f"{what}: is of type {type(values).__name__}; give a list")
    if getattr(values, "ndim", 1) > 1:  # iterating over a data frame would give the names of its columns
        raise InputError(
            f"{what}: is a table; give a list of texts, or a list of pairs such as table[['a', 'b']].values.tolist()"
        )
    if hasattr(values, "numpy"):  # a tensor
        values = values.numpy()
    return [value.tolist() if hasattr(value, "tolist") else value for value in values]  # numbers and arrays of NumPy


def _kind_of(labels: Sequence) -> str:
    types = [_type(label) for label in labels]
    counts = collections.Counter(types)
    if len(counts) > 1:
        odd = types.index(min(counts, key=counts.get))
        raise InputError(
            f"the labels mix {' and '.join(sorted(counts))}, such as labels[{odd}], which is {labels[odd]!r:.60}; give "
            "labels of one kind, and leave out rows without a label"
        )
    return _KINDS.get("".join(counts), CLASSIFICATION)


def _type(label) -> str:
    if isinstance(label, (list, tuple, set, frozenset)):
        return "sets"
    if isinstance(label, str):
        return "strings"
    if isinstance(label, _INTEGERS):
        return "integers"
    return "floats" if isinstance(label, numbers.Real) else "other values"


def _class_names(labels: Sequence) -> tuple[str, ...]:
    """Returns the names of the classes; see `in_order`."""
    is_sets = _type(labels[0]) == "sets"
    each = {name for label in labels for name in label} if is_sets else set(labels)
    names = in_order(_label(name, "a label") for name in each)
    if not names:
        raise InputError("no text has a label; give at least two different labels")
    if len(names) < 2:
        raise InputError(f"all labels are {names[0]!r}; a classifier needs at least two classes")
    return names


def _pair(text, where: str) -> tuple[str, str | None]:
    parts = text if isinstance(text, (tuple, list)) else (text, None)
    if len(parts) != 2 or not isinstance(parts[0], str) or not isinstance(parts[1], (str, type(None))):
        raise InputError(f"{where}: is {text!r:.60}; give a string, or a pair of strings")
    first, second = (part if part is None else without_surrogates(part) for part in parts)
    return first, second


def _label(label, where: str) -> str | tuple[str, ...]:
    if _type(label) == "sets":
        if strange := [name for name in label if not isinstance(name, str)]:
            raise InputError(f"{where} has {strange[0]!r:.60}; give sets of strings")
        return tuple(sorted({label_text(where, name) for name in label}))
    if isinstance(label, str):
        label_text(where, label)  # refuses strange labels; unlike in a file, "1.0" is a name
        return label.strip()
    if isinstance(label, _INTEGERS):
        return str(int(label))
    if isinstance(label, numbers.Real) and math.isfinite(label):
        return repr(float(label))
    raise InputError(f"{where} is {label!r:.60}; give a string, an integer, a finite float, or a set of strings")
