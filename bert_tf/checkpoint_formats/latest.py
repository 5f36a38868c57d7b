"""The numbered checkpoints of a run's folder, and the newest whole one."""

import dataclasses
import os
import re

import tensorflow as tf
from absl import logging

from bert_tf.checkpoint_formats.tensor_bundle import VALUE, damage
from bert_tf.input.record_order import BEGINNING, Position
from tfrecords.errors import InputError

_INDEX = re.compile(r"^ckpt-(\d+)\.index$")
_STEP = re.compile(r"-(\d+)$")


@dataclasses.dataclass(frozen=True)
class ResumePoint:
    """The checkpoint of a folder to resume from.

    Attributes:
      prefix: of the newest whole checkpoint; "" where there is none.
      damaged: prefixes of newer ones that cannot be read.
    """

    prefix: str = ""
    damaged: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """Steps trained; 0 without a checkpoint."""
        return int(tf.train.load_variable(self.prefix, f"global_step{VALUE}")) if self.prefix else 0

    @property
    def position(self) -> Position:
        """Where the data stands; its beginning without a checkpoint.

        Raises:
          InputError: the checkpoint does not say.
        """
        if not self.prefix:
            return BEGINNING
        try:
            return Position(*tf.train.load_variable(self.prefix, f"data_position{VALUE}").tolist())
        except tf.errors.NotFoundError as error:
            raise InputError(
                f"{self.prefix}: does not say where the data stood, being made by an earlier version; start another "
                f"--output_dir with --init_checkpoint={self.prefix}"
            ) from error


def prefixes(folder: str) -> list[str]:
    """A folder's checkpoints, whole or not: the one that is named as its latest, then the others by descending step."""
    if not tf.io.gfile.isdir(folder):
        return []
    named, latest = _named(folder)
    found = {*named, *(os.path.join(folder, name[: -len(".index")]) for name in indexes(folder))}
    return sorted(found, key=lambda prefix: (prefix == latest, step_of(prefix)), reverse=True)


def numbered(folder: str) -> dict[int, str]:
    """A folder's checkpoints, whole or not, by the step in their names."""
    return {step_of(prefix): prefix for prefix in prefixes(folder)}


def find(folder: str) -> ResumePoint:
    """Looks for the newest whole checkpoint; all of its bytes are read and their checksums compared.

    A damaged one is passed over, which the log says.

    Raises:
      InputError: there are checkpoints, and all of them are damaged, or one cannot be read at the moment.
    """
    reasons = {}
    for prefix in prefixes(folder):
        reason = damage(prefix)
        if not reason:
            if reasons:
                logging.warning("%s; taking %s, the newest whole one", "; ".join(reasons.values()), prefix)
            return ResumePoint(prefix, tuple(reasons))
        reasons[prefix] = reason
    if reasons:
        raise InputError(
            f"{folder}: none of its checkpoints can be read ({'; '.join(reasons.values())}); copy them again, or give "
            "another folder"
        )
    return ResumePoint()


def check_there(folder: str) -> None:
    """Refuses a folder without a checkpoint; whether one is whole is not looked at.

    Raises:
      InputError: names the folder.
    """
    if not prefixes(folder):
        raise InputError(f"{folder}: holds no checkpoint; give a folder where training has saved one")


def step_of(prefix: str) -> int:
    """The step in a checkpoint's name; -1 where there is none."""
    number = _STEP.search(prefix)
    return int(number[1]) if number else -1


def indexes(folder: str) -> list[str]:
    """Names of the `.index` files of a folder's numbered checkpoints."""
    return [name for name in tf.io.gfile.listdir(folder) if _INDEX.match(name)]


def _named(folder: str) -> tuple[list[str], str]:
    """Prefixes in the folder's `checkpoint` file, and its latest; none where it is damaged."""
    try:
        state = tf.train.get_checkpoint_state(folder)
    except (ValueError, tf.errors.OpError):
        state = None
    if state is None:
        return [], ""
    return [*state.all_model_checkpoint_paths, state.model_checkpoint_path], state.model_checkpoint_path
