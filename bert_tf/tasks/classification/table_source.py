"""Reads the texts and the labels of a user's own data from files with columns."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from bert_tf.core.errors import InputError
from bert_tf.tasks import tables
from bert_tf.tasks.classification.classification_task import Example
from bert_tf.tasks.example_source import ExampleSource, FileSource, Placed, with_labels_if_right
from bert_tf.tasks.json_lines import meaning


class TextSource(ExampleSource):
    """A source of texts and labels. Each `Placed` contains an `Example`.

    Attributes:
      has_pairs: whether an example has two texts.
      kind: kind of the task; "" if the source does not know the kind.
      labels: names of the classes; () if the source does not know them.
      has_label_sets: whether an example has a tuple of labels instead of one label.
    """

    has_pairs: bool
    kind: str = ""
    labels: tuple[str, ...] = ()
    has_label_sets: bool = False

    def id_name(self) -> str:
        """Returns the title of the column that contains the examples' ids in prediction files."""
        return "index"


@dataclasses.dataclass(frozen=True)
class TableSource(FileSource, TextSource):
    """A source with one file per split; the files are tab-separated, comma-separated or JSON Lines.

    A column is given by its name, or by its number counted from 0.

    Attributes:
      data_dir: see `FileSource`.
      paths: see `FileSource`.
      format: format of all files; if "", a file's extension determines the format of this file.
      text_a: column of the first or only text.
      text_b: column of the second text; "" if absent.
      label: column of the label.
      id: column of the examples' ids in the test data; "" if absent.
      has_header: see `tables.Layout`.
      quoted: see `tables.Layout`.
      separator: separator between the labels in a cell.
      has_label_sets: whether a cell may contain any number of labels.
    """

    format: str
    text_a: str
    text_b: str
    label: str
    id: str
    has_header: bool
    quoted: bool | None
    separator: str
    has_label_sets: bool

    @property
    def has_pairs(self) -> bool:
        return bool(self.text_b)

    def id_name(self) -> str:
        """See `TextSource`. If the test file names its columns, the title is the name of the id column."""
        if not self.id:
            return super().id_name()
        (path,) = self.files("test")
        return tables.read_columns(path, self.layout(path), (self.id,)).names[0] or super().id_name()

    def file_names(self, split: str) -> list[str]:
        return tables.file_names(split, self.format)

    def layout(self, path: str) -> tables.Layout:
        """Returns the layout of a file."""
        return tables.Layout(self.format or tables.format_of(path), self.has_header, self.quoted)

    def facts(self) -> Mapping[str, Any]:
        return {
            "text_a_column": self.text_a,
            "text_b_column": self.text_b,
            "label_column": self.label,
            "has_header": self.has_header,
            "quoted": self.quoted,
            "label_separator": self.separator,
        }

    def read_file(self, path: str, split: str) -> list[Placed]:
        columns = {"text_a": self.text_a, "text_b": self.text_b, "id": self.id if split == "test" else ""}

        def read(with_labels: bool) -> list[Placed]:
            named = columns | {"label": self.label} if with_labels else columns
            wanted = {field: column for field, column in named.items() if column}
            placed = []
            for line, cells in tables.read_columns(path, self.layout(path), tuple(wanted.values())).rows:
                place = f"{path}, line {line}"
                placed.append(Placed(place, self._example(place, dict(zip(wanted, cells, strict=True)))))
            return placed

        return with_labels_if_right(path, split, read)

    def _example(self, place: str, cells: Mapping[str, Any]) -> Example:
        for name in ("text_a", "text_b"):
            if not isinstance(cells.get(name, ""), str):
                raise InputError(f"{place}: the text is {meaning(cells[name])}, not a string; fix the line")
        label = None
        if "label" in cells:
            label = self._labels(place, cells["label"]) if self.has_label_sets else label_text(place, cells["label"])
        name = None if cells.get("id") is None else str(cells["id"]).strip()
        if name is not None and not name.isprintable():
            raise InputError(f"{place}: the id {name!r} has a newline, tab or control character; rename it")
        return Example(cells["text_a"], cells.get("text_b"), label, name)

    def _labels(self, place: str, cell: Any) -> tuple[str, ...]:
        """Returns the labels in a cell. The cell may be empty, a JSON list, or labels with separators between them."""
        parts = cell
        if isinstance(cell, str):
            parts = _list_in(cell)
            if parts is None:
                parts = [part.strip() for part in cell.split(self.separator)] if cell.strip() else []
                if "" in parts:
                    raise InputError(
                        f"{place}: one of the labels {cell.strip()!r} is empty; remove a separator "
                        f"({self.separator!r}), or give another --label_separator"
                    )
        if not isinstance(parts, list):
            raise InputError(f"{place}: the labels are {meaning(cell)}; give a list of strings, or [] for no label")
        labels = tuple(label_text(place, part) for part in parts)
        return tuple(dict.fromkeys(labels))


def _list_in(cell: str) -> list | None:
    if not (cell.strip().startswith("[") and cell.strip().endswith("]")):
        return None
    try:
        return json.loads(cell)
    except ValueError:
        return None


def label_text(place: str, cell: Any) -> str:
    """Returns the text of a label, which is a string, a boolean or a number; removes white space around a string.

    Raises:
      InputError: the label is empty, null, not finite, a list or an object. A label with a control character is also
        refused, because it would break the lines of result files.
    """
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
    if not cell.strip().isprintable():
        raise InputError(f"{place}: the label {cell.strip()!r} has a newline, tab or control character; rename it")
    return cell.strip()
