"""Reads and writes files with tuned thresholds.

When new thresholds replace a file that a user has edited, a copy of the edited file is kept. A checksum in the file
shows whether the file was edited.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import tensorflow as tf
from absl import logging

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.runs import latest, run_record
from bert_tf.settings import FineTuningSettings

_CHECKSUM = "checksum"
_Tuned = TypeVar("_Tuned")


@dataclasses.dataclass(frozen=True)
class TunedFile(Generic[_Tuned]):
    """A file that contains one threshold, or a threshold for each label. The file is in a run's folder.

    Attributes:
      name: name of the file.
      key: key of the thresholds in the file.
      flag: name of the flag that tunes the thresholds.
      default: function that maps the labels to the default thresholds.
      parse: function that maps a JSON value and the labels to thresholds; raises ValueError, KeyError or TypeError if
        the value is invalid.
      to_json: function that maps thresholds and the labels to a JSON value; the inverse of `parse`.
      is_evaluated: function that returns whether the last evaluation in a folder used tuned thresholds.
      remedy: additional advice at the end of messages about a file that cannot be used.
    """

    name: str
    key: str
    flag: str
    default: Callable[[Sequence[str]], _Tuned]
    parse: Callable[[Any, Sequence[str]], _Tuned]
    to_json: Callable[[_Tuned, Sequence[str]], Any]
    is_evaluated: Callable[[str], bool]
    remedy: str = ""

    def path(self, folder: str) -> str:
        """Returns the path of the file in a run's folder; "" if the folder does not contain the file."""
        path = os.path.join(folder, self.name)
        return path if folder and tf.io.gfile.exists(path) else ""

    def is_changed(self, folder: str) -> bool:
        """Returns whether a folder contains the file and the file was edited after `write` wrote it."""
        if not (path := self.path(folder)):
            return False
        with tf.io.gfile.GFile(path) as file:
            text = file.read()
        try:
            entries = json.loads(text)
            return entries.pop(_CHECKSUM) != _checksum(entries)
        except (ValueError, KeyError, TypeError, AttributeError):
            return True

    def write(self, folder: str, tuned: _Tuned, step: int | None, labels: Sequence[str] = ()) -> None:
        """Writes thresholds that were tuned on a checkpoint.

        Args:
          folder: the run's folder.
          tuned: the thresholds.
          step: step of the checkpoint; None for an ensemble.
          labels: the task's labels.
        """
        path = os.path.join(folder, self.name)
        if self.is_changed(folder):
            names = (f"{path}.edited-{number}" for number in itertools.count())
            kept = next(each for each in names if not tf.io.gfile.exists(each))
            tf.io.gfile.copy(path, kept)
            logging.warning(
                "%s: was edited after it was tuned; new thresholds replace it, and the edited file is now %s",
                path,
                kept,
            )
        entries = {"step": step, self.key: self.to_json(tuned, labels)}
        text = json.dumps(entries | {_CHECKSUM: _checksum(entries)}, indent=2, ensure_ascii=False)
        storage.write_text(path, text + "\n")

    def read(self, folder: str, step: int | None = None, labels: Sequence[str] = ()) -> _Tuned:
        """Reads the thresholds that `write` wrote; returns the default thresholds if there is no file.

        Args:
          folder: the run's folder.
          step: step of the checkpoint in use; None to accept thresholds of any checkpoint.
          labels: the task's labels.

        Raises:
          InputError: the file is damaged, belongs to other labels or to another checkpoint, or is lost. A lost file is
            an error only if `step` is given.
        """
        if not (path := self.path(folder)):
            if step is not None:
                self.check_not_lost(folder)
            return self.default(labels)
        with storage.json_file(path, f"evaluate with --{self.flag} again") as entries:
            tuned, tuned_on = self.parse(entries[self.key], labels), entries["step"]
            if not (tuned_on is None or type(tuned_on) is int):
                raise ValueError(f"the step is {tuned_on!r}, not a whole number")
        if None not in (step, tuned_on) and step != tuned_on:
            raise InputError(
                f"{path}: was tuned on the checkpoint of step {tuned_on}, not of step {step}; run --do_eval "
                f"--{self.flag} with this checkpoint first (--use_checkpoint selects it){self.remedy}"
            )
        return tuned

    def check_new_run(self, settings: FineTuningSettings) -> None:
        """Refuses a new run in a folder with thresholds of an earlier run, unless the new run tunes thresholds.

        Raises:
          InputError: the folder contains the file, but no checkpoint.
        """
        folder = settings.output_dir
        is_new = settings.do_train and not getattr(settings, self.flag) and not latest.prefixes(folder)
        if is_new and (path := self.path(folder)):
            raise InputError(
                f"{path}: belongs to an earlier run, whose checkpoints were deleted; delete the whole folder, or give "
                "another --output_dir"
            )

    def check_not_lost(self, folder: str) -> None:
        """Refuses a run's folder from which the file was lost.

        Raises:
          InputError: the folder does not contain the file, although a phase of the run tuned thresholds or the last
            evaluation used tuned thresholds.
        """
        if self.path(folder):
            return
        phases = run_record.read_phases(folder) if run_record.exists(folder) else []
        if any(phase.settings.get(self.flag) for phase in phases) or self.is_evaluated(folder):
            raise InputError(
                f"{os.path.join(folder, self.name)}: no such file, although the run has tuned thresholds; copy the "
                f"run's folder again, or tune again with --do_eval --{self.flag}{self.remedy}"
            )


def finite_number(value: Any) -> float:
    """Checks a threshold that was read from a file, and returns it.

    Raises:
      ValueError: the value is not a finite number. Unlike `float`, this function refuses `true` and numbers in quotes.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"the threshold {value!r} is not a finite number")
    return float(value)


def _checksum(entries: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()[:16]
