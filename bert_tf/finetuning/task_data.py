"""The data of a task: the source of its rows, the examples of each split, and data that is held out of training."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.core.errors import InputError, unreadable
from bert_tf.finetuning import stratified_split
from bert_tf.finetuning.stratified_split import HeldOut
from bert_tf.rows import Row
from bert_tf.rows.sources import Source
from bert_tf.settings.finetuning import UNLABELED

# Function that maps the name of a file, its rows, the split and whether the labels are read to the file's examples.
Parse = Callable[[str, Iterator[Row], str, bool], Sequence[Any]]
_NO_SOURCE = Source()


def _each_alone(examples: Sequence[Any]) -> tuple[list[str], list[Hashable]]:
    return list(map(repr, examples)), [None] * len(examples)


@dataclasses.dataclass(frozen=True)
class TaskData:
    """Where the examples of each split come from."""

    source: Source = _NO_SOURCE
    # function that maps "train", "dev" or "test" to the examples of the split's source, with checked labels. It is
    # called several times, so it must keep what it has read. It raises InputError for invalid data.
    load: Callable[[str], Sequence[Any]] = lambda split: []
    # the flags that determine how the files are read, with values that JSON can represent
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # function that maps examples to their contents and their classes, for `stratified_split.held_out`. By default, each
    # example has its own content, and there are no classes.
    strata: Callable[[Sequence[Any]], tuple[list[str], list[Hashable]]] = _each_alone
    held_out: HeldOut | None = None  # the data that is held out of the training data; None if there is no such data
    unlabeled: "TaskData | None" = None  # where the split "unlabeled" comes from; None for the source above

    @classmethod
    def of(cls, source: Source, parse: Parse, **rest: Any) -> "TaskData":
        """Returns data whose examples `parse` makes from the rows of a source. An example may have the attributes `id`
        and `place`, which names the example in messages. `**rest` are other attributes."""
        return cls(source, functools.cache(functools.partial(_load, source, parse)), **rest)

    def then(self, step: Callable[[str, Sequence[Any]], Sequence[Any]]) -> "TaskData":
        """Returns data with another step: a function that maps a split and its examples to new examples."""
        return dataclasses.replace(self, load=functools.cache(lambda split: step(split, self.load(split))))

    def with_checked_labels(self, check: Callable[[Any], Any], label: str = "label") -> "TaskData":
        """Returns data whose labels are checked when it is read. If a test label is invalid, all test labels are
        dropped.
        `check`: function that raises InputError, with the example's place, if the label of an example is invalid.
        `label`: the name of the examples' attribute with the label."""

        def step(split: str, examples: Sequence[Any]) -> Sequence[Any]:
            for example in examples:
                try:
                    check(example)
                except InputError as error:
                    if split != "test":
                        raise
                    _log_without_labels(self.title(split), error)
                    return [dataclasses.replace(each, **{label: None}) for each in examples]
            return examples

        return self.then(step)

    def reading_facts(self) -> dict[str, Any]:
        """Returns the settings that determine how the examples of a split are chosen and read."""
        held = {"dev_share": self.held_out.share, "dev_seed": self.held_out.seed} if self.held_out else {}
        return held | dict(self.facts)

    def title(self, split: str) -> str:
        """Returns the name of a split's data for reports and messages."""
        origin = self._origin(split)
        name = self.source.title(origin)
        return name if origin == split else f"{self.held_out.share:.3g} of {name}"

    def fingerprint(self, split: str) -> list[str]:
        """Describes the examples of a split; see `fingerprint_of`. The formats and the folders of files have no effect
        on the hash."""
        if split == UNLABELED and self.unlabeled:
            return self.unlabeled.fingerprint(split)
        origin = self._origin(split)
        held_out = f", {self.held_out.share:g} held out by seed {self.held_out.seed}" if origin != split else ""
        return [self._fingerprint(origin) + held_out]

    def read(self, split: str) -> Sequence[Any]:
        if split == UNLABELED and self.unlabeled:
            return self.unlabeled.read(split)
        if self.held_out and self._origin(split) == "train":
            examples = self.load("train")
            return [examples[number] for number in self._divided[split].tolist()]
        return self.load(split)

    def _origin(self, split: str) -> str:
        """Returns the split from whose source `split` is read: "train" if `split` is a held-out "dev", else `split`."""
        return "train" if split == "dev" and self.held_out and self.held_out.is_dev else split

    @functools.cached_property
    def _fingerprint(self) -> Callable[[str], str]:
        return functools.cache(lambda split: fingerprint_of(self.source.title(split), self.load(split)))

    @functools.cached_property
    def _divided(self) -> dict[str, np.ndarray]:
        """The indices of the examples of the training data that belong to "train" and to "dev"."""
        contents, classes = self.strata(self.load("train"))
        is_held = stratified_split.held_out(contents, classes, self.held_out.share, self.held_out.seed)
        return {"train": np.flatnonzero(~is_held), "dev": np.flatnonzero(is_held)}


