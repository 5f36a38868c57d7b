"""Reads texts and labels in memory: lists, and tables of any library."""

import collections
import functools
import numbers
from collections.abc import Mapping, Sequence, Set
from typing import Any

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.finetuning.task_data import TaskData, each_row
from bert_tf.rows import Row, cells
from bert_tf.rows.memory import class_names, rows_of, with_class_names
from bert_tf.rows.sources import Memory
from bert_tf.tasks.classification.example import (
    CLASSIFICATION,
    MULTI_LABEL,
    REGRESSION,
    Example,
    TextData,
    in_order,
    of_row,
)

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
    rows = {"train": _labeled(texts, labels, "texts", "labels", wanted)}
    values = [row["label"] for _, row in rows["train"]]
    kind = _kind_of(values, wanted)
    if wanted not in ("", kind):
        raise InputError(
            f"labels: are for {kind}, but {wanted}=True is given; give labels for {wanted}, or drop {wanted}"
        )
    names = () if kind == REGRESSION else class_names(texts, labels) or _names_in(rows["train"])
    different = set(values) if kind == REGRESSION and not wanted else ()
    if 0 < len(different) <= _FEW and all(float(value).is_integer() for value in different):
        logging.warning("the labels are floats, so the model learns numbers; if they are classes, give integers")
    if dev is not None:
        rows["dev"] = _labeled(*dev, "dev_texts", "dev_labels", kind)
        if (of_dev := _kind_of([row["label"] for _, row in rows["dev"]], kind)) != kind:
            raise InputError(f"dev_labels: are for {of_dev}, but the labels are for {kind}; give labels of one kind")
        if len({"text_b" in of_split[0][1] for of_split in rows.values()}) > 1:
            raise InputError("dev_texts: texts and dev_texts must both be single texts or both be pairs")
    return _data(rows, kind, names)


def evaluation_source(texts: Sequence, labels: Sequence, kind: str, names: Sequence[str]) -> TextData:
    """Returns data whose "dev" split has texts for the evaluation of a model.
    `texts`: see `memory_source`.
    `labels`: labels of the texts; for a regression, integers are also allowed.
    `names`: names of the model's classes; () for a regression."""
    rows = _labeled(texts, labels, "texts", "labels", kind)
    if (of_labels := _kind_of([row["label"] for _, row in rows], kind)) != kind:
        raise InputError(f"labels: are for {of_labels}, but the model is for {kind}; give labels for {kind}")
    return _data({"dev": rows}, kind, tuple(names))


def _data(rows: Mapping[str, Sequence[Row]], kind: str, names: tuple[str, ...]) -> TextData:
    source = Memory(rows, "texts in memory", names, "call predict for texts without labels")
    has_pairs = "text_b" in next(iter(rows.values()))[0][1]
    return TextData(TaskData.of(source, each_row(functools.partial(of_row, kind=kind))), kind, has_pairs)


def examples_of(texts: Sequence) -> list[Example]:
    """Converts texts without labels to examples; see `memory_source`."""
    return [of_row(place, row, False, CLASSIFICATION) for place, row in _rows_of_texts(texts, "texts")]


def _labeled(texts: Any, labels: Any, of_texts: str, of_labels: str, kind: str) -> list[Row]:
    """Returns the rows of texts and labels. `labels` may name a column of the table `texts`."""
    names, table = () if kind == REGRESSION else class_names(texts, labels), rows_of(texts)
    if table is not None and isinstance(labels, str):
        for number, row in enumerate(table):
            if labels not in row:
                raise InputError(f"{of_labels}: row {number} has no column {labels!r}; it has {', '.join(row)}")
        labels = [row[labels] for row in table]
    labels = _list_of(labels, of_labels)
    rows = _rows_of_texts(texts if table is None else table, of_texts)
    if not rows:
        raise InputError(f"{of_texts}: is empty; give at least one text")
    if len(labels) != len(rows):
        raise InputError(f"{len(rows)} {of_texts}, but {len(labels)} labels; give one label for each text")
    # a set has no order, but the labels of an example need one that is always the same
    labels = [sorted(label, key=str) if isinstance(label, Set) else label for label in labels]
    labels = [list(label) if isinstance(label, tuple) else label for label in labels]
    labels = with_class_names(labels, names) if names else labels
    return [(place, {**row, "label": label}) for (place, row), label in zip(rows, labels, strict=True)]


