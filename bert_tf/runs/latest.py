"""Finds the numbered checkpoints in a run's folder, and the newest intact checkpoint."""

import dataclasses
import os
import re

import tensorflow as tf
from absl import logging

from bert_tf.checkpoint_formats.tensor_bundle import VALUE, damage
from bert_tf.core.errors import InputError
from bert_tf.input.record_order import BEGINNING, Position

ENSEMBLE_NAME = "ensemble.json"
_INDEX = re.compile(r"^ckpt-(\d+)\.index$")
_STEP = re.compile(r"-(\d+)$")


@dataclasses.dataclass(frozen=True)
class ResumePoint:
    """The checkpoint from which a run resumes.

    Attributes:
      prefix: prefix of the newest intact checkpoint; "" if there is none.
      damaged: prefixes of newer checkpoints that are damaged.
    """

    prefix: str = ""
    damaged: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """Number of completed steps; 0 if there is no checkpoint."""
        return int(tf.train.load_variable(self.prefix, f"global_step{VALUE}")) if self.prefix else 0

    @property
    def position(self) -> Position:
        """Position in the training data; the beginning if there is no checkpoint."""
        if not self.prefix:
            return BEGINNING
        return Position(*tf.train.load_variable(self.prefix, f"data_position{VALUE}").tolist())


def prefixes(folder: str) -> list[str]:
    """Lists the prefixes of a folder's checkpoints, intact or damaged.

    The first prefix belongs to the checkpoint that the `checkpoint` file names as the latest. The other prefixes are in
    descending order of steps.
    """
    if not tf.io.gfile.isdir(folder):
        return []
    named, latest = _named(folder)
    found = {*named, *(os.path.join(folder, name[: -len(".index")]) for name in indexes(folder))}
    return sorted(found, key=lambda prefix: (prefix == latest, step_of(prefix)), reverse=True)


def numbered(folder: str) -> dict[int, str]:
    """Maps the step in each checkpoint's name to the checkpoint's prefix, for intact and damaged checkpoints."""
    return {step_of(prefix): prefix for prefix in prefixes(folder)}


def find(folder: str) -> ResumePoint:
    """Finds the newest intact checkpoint.

    The function reads every byte of a checkpoint and verifies the checksums. A warning names the damaged checkpoints
    that are skipped.

    Raises:
      InputError: all checkpoints are damaged, or the files of a checkpoint are not accessible now.
    """
    reasons = {}
    for prefix in prefixes(folder):
        reason = damage(prefix)
        if not reason:
            if reasons:
                logging.warning("%s; using %s, the newest intact checkpoint", "; ".join(reasons.values()), prefix)
            return ResumePoint(prefix, tuple(reasons))
        reasons[prefix] = reason
    if reasons:
        raise InputError(
            f"{folder}: all checkpoints are damaged ({'; '.join(reasons.values())}); copy them again, or give "
            "another folder"
        )
    return ResumePoint()


def check_there(folder: str) -> None:
    """Refuses a folder without a checkpoint. Damaged checkpoints are accepted.

    Raises:
      InputError: the folder is missing or has no checkpoint.
    """
    if not tf.io.gfile.exists(folder):
        raise InputError(f"{folder}: no such folder; give a folder where training has saved a checkpoint")
    if prefixes(folder):
        return
    ensemble = os.path.join(folder, ENSEMBLE_NAME)
    if tf.io.gfile.exists(ensemble):
        raise InputError(
            f"{folder}: holds the results of an ensemble, which has no checkpoint of its own; give "
            f"--ensemble_checkpoints with the checkpoints in {ensemble}"
        )
    raise InputError(f"{folder}: holds no checkpoint; give a folder where training has saved a checkpoint")


def step_of(prefix: str) -> int:
    """Returns the step in a checkpoint's name; -1 if the name does not end in a step."""
    number = _STEP.search(prefix)
    return int(number[1]) if number else -1


def indexes(folder: str) -> list[str]:
    """Lists the names of the `.index` files of a folder's numbered checkpoints."""
    return [name for name in tf.io.gfile.listdir(folder) if _INDEX.match(name)]


def _named(folder: str) -> tuple[list[str], str]:
    """Returns all prefixes and the latest prefix in a folder's `checkpoint` file; [] and "" if no file is valid."""
    try:
        state = tf.train.get_checkpoint_state(folder)
    except (ValueError, tf.errors.OpError):
        state = None
    if state is None:
        return [], ""
    return [*state.all_model_checkpoint_paths, state.model_checkpoint_path], state.model_checkpoint_path