NO_DATA = TaskData()


def each_row(example: Callable[[str, Mapping[str, Any], bool], Any]) -> Parse:
    """Returns the function that makes an example of each row with a function of the row's place, its cells, and whether
    the label is read."""
    return lambda file, rows, split, with_labels: [example(place, row, with_labels) for place, row in rows]


def fingerprint_of(title: str, examples: Sequence[Any]) -> str:
    """Describes examples by the name of their data, their number, and a hash of their content. The ids and the places
    of the examples have no effect."""
    content = hashlib.sha256()
    for example in examples:
        unnamed = dataclasses.replace(example, id=None) if getattr(example, "id", None) is not None else example
        content.update(repr(unnamed).encode("utf-8", "surrogatepass") + b"\0")
    return f"{title}, {len(examples):,} examples, {content.hexdigest()[:16]}"


def _load(source: Source, parse: Parse, split: str) -> list[Any]:
    examples: list[Any] = []
    for file in source.files(split):
        with unreadable(file):
            of_file = _parsed(source, parse, file, "test" if split == UNLABELED else split)
        if not of_file:
            raise InputError(f"{file}: holds no example; add a line for each text")
        _refuse_repeated_ids(file, of_file, len(examples))
        examples += of_file
    return examples


def _parsed(source: Source, parse: Parse, file: str, split: str) -> Sequence[Any]:
    """Returns the examples of a file. If the labels of a test file are invalid, reads this file without the labels."""
    try:
        return parse(file, source.rows(file, True), split, True)
    except InputError as error:
        if split != "test":
            raise
        examples = parse(file, source.rows(file, False), split, False)  # raises an error if there is another fault
        _log_without_labels(file, error)
        return examples


def _log_without_labels(file: str, error: InputError) -> None:
    reason = str(error).partition(";")[0].removeprefix(file).lstrip(",: ")  # the remedy is for data that needs labels
    logging.info("%s: is read without labels, so predictions are written, but no metrics (%s)", file, reason)


def _refuse_repeated_ids(file: str, examples: Sequence[Any], start: int) -> None:
    """Raises InputError if two examples of a file would have the same name in prediction files, or if an id is empty.
    The name of an example is its id; if the example has no id, its name is its index.
    `start`: index of the first example."""
    first: dict[str, Any] = {}
    for number, example in enumerate(examples, start):
        id = getattr(example, "id", None)
        if id == "":
            raise InputError(f"{example.place}: the id is empty; give each example a unique id")
        name = str(number) if id is None else id
        other = first.setdefault(name, example)
        if other is not example:
            what = f"the id {name!r} is also the id of {other.place.removeprefix(f'{file}, ')}"
            reason = " (an example without an id has its number as its id)" if None in (id, other.id) else ""
            raise InputError(f"{example.place}: {what}{reason}; give each example a unique id")
