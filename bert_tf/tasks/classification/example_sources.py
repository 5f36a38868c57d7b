"""Where the examples of a user's own task come from: files of several formats.

A source reads; what is learned from the examples is the task's concern.
"""

import abc
import dataclasses
import functools
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.runs import run_folder
from bert_tf.tasks import tables
from bert_tf.tasks.classification.classification_task import Example
from bert_tf.tasks.json_lines import meaning

_PYTHON_LIST = re.compile(r"\[([^\[\]]*)\]")


class Placed(NamedTuple):
    """An example and its place, as messages name it: file and line."""

    place: str
    example: Example


class ExampleSource(abc.ABC):
    """Examples by split.

    Attributes:
      has_pairs: whether there are two texts.
      kind: of the task, if the source knows it; else "".
      labels: names of the classes, if the source knows them; else ().
      has_label_sets: whether an example has a tuple of labels instead of one.
      has_dev: whether there is dev data.
    """

    has_pairs: bool
    has_dev: bool = True
    kind: str = ""
    labels: tuple[str, ...] = ()
    has_label_sets: bool = False

    @abc.abstractmethod
    def files(self, split: str) -> list[str]:
        """Returns the paths of the files of a split."""

    def name_of(self, split: str) -> str:
        """Returns how messages and reports name the data of a split; by default, the names of its files."""
        return ", ".join(os.path.basename(path) for path in self.files(split)) or "texts"

    def id_name(self) -> str:
        """Returns what heads the names of examples in tables."""
        return "index"

    @abc.abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Returns what decides how the data is read, as JSON: names of flags and their values."""

    def fingerprint(self, split: str) -> list[str]:
        """Returns what identifies the data of a split; by default, name, size and hash of its files."""
        return run_folder.fingerprint(self.files(split))

    def read(self, split: str) -> Sequence[Placed]:
        """Returns the examples of a split, which are read once; those of "test" may have no label.

        Raises:
          InputError: names the place in the data.
        """
        if split not in self._known:
            self._known[split] = self._read(split)
        return self._known[split]

    @functools.cached_property
    def _known(self) -> dict[str, Sequence[Placed]]:
        return {}

    @abc.abstractmethod
    def _read(self, split: str) -> Sequence[Placed]:
        """Reads the examples of a split."""


@dataclasses.dataclass(frozen=True)
class FileSource(ExampleSource):
    """A file for each split: tab-separated, comma-separated or JSON Lines.

    Attributes:
      data_dir: folder of train.tsv, dev.csv or the like.
      paths: of the splits whose file is not the one in `data_dir`.
      format: of all files; "" for what the extension says.
      text_a: column of the first or only text, by name or by number from 0.
      text_b: column of the second text; "" for none.
      label: column of the label.
      id: column of a name of the example in test; "" for none.
      has_header: see `tables.Layout`.
      quoted: see `tables.Layout`.
      separator: between the labels of one cell.
      has_label_sets: whether a label cell has any number of labels.
    """

    data_dir: str
    paths: Mapping[str, str]
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
        """See `ExampleSource`."""
        return bool(self.text_b)

    def id_name(self) -> str:
        """See `ExampleSource`; what the test file, whose heading is read, calls the column of the ids, if it does."""
        (path,) = self.files("test") if self.id else ("",)
        return (tables.heading(path, self._layout(path), self.id) if path else "") or super().id_name()

    @property
    def has_dev(self) -> bool:
        """See `ExampleSource`."""
        return bool(self.paths.get("dev") or tables.files_in(self.data_dir, "dev", self.format))

    def files(self, split: str) -> list[str]:
        """See `ExampleSource`."""
        return [self.paths.get(split) or tables.find_file(self.data_dir, split, self.format)]

    def facts(self) -> Mapping[str, Any]:
        """See `ExampleSource`."""
        return {
            "text_a_column": self.text_a,
            "text_b_column": self.text_b,
            "label_column": self.label,
            "has_header": self.has_header,
            "quoted": self.quoted,
            "label_separator": self.separator,
        }

    def _read(self, split: str) -> list[Placed]:
        (path,) = self.files(split)
        texts = {"text_a": self.text_a, "text_b": self.text_b}
        if split != "test":
            return self._placed(path, texts | {"label": self.label})
        texts["id"] = self.id
        try:
            return self._placed(path, texts | {"label": self.label})
        except InputError as error:
            placed = self._placed(path, texts)  # also says what else is wrong
            logging.info("%s: is predicted without scores (%s)", path, error)
            return placed

    def _layout(self, path: str) -> tables.Layout:
        return tables.Layout(self.format or tables.format_of(path), self.has_header, self.quoted)

    def _placed(self, path: str, columns: Mapping[str, str]) -> list[Placed]:
        layout = self._layout(path)
        wanted = {field: column for field, column in columns.items() if column}
        placed = []
        for line, cells in tables.read_columns(path, layout, tuple(wanted.values())):
            place = f"{path}, line {line}"
            placed.append(Placed(place, self._example(place, dict(zip(wanted, cells, strict=True)))))
        _refuse_repeated_ids(path, placed)
        return placed

    def _example(self, place: str, cells: Mapping[str, Any]) -> Example:
        for name in ("text_a", "text_b"):
            if not isinstance(cells.get(name, ""), str):
                raise InputError(f"{place}: the text is {meaning(cells[name])}, not a string; mend the line")
        label = None
        if "label" in cells:
            label = self._labels(place, cells["label"]) if self.has_label_sets else label_text(place, cells["label"])
        name = None if cells.get("id") is None else str(cells["id"]).strip()
        if name is not None and not name.isprintable():
            raise InputError(f"{place}: the id {name!r} has a newline, tab or control character; rename it")
        return Example(cells["text_a"], cells.get("text_b"), label, name)

    def _labels(self, place: str, cell: Any) -> tuple[str, ...]:
        """Returns the labels of a cell: a JSON list, or labels between separators; empty for none."""
        parts = cell
        if isinstance(cell, str):
            parts = _list_in(cell)
            if parts is None:
                self._refuse_other_lists(place, cell)
                parts = [part.strip() for part in cell.split(self.separator)] if cell.strip() else []
                if "" in parts:
                    raise InputError(
                        f"{place}: the labels {cell.strip()!r} have an empty one beside a separator "
                        f"({self.separator!r}); remove that separator, or give another --label_separator"
                    )
        if not isinstance(parts, list):
            raise InputError(f"{place}: the labels are {meaning(cell)}; give a list of strings, [] for none")
        labels = tuple(label_text(place, part) for part in parts)
        if len(set(labels)) < len(labels):
            raise InputError(f"{place}: names a label twice; remove one")
        return labels

    def _refuse_other_lists(self, place: str, cell: str) -> None:
        """Refuses a list as Python writes it, whose brackets and quotes would become parts of labels."""
        inner = _PYTHON_LIST.fullmatch(cell.strip())
        if inner and (self.separator in inner[1] or "'" in inner[1]):
            raise InputError(
                f"{place}: the labels {cell.strip()!r} are not a JSON list; write them with double quotes, such as "
                '["x", "y"], or without brackets'
            )


def _list_in(cell: str) -> list | None:
    if not (cell.strip().startswith("[") and cell.strip().endswith("]")):
        return None
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return None


def label_text(place: str, cell: Any) -> str:
    """Returns the text of a label: a string without spaces around it, a boolean or a number.

    Raises:
      InputError: it is empty, null, not finite, a list or an object, or would break a line of the files with results.
    """
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int):
        return str(cell)
    if isinstance(cell, float) and not math.isfinite(cell):  # 1e999
        raise InputError(f"{place}: the label is a number beyond float64; mend or remove the line")
    if isinstance(cell, float):
        # 1.0 and 1 are one label: libraries that write JSON turn integers beside missing values into floats.
        return str(int(cell)) if cell == int(cell) and abs(cell) < 1e15 else repr(cell)
    if not isinstance(cell, str):
        remedy = "for several labels, give --multi_label" if isinstance(cell, list) else "mend or remove the line"
        raise InputError(f"{place}: the label is {meaning(cell)}; {remedy}")
    if not cell.strip():
        raise InputError(f"{place}: the label is empty; remove the line, or give it a label")
    if not cell.strip().isprintable():
        raise InputError(f"{place}: the label {cell.strip()!r} has a newline, tab or control character; rename it")
    return cell.strip()


def _refuse_repeated_ids(path: str, placed: Sequence[Placed]) -> None:
    first: dict[str, str] = {}
    for place, example in placed:
        if example.id is not None and first.setdefault(example.id, place) != place:
            where = first[example.id].removeprefix(f"{path}, ")
            raise InputError(f"{place}: the id {example.id!r} is also on {where}; remove one, or give them own ids")
