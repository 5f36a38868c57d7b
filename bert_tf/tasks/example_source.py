"""Where the examples of a task come from. A kind of task only says what one example of a file is."""

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
    """An example and its place, as messages name it: file and line."""

    place: str
    example: Any


class ExampleSource(abc.ABC):
    """Examples by split.

    Attributes:
      has_dev: whether there is dev data.
    """

    has_dev: bool = True

    @abc.abstractmethod
    def files(self, split: str) -> list[str]:
        """Returns the paths of the files of a split."""

    def name_of(self, split: str) -> str:
        """Returns how messages and reports name the data of a split; by default, the names of its files."""
        return ", ".join(os.path.basename(path) for path in self.files(split)) or "texts"

    def facts(self) -> Mapping[str, Any]:
        """Returns what decides how the data is read, as JSON: names of flags and their values."""
        return {}

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

    def examples(self, split: str) -> list[Any]:
        """Returns the examples of `read` without their places."""
        return [example for _, example in self.read(split)]

    @functools.cached_property
    def _known(self) -> dict[str, Sequence[Placed]]:
        return {}

    @abc.abstractmethod
    def _read(self, split: str) -> Sequence[Placed]:
        """Reads the examples of a split."""


@dataclasses.dataclass(frozen=True)
class FileSource(ExampleSource):
    """Files for each split, named by flags or found in a folder.

    Attributes:
      data_dir: folder of the files.
      paths: of the splits whose files are not those in `data_dir`.
    """

    data_dir: str
    paths: Mapping[str, Sequence[str]]

    def file_names(self, split: str) -> Sequence[str]:
        """Returns the names that a split's file may have in `data_dir`; by default, those of tables."""
        return tables.file_names(split)

    @abc.abstractmethod
    def read_file(self, path: str, split: str) -> list[Placed]:
        """Reads a file of a split.

        Raises:
          InputError: names the file and the line.
        """

    @property
    def has_dev(self) -> bool:
        """Whether there is a file of the dev data."""
        return bool(self.found("dev"))

    def files(self, split: str) -> list[str]:
        """Returns the paths of a split's files.

        Raises:
          InputError: no flag names them, and the folder has none, or more than one.
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
        """Returns the paths that flags name, else those in the folder that may be the split's; there may be none."""
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
    """Raises an InputError if files of predictions would call two examples of a file the same, or one by nothing.

    Args:
      path: of the file.
      placed: its examples; one without an id is called by its number.
      start: number of the first one.
    """
    first: dict[str, tuple[str, str | None]] = {}
    for number, (place, example) in enumerate(placed, start):
        id = getattr(example, "id", None)
        if id == "":
            raise InputError(f"{place}: the id is empty; give each example a unique id")
        name = str(number) if id is None else id
        other, other_id = first.setdefault(name, (place, id))
        if other != place:
            what = f"the id {name!r} is that of {other.removeprefix(f'{path}, ')} too"
            reason = ", which its number gives to an example without one" if None in (id, other_id) else ""
            raise InputError(f"{place}: {what}{reason}; give each example a unique id")


def with_labels_if_right(path: str, split: str, read: Callable[[bool], list[Placed]]) -> list[Placed]:
    """Reads a file with labels; a test file whose labels cannot be right, without them.

    Args:
      path: of the file, for messages.
      split: of the file.
      read: whether to read labels -> examples.
    """
    try:
        return read(True)
    except InputError as error:
        if split != "test":
            raise
        placed = read(False)  # also says what else is wrong
        logging.info("%s: is predicted without scores (%s)", path, error)
        return placed
