"""Sources of a task's examples. A kind of task implements only the reading of one file."""

import abc
import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.runs import run_folder
from bert_tf.settings.finetuning import PATH_FLAGS
from bert_tf.tasks import tables


class Placed(NamedTuple):
    """An example and its place.

    Attributes:
      place: where the example is, for messages; for instance, the file and the line.
      example: the example.
    """

    place: str
    example: Any


class ExampleSource(abc.ABC):
    """A source of the examples of each split.

    Attributes:
      has_dev: whether there is dev data.
    """

    has_dev: bool = True

    @abc.abstractmethod
    def files(self, split: str) -> list[str]:
        """Returns the paths of the files of a split."""

    def name_of(self, split: str) -> str:
        """Returns the name of a split's data for messages and reports; by default, the names of the split's files."""
        return ", ".join(os.path.basename(path) for path in self.files(split)) or "texts"

    def facts(self) -> Mapping[str, Any]:
        """Returns the flags that determine how the data is read, with their values; JSON can represent these values."""
        return {}

    def fingerprint(self, split: str) -> list[str]:
        """Returns the identity of a split's data; by default, the name, the size and the hash of each file."""
        return run_folder.fingerprint(self.files(split), whole=True)

    def read(self, split: str) -> Sequence[Placed]:
        """Returns the examples of a split; examples of "test" may lack labels. Reads the files only at the first call.

        Raises:
          InputError: the data is invalid; the message names the place.
        """
        if split not in self._known:
            self._known[split] = self._read(split)
        return self._known[split]

    def examples(self, split: str) -> list[Any]:
        """Returns the examples of a split without their places."""
        return [example for _, example in self.read(split)]

    @functools.cached_property
    def _known(self) -> dict[str, Sequence[Placed]]:
        return {}

    @abc.abstractmethod
    def _read(self, split: str) -> Sequence[Placed]:
        """Reads the examples of a split."""


@dataclasses.dataclass(frozen=True)
class FileSource(ExampleSource):
    """A source that reads the examples of each split from files. Flags name the files, or the files are in a folder.

    Attributes:
      data_dir: folder that contains the files of each split that is not in `paths`.
      paths: maps a split to the files that a flag names.
    """

    data_dir: str
    paths: Mapping[str, Sequence[str]]

    def file_names(self, split: str) -> Sequence[str]:
        """Returns the names that a split's file may have in `data_dir`; by default, see `tables.file_names`."""
        return tables.file_names(split)

    @abc.abstractmethod
    def read_file(self, path: str, split: str) -> list[Placed]:
        """Reads a file of a split.

        Raises:
          InputError: the file is invalid; the message names the file and the line.
        """

    @property
    def has_dev(self) -> bool:
        """Whether there is a file with dev data."""
        return bool(self.found("dev"))

    def files(self, split: str) -> list[str]:
        """Returns the paths of a split's files.

        Raises:
          InputError: no flag names a file, and the folder contains no file or several files of the split.
        """
        found, flag = self.found(split), PATH_FLAGS[split]
        if len(found) > 1 and not self.paths.get(split):
            names = " and ".join(map(os.path.basename, found))
            raise InputError(f"--data_dir={self.data_dir}: has {names}; choose one with --{flag}")
        if not found:
            more = ", or --dev_share=0.1 to hold out a tenth of the training data" if split == "dev" else ""
            raise InputError(
                f"--data_dir={self.data_dir}: has none of {', '.join(self.file_names(split))}; check the folder, or "
                f"give --{flag}{more}"
            )
        return found

    def found(self, split: str) -> list[str]:
        """Returns a split's files: the files that a flag names, else the files in `data_dir`; [] if there are none."""
        paths = [os.path.join(self.data_dir, name) for name in self.file_names(split) if self.data_dir]
        return list(self.paths.get(split, ())) or [path for path in paths if tf.io.gfile.exists(path)]

    def _read(self, split: str) -> list[Placed]:
        found = []
        for path in self.files(split):
            if not (placed := self.read_file(path, split)):
                raise InputError(f"{path}: holds no example; add a line for each text")
            refuse_repeated_ids(path, placed, len(found))
            found += placed
        return found


def refuse_repeated_ids(path: str, placed: Sequence[Placed], start: int = 0) -> None:
    """Raises InputError if two examples of a file would have the same name in prediction files, or if an id is empty.

    The name of an example is its id; if the example has no id, its name is its index.

    Args:
      path: path of the file.
      placed: examples of the file.
      start: index of the first example.
    """
    first: dict[str, tuple[str, str | None]] = {}
    for number, (place, example) in enumerate(placed, start):
        id = getattr(example, "id", None)
        if id == "":
            raise InputError(f"{place}: the id is empty; give each example a unique id")
        name = str(number) if id is None else id
        other, other_id = first.setdefault(name, (place, id))
        if other != place:
            what = f"the id {name!r} is also the id of {other.removeprefix(f'{path}, ')}"
            reason = " (an example without an id has its number as its id)" if None in (id, other_id) else ""
            raise InputError(f"{place}: {what}{reason}; give each example a unique id")


def with_labels_if_right(path: str, split: str, read: Callable[[bool], list[Placed]]) -> list[Placed]:
    """Reads a file with its labels. If the labels of a test file are invalid, reads this file again without the labels.

    Args:
      path: path of the file, for messages.
      split: split of the file.
      read: function that reads the examples, with labels if its argument is true.
    """
    try:
        return read(True)
    except InputError as error:
        if split != "test":
            raise
        placed = read(False)  # raises an error if there is another fault
        logging.info("%s: is read without labels, so metrics are not computed (%s)", path, error)
        return placed
