"""Finds, adds and deletes the checkpoints of a run's folder.

A checkpoint is written to a temporary folder, flushed to the disk and renamed. Then the file `checkpoint` is replaced
by a file that names the new checkpoint. Last, the oldest checkpoints are deleted, except for the weights of the best
checkpoint on the dev data, which are kept as `best-STEP`. Therefore the checkpoint that the file `checkpoint` names is
complete even after a kill, a power cut or a full disk. Training cannot resume from `best-STEP`.
"""

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Callable, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.checkpoint_formats.tensor_bundle import STATE_NAME, VALUE, damage, write_without_optimizer
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.input.record_order import BEGINNING, Position
from bert_tf.runs import evaluations

# Default number of checkpoints to keep.
KEPT = 5
# Name of the folder for damaged checkpoints.
_DAMAGED = "damaged"
ENSEMBLE_NAME = "ensemble.json"
_STEP = re.compile(r"-(\d+)$")


@dataclasses.dataclass(frozen=True)
class ResumePoint:
    """The checkpoint from which a run resumes."""

    prefix: str = ""  # prefix of the newest intact checkpoint; "" if there is none
    damaged: tuple[str, ...] = ()  # prefixes of newer checkpoints that are damaged

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
    """Lists the prefixes of a folder's checkpoints, intact or damaged. The first prefix belongs to the checkpoint that
    the `checkpoint` file names as the latest. The other prefixes are in descending order of steps."""
    if not tf.io.gfile.isdir(folder):
        return []
    named, latest = _named(folder)
    return sorted({*named, *_by_step(folder)}, key=lambda prefix: (prefix == latest, step_of(prefix)), reverse=True)


def numbered(folder: str) -> dict[int, str]:
    """Maps the step in each checkpoint's name to the checkpoint's prefix, for intact and damaged checkpoints."""
    return {step_of(prefix): prefix for prefix in prefixes(folder)}


def newest_intact(folder: str) -> ResumePoint:
    """Finds the newest intact checkpoint. The function reads every byte of a checkpoint and verifies the checksums. A
    warning names the damaged checkpoints that are skipped."""
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
    """Refuses a folder without a checkpoint. Damaged checkpoints are accepted."""
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


def best_weights(folder: str) -> list[str]:
    """Lists the prefixes of a folder's checkpoints that contain only weights."""
    return _by_step(folder, "best")


def at_step(folder: str, step: int) -> str:
    return os.path.join(folder, f"ckpt-{step}")


