"""Reads and writes files with tuned thresholds."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import tensorflow as tf

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.runs import checkpoint_folder, run_record

_Tuned = TypeVar("_Tuned")


@dataclasses.dataclass(frozen=True)
class TunedFile(Generic[_Tuned]):
    """A file that contains one threshold, or a threshold for each label. The file is in a run's folder."""

    name: str
    key: str
    flag: str
    default: Callable[[Sequence[str]], _Tuned]  # function that maps the labels to the default thresholds
    # function that maps a JSON value and the labels to thresholds; raises ValueError, KeyError or TypeError if the
    # value is invalid
    parse: Callable[[Any, Sequence[str]], _Tuned]
    # function that maps thresholds and the labels to a JSON value; the inverse of `parse`
    to_json: Callable[[_Tuned, Sequence[str]], Any]

    def path(self, folder: str) -> str:
        """Returns the path of the file in a run's folder; "" if the folder does not contain the file."""
        path = os.path.join(folder, self.name)
        return path if folder and tf.io.gfile.exists(path) else ""

    def write(self, folder: str, tuned: _Tuned, step: int | None, labels: Sequence[str] = ()) -> None:
        """Writes thresholds that were tuned on a checkpoint.
        `step`: step of the checkpoint; None for an ensemble."""
        entries = {"step": step, self.key: self.to_json(tuned, labels)}
        storage.write_json(os.path.join(folder, self.name), entries)

    def read(self, folder: str, step: int | None = None, labels: Sequence[str] = ()) -> _Tuned:
        """Reads the thresholds that `write` wrote; returns the default thresholds if there is no file.
        `step`: step of the checkpoint in use; None to accept thresholds of any checkpoint."""
        if not (path := self.path(folder)):
            if step is not None and run_record.last_settings(folder).get(self.flag):
                raise InputError(
                    f"{os.path.join(folder, self.name)}: no such file, although the run has tuned thresholds; copy the "
                    f"run's folder again, or tune again with --do_eval --{self.flag}"
                )
            return self.default(labels)
        with storage.json_file(path, f"evaluate with --{self.flag} again") as entries:
            tuned, tuned_on = self.parse(entries[self.key], labels), entries["step"]
        if None not in (step, tuned_on) and step != tuned_on:
            raise InputError(
                f"{path}: was tuned on the checkpoint of step {tuned_on}, not of step {step}; run --do_eval "
                f"--{self.flag} with this checkpoint first (--use_checkpoint selects it)"
            )
        return tuned

    def copy(self, checkpoint: str, folder: str, labels: Sequence[str]) -> None:
        """Copies the thresholds beside a checkpoint, if there are any, into the folder of a saved model."""
        source, step = os.path.dirname(checkpoint), checkpoint_folder.step_of(checkpoint)
        if self.path(source):
            self.write(folder, self.read(source, step if step >= 0 else None, labels), None, labels)
