"""Reads the texts and the labels of a user's own data from files with columns."""

import ast
import dataclasses
import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import items
from bert_tf.core.json_lines import meaning
from bert_tf.tasks import tables
from bert_tf.tasks.classification.example import Example, TextData
from bert_tf.tasks.split_files import file_data, with_labels_if_right

# The flags that decide how a user's files are read.
COLUMN_FLAGS = ("text_a_column", "text_b_column", "label_column", "has_header", "quoted", "label_separator")
# NumPy writes no commas between the elements of a list.
_BETWEEN_STRINGS, _BETWEEN_NUMBERS = re.compile(r"(?<=['\"])\s+(?=['\"])"), re.compile(r"(?<=[\d.])\s+(?=[-\d])")
_UNREADABLE_LIST = re.compile(r"\[[^\[\]]*[\s,'\"][^\[\]]*\]")
_WHOLE_FLOAT = re.compile(r"\A(-?\d+)\.0+\Z")


@dataclasses.dataclass(frozen=True)
class TextTable:
    """The layout of a user's files, which are tab-separated, comma-separated, JSON Lines or Parquet. A column is given
    by its name, or by its number counted from 0."""

    flags: Mapping[str, Any]  # the values of the flags in `COLUMN_FLAGS`, which describe the columns
    format: str = ""  # format of all files; if "", a file's extension determines the format of this file
    # whether an example has any number of labels: all in one cell, or in a column for each label that contains 1 if the
    # label applies, else 0
    has_label_sets: bool = False
    has_scores: bool = False  # whether the labels are numbers
    id: str = ""  # column of the examples' ids in the test data; "" if absent
    # folder of the run whose id column is `id`; the test data may lack this column. "" if a flag names `id`.
    id_is_of: str = ""

    def data(self, data_dir: str, paths: Mapping[str, Sequence[str]], kind: str) -> TextData:
        """Returns data with one file per split; for the paths, see `file_data`."""
        names = functools.partial(tables.file_names, format=self.format)
        data = file_data(data_dir, paths, names, self.read, facts=self.flags)
        labels = self._label_columns if len(self._label_columns) > 1 else ()
        return TextData(data, kind, bool(self.flags["text_b_column"]), labels)

    @property
    def _label_columns(self) -> tuple[str, ...]:
        named = self.flags["label_column"]
        return items(named) if self.has_label_sets else (named,) * bool(named)

    def read(self, path: str, split: str) -> list[Example]:
        """Reads a file; examples of "test" may lack labels."""
        if split != "test" or not self.id:
            return self._read(path, split, "")
        try:
            return self._read(path, split, self.id)
        except tables.MissingColumn as error:
            if not self.id_is_of:
                raise
            examples = self._read(path, split, "")  # raises an error if another column is missing
            logging.warning("predictions have numbers instead of ids; the test data lacks the id column of %s (%s)",
                            self.id_is_of, error)  # fmt: skip
            return examples

    def _read(self, path: str, split: str, id: str) -> list[Example]:
        flags = self.flags
        columns = {"text_a": flags["text_a_column"], "text_b": flags["text_b_column"], "id": id}
        numbers = (flags["label_column"],) if self.has_scores else ()
        layout = tables.Layout(self.format or tables.format_of(path), flags["has_header"], flags["quoted"], numbers)

        def read(with_labels: bool) -> list[Example]:
            wanted = {field: column for field, column in columns.items() if column}
            labels = self._label_columns if with_labels else ()
            return [
                self._example(f"{path}, line {line}", dict(zip(wanted, cells, strict=False)), cells[len(wanted) :])
                for line, cells in tables.read_columns(path, layout, (*wanted.values(), *labels)).rows
            ]

        return with_labels_if_right(path, split, read)

    def _example(self, place: str, cells: Mapping[str, Any], labels: Sequence[Any]) -> Example:
        texts = {name: "" if cells[name] is None else cells[name] for name in ("text_a", "text_b") if name in cells}
        for text in texts.values():
            if not isinstance(text, str):
                raise InputError(f"{place}: the text is {meaning(text)}, not a string; fix the line")
        label = None
        if len(labels) > 1:
            label = _marked(place, dict(zip(self._label_columns, labels, strict=True)))
        elif labels:
            label = self._labels(place, labels[0]) if self.has_label_sets else label_text(place, labels[0])
        name = None if cells.get("id") is None else str(cells["id"]).strip()
        return Example(texts["text_a"], texts.get("text_b"), label, name, place=place)

    def _labels(self, place: str, cell: Any) -> tuple[str, ...]:
        """Returns the labels in a cell. The cell may be empty, a list, or labels with separators between them."""
        parts, separator = cell, self.flags["label_separator"]
        if isinstance(cell, str):
            parts = _list_in(cell)
            if parts is None and _UNREADABLE_LIST.fullmatch(cell.strip()):
                raise InputError(f"{place}: the list of labels {cell.strip()} cannot be read; write it as ['a', 'b']")
            if parts is None:
                parts = [part.strip() for part in cell.split(separator)] if cell.strip() else []
                if "" in parts:
                    raise InputError(
                        f"{place}: one of the labels {cell.strip()!r} is empty; remove a separator "
                        f"({separator!r}), or give another --label_separator"
                    )
        if not isinstance(parts, list):
            raise InputError(f"{place}: the labels are {meaning(cell)}; give a list of strings, or [] for no label")
        labels = tuple(label_text(place, part) for part in parts)
        words = " ".join(labels).split()
        if {*words} <= {"0", "1"} and len({*words}) < len(words):
            raise InputError(
                f"{place}: the labels are {cell!r}, which are 0 or 1 for each label; write the names of the "
                "labels that apply"
            )
        return tuple(dict.fromkeys(labels))