def save(folder: str, checkpoint: tf.train.Checkpoint, step: int, most: int = KEPT) -> str:
    """Adds a checkpoint, and deletes the oldest ones except for the best checkpoint's weights; returns the prefix.
    `folder`: the run's folder; TensorFlow must be able to write to this path.
    `most`: number of checkpoints to keep; 0 keeps all."""
    # `restore` expects this counter, but `write` does not create it.
    checkpoint.save_counter.assign(1)
    prefix = at_step(folder, step)
    name = os.path.basename(prefix)
    try:
        _write(folder, name, checkpoint.write)
        kept = [path for path in _by_step(folder) if step_of(path) <= step][-most:]  # [-0:] is everything
        _name_latest(folder, [os.path.basename(path) for path in kept])
    except (tf.errors.OpError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.message.rpartition("; ")[2]
        raise InputError(
            f"{prefix}: cannot be saved ({reason}); earlier checkpoints are intact; fix the cause, for example by "
            "freeing disk space, and run the same command again to resume from the last checkpoint"
        ) from error
    _delete_older(folder, [step_of(path) for path in kept])
    return prefix


def _delete_older(folder: str, kept: Sequence[int]) -> None:
    """Deletes checkpoints that are older than all steps in `kept`, which ascend. The weights of a deleted checkpoint
    are kept if it was the best checkpoint at one of these steps."""
    recorded = evaluations.read(folder)
    wanted = {recorded.up_to(step).best_step for step in kept}
    for prefix in _by_step(folder):
        step = step_of(prefix)
        if step < kept[0] and (step not in wanted or _copy_weights(folder, step)):
            _remove(prefix)
    delete_stale_weights(folder)


def delete_stale_weights(folder: str) -> None:
    """Deletes weights of earlier best checkpoints that no checkpoint in the folder needs. A checkpoint in the folder
    needs the weights that were the best at its step. Even such weights are deleted if the folder also has the complete
    checkpoint."""
    kept, recorded = [step_of(prefix) for prefix in _by_step(folder)], evaluations.read(folder)
    wanted = {recorded.up_to(step).best_step for step in kept}
    for prefix in best_weights(folder):
        if step_of(prefix) in kept or step_of(prefix) not in wanted:
            _remove(prefix)


def _copy_weights(folder: str, step: int) -> bool:
    """Writes a checkpoint's weights to a separate checkpoint, and returns whether this succeeded."""
    prefix = at_step(folder, step)
    try:
        _write(folder, f"best-{step}", functools.partial(write_without_optimizer, prefix))
    except (InputError, tf.errors.OpError, OSError) as error:
        reason = " ".join(str(error).split())
        logging.warning("%s is not deleted, because its weights cannot be copied (%s)", prefix, reason)
        return False
    return True


def _write(folder: str, name: str, write: Callable[[str], object]) -> None:
    """Writes a checkpoint into a folder, so that other processes never see an incomplete checkpoint."""
    if not _is_local(folder):  # an object store shows only complete files
        write(os.path.join(folder, name))
        return
    with storage.temporary_folder(os.path.join(folder, "saving")) as aside:
        write(os.path.join(aside, name))
        _move(aside, name, folder)


def tidy(folder: str, point: ResumePoint) -> None:
    """Cleans up a locked folder before training. Deletes the partial files that a killed process left, and moves
    damaged checkpoints into `damaged/`.
    `point`: the result of `newest_intact`."""
    _move_to_damaged(folder, point.prefix, point.damaged)
    whole = {os.path.basename(prefix) for prefix in (*prefixes(folder), *best_weights(folder))}
    for name in tf.io.gfile.listdir(folder):
        # Another process that evaluates may be writing the report and the results.
        half_written = storage.TEMPORARY in name and not name.startswith(("report.html", "eval_results.txt"))
        data_of = re.match(r"((?:ckpt|best)-\d+)\.data-\d{5}-of-\d{5}$", name)
        # If a process is killed while it deletes a checkpoint, data files without an index remain.
        if half_written or (data_of and data_of[1] not in whole):
            path = os.path.join(folder, name)
            (storage.remove_tree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)


def discard_latest(folder: str) -> None:
    """Moves the latest checkpoint of a folder into `damaged/`, so that its weights are not used as a result. If the
    folder has only one checkpoint, nothing is moved."""
    newest, *others = prefixes(folder)
    if others:
        _move_to_damaged(folder, others[0], [newest])


def delete_all(folder: str) -> None:
    """Deletes all checkpoints in a folder, and keeps the folder's other files. The folder may be missing."""
    if not tf.io.gfile.isdir(folder):
        return
    with contextlib.suppress(tf.errors.NotFoundError):
        tf.io.gfile.remove(os.path.join(folder, STATE_NAME))
    for prefix in (*_by_step(folder), *best_weights(folder)):
        _remove(prefix)


def _is_local(folder: str) -> bool:
    return "://" not in folder


def _by_step(folder: str, name: str = "ckpt") -> list[str]:
    index = re.compile(rf"^({name}-\d+)\.index$")
    matches = filter(None, map(index.match, tf.io.gfile.listdir(folder)))
    return sorted((os.path.join(folder, each[1]) for each in matches), key=step_of)


def _named(folder: str) -> tuple[list[str], str]:
    """Returns all prefixes and the latest prefix in a folder's `checkpoint` file; [] and "" if no file is valid."""
    try:
        state = tf.train.get_checkpoint_state(folder)
    except (ValueError, tf.errors.OpError):
        state = None
    if state is None:
        return [], ""
    return [*state.all_model_checkpoint_paths, state.model_checkpoint_path], state.model_checkpoint_path


def _move(aside: str, name: str, folder: str) -> None:
    """Flushes and renames a checkpoint's files; the index is last, because TensorFlow looks for the index."""
    files = sorted(os.listdir(aside), key=lambda file: file.endswith(".index"))
    for file in files:
        _flush(os.path.join(aside, file))
    # A discarded checkpoint may have the same step. Its index must not refer to the new data, so remove the index.
    with contextlib.suppress(FileNotFoundError):
        os.remove(os.path.join(folder, f"{name}.index"))
    for file in files:
        os.replace(os.path.join(aside, file), os.path.join(folder, file))
    _flush(folder)


def _flush(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name_latest(folder: str, names: list[str]) -> None:
    lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
    storage.write_text(os.path.join(folder, STATE_NAME), "".join(f"{line}\n" for line in lines))
    if _is_local(folder):
        _flush(folder)


def _files(folder: str, name: str) -> list[str]:
    """Returns the names of a checkpoint's files; the index is first."""
    belongs = re.compile(rf"^{re.escape(name)}\.(index|data-\d{{5}}-of-\d{{5}})$")
    return sorted(filter(belongs.match, tf.io.gfile.listdir(folder)), key=lambda file: not file.endswith(".index"))


def _remove(prefix: str) -> None:
    folder, name = os.path.split(prefix)
    for file in _files(folder, name):
        tf.io.gfile.remove(os.path.join(folder, file))


def _move_to_damaged(folder: str, latest: str, damaged: Sequence[str]) -> None:
    """Moves the files of damaged checkpoints into `damaged/`, where a person can inspect them."""
    if not damaged:
        return
    _name_latest(folder, [os.path.basename(latest)])
    names = [os.path.basename(prefix) for prefix in damaged]
    files = [file for name in names for file in _files(folder, name)]
    if not files:
        return
    earlier = os.path.join(folder, _DAMAGED)
    target = os.path.join(earlier, str(len(tf.io.gfile.listdir(earlier)) if tf.io.gfile.isdir(earlier) else 0))
    tf.io.gfile.makedirs(target)
    for file in files:
        tf.io.gfile.rename(os.path.join(folder, file), os.path.join(target, file))
    logging.warning("moved the files of %s to %s", ", ".join(names), target)
