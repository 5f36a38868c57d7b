"""The files of tuned thresholds; one that a person has changed is kept beside a new one.

A checksum in the file tells whether it was changed since it was written.
"""

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import tensorflow as tf
from absl import logging

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.runs import run_record

_CHECKSUM = "checksum"
_Tuned = TypeVar("_Tuned")


@dataclasses.dataclass(frozen=True)
class TunedFile(Generic[_Tuned]):
    """A file of a run's folder with one threshold, or a threshold for each label.

    Attributes:
      name: of the file.
      key: of the thresholds in the file.
      flag: tunes them.
      default: returns them where nothing was tuned, given the labels.
      parse: returns them from JSON, given the labels; raises ValueError, KeyError or TypeError.
      to_json: the other way, given the labels.
      is_evaluated: whether the last evaluation of a folder tells of tuned thresholds.
      remedy: what else to do about a file that cannot be used, for messages.
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
        """Returns the path in a run's folder; "" if the file is not there."""
        path = os.path.join(folder, self.name)
        return path if folder and tf.io.gfile.exists(path) else ""

    def is_changed(self, folder: str) -> bool:
        """Whether the file of a folder is there, and not as `write` wrote it."""
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
        """Writes thresholds, for the checkpoint of a step; None is for any, where there is only one."""
        path = os.path.join(folder, self.name)
        if self.is_changed(folder):
            names = (f"{path}.edited-{number}" for number in itertools.count())
            kept = next(each for each in names if not tf.io.gfile.exists(each))
            tf.io.gfile.copy(path, kept)
            logging.warning(
                "%s: was changed since it was tuned; it is tuned again, and the changed one is %s", path, kept
            )
        entries = {"step": step, self.key: self.to_json(tuned, labels)}
        text = json.dumps(entries | {_CHECKSUM: _checksum(entries)}, indent=2, ensure_ascii=False)
        storage.write_text(path, text + "\n")

    def read(self, folder: str, step: int | None = None, labels: Sequence[str] = ()) -> _Tuned:
        """Reads what `write` wrote; the default without a file.

        Args:
          folder: of the run.
          step: of the checkpoint that is used; None does not compare.
          labels: the task's labels.

        Raises:
          InputError: the file is damaged, or of other labels or another checkpoint; or it is lost, where `step` is
            given.
        """
        if not (path := self.path(folder)):
            if step is not None:
                self.check_not_lost(folder)
            return self.default(labels)
        with storage.json_file(path, f"evaluate with --{self.flag} again") as entries:
            tuned, tuned_on = self.parse(entries[self.key], labels), entries["step"]
        if None not in (step, tuned_on) and step != tuned_on:
            raise InputError(
                f"{path}: was tuned on the checkpoint of step {tuned_on}, not on that of step {step}; run --do_eval "
                f"--{self.flag} with this checkpoint first (--use_checkpoint names it){self.remedy}"
            )
        return tuned

    def check_not_lost(self, folder: str) -> None:
        """Refuses a run's folder that lacks the file, though its settings or its last evaluation tell of it.

        Raises:
          InputError: the file is lost.
        """
        if self.path(folder):
            return
        phases = run_record.read_phases(folder) if run_record.exists(folder) else []
        if any(phase.settings.get(self.flag) for phase in phases) or self.is_evaluated(folder):
            raise InputError(
                f"{os.path.join(folder, self.name)}: no such file, though the run has tuned it; copy the run's folder "
                f"again, or tune it again with --do_eval --{self.flag}{self.remedy}"
            )


def _checksum(entries: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()[:16]