def _marked(place: str, cells: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the labels whose cells contain 1."""
    found = {name: label_text(place, cell).lower() for name, cell in cells.items()}
    for name, text in found.items():
        if text not in ("0", "1", "false", "true"):
            raise InputError(f"{place}: {name} is {text!r}, but with several columns of labels, a cell is 0 or 1")
    return tuple(name for name, text in found.items() if text in ("1", "true"))


def _list_in(cell: str) -> list | None:
    """Returns the list in a cell that JSON, Python, pandas or NumPy wrote; None for other cells."""
    text = cell.strip()
    if text == "set()":
        return []
    if not text or text[0] + text[-1] not in ("[]", "()", "{}"):
        return None
    for parse in (json.loads, _literal):
        try:
            found = parse(text)
        except (ValueError, SyntaxError):
            continue
        if isinstance(found, (list, tuple, set)):
            return sorted(found) if isinstance(found, set) else list(found)
    return None


def _literal(text: str) -> Any:
    between = _BETWEEN_STRINGS if re.search("['\"]", text) else _BETWEEN_NUMBERS
    return ast.literal_eval(between.sub(", ", text))


def label_text(place: str, cell: Any) -> str:
    """Returns the text of a label, which is a string, a boolean or a number; removes white space around a string."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int):
        return str(cell)
    if isinstance(cell, float) and not math.isfinite(cell):  # for example 1e999
        raise InputError(f"{place}: the label is a number beyond float64; fix or remove the line")
    if isinstance(cell, float):
        # 1.0 and 1 are the same label, because some libraries write the integers of a column with missing values as
        # floats.
        return str(int(cell)) if cell == int(cell) and abs(cell) < 1e15 else repr(cell)
    if not isinstance(cell, str):
        remedy = "for several labels, give --multi_label" if isinstance(cell, list) else "fix or remove the line"
        raise InputError(f"{place}: the label is {meaning(cell)}; {remedy}")
    if not cell.strip():
        raise InputError(f"{place}: the label is empty; remove the line, or give it a label")
    if _list_in(cell) is not None:
        raise InputError(f"{place}: the label is the list {cell.strip()}; for several labels, give --multi_label")
    if strange := next((character for character in cell.strip() if not character.isprintable()), ""):
        character = f"U+{ord(strange):04X}, which is not printable"
        raise InputError(f"{place}: the label {cell.strip()!r} has the character {character}; rename the label")
    # pandas writes the integers of a column with missing values as floats.
    return _WHOLE_FLOAT.sub(r"\1", cell.strip())
