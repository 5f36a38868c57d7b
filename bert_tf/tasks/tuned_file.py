"""The files of tuned thresholds; one that a person has changed is kept beside a new one.

A checksum in the file tells whether it was changed since it was written.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import tensorflow as tf
from absl import logging

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.runs import run_record

_CHECKSUM = "checksum"
_Tuned = TypeVar("_Tuned")


def write(folder: str, name: str, step: int | None, key: str, tuned: float | Mapping[str, float]) -> None:
    """Writes thresholds, for the checkpoint of a step; None is for any, where there is only one.

    Args:
      folder: of the run.
      name: of the file.
      step: of the checkpoint.
      key: of the thresholds in the file.
      tuned: one threshold, or that of each label.
    """
    path = os.path.join(folder, name)
    if tf.io.gfile.exists(path) and _is_changed(path):
        names = (f"{path}.edited-{number}" for number in itertools.count())
        kept = next(each for each in names if not tf.io.gfile.exists(each))
        tf.io.gfile.copy(path, kept)
        logging.warning("%s: was changed since it was tuned; it is tuned again, and the changed one is %s", path, kept)
    entries = {"step": step, key: tuned}
    text = json.dumps(entries | {_CHECKSUM: _checksum(entries)}, indent=2, ensure_ascii=False)
    storage.write_text(path, text + "\n")


def read(
    folder: str, name: str, step: int | None, key: str, parse: Callable[[Any], _Tuned], flag: str, remedy: str = ""
) -> _Tuned | None:
    """Reads what `write` wrote; None without a file.

    Args:
      folder: of the run.
      name: of the file.
      step: of the checkpoint that is used; None does not compare.
      key: of the thresholds in the file.
      parse: checks and returns them; raises ValueError, KeyError or TypeError.
      flag: tunes them.
      remedy: another remedy, for the message.

    Raises:
      InputError: the file is damaged, or of another checkpoint.
    """
    path = os.path.join(folder, name)
    if not folder or not tf.io.gfile.exists(path):
        return None
    try:
        with tf.io.gfile.GFile(path) as file:
            entries = json.load(file)
        tuned, tuned_on = parse(entries[key]), entries["step"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is damaged ({error!r}); evaluate with --{flag} again") from error
    if None not in (step, tuned_on) and step != tuned_on:
        raise InputError(
            f"{path}: was tuned on the checkpoint of step {tuned_on}, not on that of step {step}; run --do_eval "
            f"--{flag} with this checkpoint first (--use_checkpoint names it){remedy}"
        )
    return tuned


def was_asked_for(folder: str, flag: str) -> bool:
    """Whether the settings of a run say that thresholds are tuned."""
    phases = run_record.read_phases(folder) if run_record.exists(folder) else []
    return any(phase.settings.get(flag) for phase in phases)


def _checksum(entries: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()[:16]


def _is_changed(path: str) -> bool:
    """Whether a file is not as `write` wrote it."""
    with tf.io.gfile.GFile(path) as file:
        text = file.read()
    try:
        entries = json.loads(text)
        return entries.pop(_CHECKSUM) != _checksum(entries)
    except (ValueError, KeyError, TypeError, AttributeError):
        return True
