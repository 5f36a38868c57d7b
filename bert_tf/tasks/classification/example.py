"""Defines examples of one or two texts, a user's data with such examples, and the names of the kinds of tasks."""

import dataclasses
import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf.finetuning.stratified_split import content_of
from bert_tf.finetuning.task_data import TaskData
from bert_tf.rows import cells

CLASSIFICATION, REGRESSION, MULTI_LABEL = "classification", "regression", "multi_label"
# Names that programs write for a missing value.
_MISSING = ("nan", "none", "null", "\\n", "n/a", "<na>")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclasses.dataclass(frozen=True)
class Example:
    """One or two texts and their label."""

    text_a: str
    text_b: str | None  # the second text; None if absent
    # the name of the class, the names of any number of labels, or the score; None if unknown, as in test files
    label: str | tuple[str, ...] | float | None
    id: str | None = None  # id of the example in its file; None if absent
    # name of the example's part of the split, such as the name of a language; "" for the main part. Each part has
    # separate scores.
    group: str = ""
    # where the example is, for messages; for instance, the file and the line
    place: str = dataclasses.field(default="", repr=False, compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text_a,) if self.text_b is None else (self.text_a, self.text_b)


def of_row(
    place: str, row: Mapping[str, Any], with_label: bool, kind: str, separator: str = ",", marks: Sequence[str] = ()
) -> Example:
    """Returns the example of a row, whose cells are `text_a` and, if there are such columns, `text_b`, `label`, `id`
    and `group`.
    `separator`: the separator between the labels in a cell, if an example has any number of labels.
    `marks`: the cells that mark each label with 1 or 0; () if all labels are in the cell `label`."""
    first = cells.text(place, row, "text_a")
    second = cells.text(place, row, "text_b") if "text_b" in row else None
    label: str | tuple[str, ...] | float | None = None
    if with_label and marks:
        label = cells.marked_labels(place, row, marks)
    elif with_label and "label" in row:
        if kind == MULTI_LABEL:
            label = cells.labels(place, row, "label", separator)
        else:
            label = (cells.number if kind == REGRESSION else cells.label)(place, row, "label")
    id = None if cells.is_missing(row.get("id")) else str(row["id"]).strip()
    return Example(first, second, label, id, row.get("group", ""), place)


def strata(examples: Sequence[Example], has_classes: bool) -> tuple[list[str], list[Hashable]]:
    """Returns the texts and the class of each example, for `stratified_split.held_out`; scores have no classes."""
    classes = [example.label if has_classes else None for example in examples]
    return [content_of(example.text_a, example.text_b) for example in examples], classes


@dataclasses.dataclass(frozen=True)
class TextData:
    """A user's texts and labels."""

    data: TaskData  # the examples; their labels are not checked yet
    kind: str  # the kind of task that fits the labels
    has_pairs: bool  # whether an example has two texts


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Returns class names in their order: numbers by value, other names alphabetically. Warns of names that look like a
    missing value, or like another name."""
    names = set(labels)
    spelled: dict[str, list[str]] = {}
    for name in sorted(names):
        spelled.setdefault(unicodedata.normalize("NFKC", name).casefold(), []).append(name)
    doubtful = [" and ".join(map(ascii, alike)) for alike in spelled.values() if len(alike) > 1]
    doubtful += [name for key, alike in spelled.items() if key in _MISSING for name in alike]
    if doubtful:
        logging.warning("these classes may be one class in two spellings, or a missing value: %s; if so, correct the "
                        "data", "; ".join(doubtful))  # fmt: skip
    are_numbers = all(map(_NUMBER.fullmatch, names))
    return tuple(sorted(names, key=lambda name: (float(name) if are_numbers else 0.0, name)))


def label_counts(labels: Iterable[str | tuple[str, ...] | None]) -> Counter:
    """Counts how often each label occurs; a set of labels counts for each of its labels."""
    counts: Counter = Counter()
    for label in labels:
        counts.update(label if isinstance(label, tuple) else [label])
    return counts