def _rows_of_texts(texts: Any, what: str) -> list[Row]:
    if (table := rows_of(texts)) is not None:
        texts = [_text_in(row, f"{what}[{number}]") for number, row in enumerate(table)]
    rows: list[Row] = []
    for number, text in enumerate(_list_of(texts, what)):
        place, parts = f"{what}[{number}]", text if isinstance(text, (tuple, list)) else (text,)
        if len(parts) not in (1, 2) or not all(isinstance(part, str) for part in parts):
            raise InputError(f"{place}: is {text!r:.60}; give a string, or a pair of strings")
        rows.append((place, dict(zip(("text_a", "text_b"), parts, strict=False))))
        if len(rows[0][1]) != len(parts):
            raise InputError(f"{place}: single texts and pairs are mixed; give only single texts or only pairs")
    return rows


def _text_in(row: Mapping, place: str) -> Any:
    for names in _TEXT_COLUMNS:
        if all(name in row for name in names):
            texts = tuple(cells.text(place, row, name) for name in names)
            return texts if len(texts) > 1 else texts[0]
    raise InputError(f"{place}: is {row!r:.60}; name the columns of the texts text, or text_a and text_b")


def _list_of(values: Any, what: str) -> list:
    """Converts a list, an array, a column of a table or a similar sequence to a list."""
    if isinstance(values, (str, bytes, Mapping, Set)) or not hasattr(values, "__iter__"):
        raise InputError(f"{what}: is of type {type(values).__name__}; give a list")
    if getattr(values, "ndim", 1) > 1:  # iterating over a data frame would give the names of its columns
        raise InputError(
            f"{what}: is a table; give a list of texts, or a list of pairs such as table[['a', 'b']].values.tolist()"
        )
    for convert in ("numpy", "to_list"):  # of a tensor, and of a column of pandas or polars
        values = getattr(values, convert)() if hasattr(values, convert) else values
    return [value.tolist() if hasattr(value, "tolist") else value for value in values]  # numbers and arrays of NumPy


def _kind_of(labels: Sequence, wanted: str) -> str:
    types = [_type(label) for label in labels]
    counts = collections.Counter(types)
    if wanted == REGRESSION and set(counts) <= {"floats", "integers"}:
        return REGRESSION
    if len(counts) > 1:
        odd = types.index(min(counts, key=counts.get))
        raise InputError(
            f"the labels mix {' and '.join(sorted(counts))}, such as labels[{odd}], which is {labels[odd]!r:.60}; give "
            "labels of one kind, and leave out rows without a label"
        )
    return _KINDS.get("".join(counts), CLASSIFICATION)


def _type(label: Any) -> str:
    if isinstance(label, list):
        return "sets"
    if isinstance(label, str):
        return "strings"
    if isinstance(label, numbers.Integral):
        return "integers"
    return "floats" if isinstance(label, numbers.Real) else "other values"


def _names_in(rows: Sequence[Row]) -> tuple[str, ...]:
    """Returns the names of the classes; see `in_order`."""
    labels = [(place, row["label"]) for place, row in rows]
    each = ((place, name) for place, label in labels for name in (label if isinstance(label, list) else [label]))
    names = in_order(cells.label_text(place, name) for place, name in each)
    if not names:
        raise InputError("no text has a label; give at least two different labels")
    if len(names) < 2:
        raise InputError(f"all labels are {names[0]!r}; a classifier needs at least two classes")
    return names
