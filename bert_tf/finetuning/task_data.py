"""The data of a task: the files of each split, the function that reads them, and data that is held out of training."""

import dataclasses
import functools
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.core import identity
from bert_tf.finetuning import stratified_split
from bert_tf.finetuning.stratified_split import HeldOut
from bert_tf.settings.finetuning import UNLABELED


def _each_alone(examples: Sequence[Any]) -> tuple[list[str], list[Hashable]]:
    return list(map(repr, examples)), [None] * len(examples)


@dataclasses.dataclass(frozen=True)
class TaskData:
    """Where the examples of each split come from."""

    # function that maps "train", "dev" or "test" to the paths of the split's own files
    files: Callable[[str], list[str]] = lambda split: []
    # function that maps a split to the examples in its own files, with checked labels. It is called several times, so
    # it must keep what it has read. It raises InputError for invalid data; the message names the file and the line.
    load: Callable[[str], Sequence[Any]] = lambda split: []
    has_dev: bool = False  # whether there are files with dev data
    # the flags that determine how the files are read, with values that JSON can represent
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # function that maps a split to its data's name for reports; None for the names of the files
    titles: Callable[[str], str] | None = None
    # function that maps a split to its fingerprint; None for the fingerprint of its files
    own_fingerprint: Callable[[str], list[str]] | None = None
    # function that maps examples to their contents and their classes, for `stratified_split.held_out`. By default, each
    # example has its own content, and there are no classes.
    strata: Callable[[Sequence[Any]], tuple[list[str], list[Hashable]]] = _each_alone
    held_out: HeldOut | None = None  # the data that is held out of the training data; None if there is no such data
    unlabeled: "TaskData | None" = None  # where the split "unlabeled" comes from; None for the functions above

    def reading_facts(self) -> dict[str, Any]:
        """Returns the settings that determine how the examples of a split are chosen and read."""
        held = {"dev_share": self.held_out.share, "dev_seed": self.held_out.seed} if self.held_out else {}
        return held | dict(self.facts)

    def title(self, split: str) -> str:
        """Returns the name of a split's data for reports and messages."""
        origin = self._origin(split)
        name = self.titles(origin) if self.titles else ", ".join(map(os.path.basename, self.files(origin))) or "texts"
        return name if origin == split else f"{self.held_out.share:.3g} of {name}"

    def fingerprint(self, split: str) -> list[str]:
        if split == UNLABELED and self.unlabeled:
            return self.unlabeled.fingerprint(split)
        origin = self._origin(split)
        own = self.own_fingerprint
        fingerprint = own(origin) if own else identity.fingerprint(self.files(origin), whole=True)
        if origin == split:
            return fingerprint
        return [f"{entry}, {self.held_out.share:g} held out by seed {self.held_out.seed}" for entry in fingerprint]

    def read(self, split: str) -> Sequence[Any]:
        if split == UNLABELED and self.unlabeled:
            return self.unlabeled.read(split)
        if self.held_out and self._origin(split) == "train":
            examples = self.load("train")
            return [examples[number] for number in self._divided[split].tolist()]
        return self.load(split)

    def _origin(self, split: str) -> str:
        """Returns the split from whose files `split` is read: "train" if `split` is a held-out "dev", else `split`."""
        return "train" if split == "dev" and self.held_out and self.held_out.is_dev else split

    @functools.cached_property
    def _divided(self) -> dict[str, np.ndarray]:
        """The indices of the examples of the training files that belong to "train" and to "dev"."""
        contents, classes = self.strata(self.load("train"))
        is_held = stratified_split.held_out(contents, classes, self.held_out.share, self.held_out.seed)
        return {"train": np.flatnonzero(~is_held), "dev": np.flatnonzero(is_held)}


NO_DATA = TaskData()
