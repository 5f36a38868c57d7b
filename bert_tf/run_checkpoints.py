"""The checkpoints of a run's folder: the newest whole one, and how one more is added without risk to the others.

A checkpoint is written aside, flushed to the disk, renamed, and only then named in the folder's `checkpoint` file;
after that the oldest are deleted. So at any moment, of a kill, a power cut or a full disk, the one that is named
is whole.
"""

import contextlib
import dataclasses
import os
import re
import shutil
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from bert_tf.checkpoint_formats.tensor_bundle import STATE_NAME, VALUE, damage
from bert_tf.record_order import BEGINNING, Position
from tfrecords import writer
from tfrecords.errors import InputError

KEPT = 5
# Where a checkpoint is while it is written, and where damaged ones are put.
_SAVING, _DAMAGED = "saving", "damaged"
_INDEX = re.compile(r"^ckpt-(\d+)\.index$")
_STEP = re.compile(r"-(\d+)$")


@dataclasses.dataclass(frozen=True)
class Found:
    """What a folder has to go on from.

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
    found = {*named, *(os.path.join(folder, name[: -len(".index")]) for name in _indexes(folder))}
    return sorted(found, key=lambda prefix: (prefix == latest, _step(prefix)), reverse=True)


def numbered(folder: str) -> dict[int, str]:
    """A folder's checkpoints, whole or not, by the step in their names."""
    return {_step(prefix): prefix for prefix in prefixes(folder)}


def find(folder: str) -> Found:
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
            return Found(prefix, tuple(reasons))
        reasons[prefix] = reason
    if reasons:
        raise InputError(
            f"{folder}: none of its checkpoints can be read ({'; '.join(reasons.values())}); copy them again, or give "
            "another folder"
        )
    return Found()


def check_there(folder: str) -> None:
    """Refuses a folder without a checkpoint; whether one is whole is not looked at.

    Raises:
      InputError: names the folder.
    """
    if not prefixes(folder):
        raise InputError(f"{folder}: holds no checkpoint; give a folder where training has saved one")


def at_step(folder: str, step: int) -> str:
    """Prefix of a step's checkpoint."""
    return os.path.join(folder, f"ckpt-{step}")


def save(folder: str, checkpoint: tf.train.Checkpoint, step: int) -> str:
    """Adds a checkpoint to a folder, and deletes the oldest beyond `KEPT` once it is on the disk.

    Args:
      folder: of the run; local, or one that TensorFlow can write.
      checkpoint: what to save.
      step: its number.

    Returns:
      Its prefix.

    Raises:
      InputError: it cannot be written, as on a full disk; nothing half written is left, and the others are as they
        were.
    """
    # `restore` looks for this counter, `write` alone leaves it out
    checkpoint.save_counter.assign(1)
    prefix = at_step(folder, step)
    name = os.path.basename(prefix)
    try:
        if _is_local(folder):
            with _aside(folder) as aside:
                checkpoint.write(os.path.join(aside, name))
                _move(aside, name, folder)
        else:  # what is written to an object store is there whole or not at all
            checkpoint.write(prefix)
        kept = [path for path in _by_step(folder) if _step(path) <= step][-KEPT:]
        _name_latest(folder, [os.path.basename(path) for path in kept])
    except (tf.errors.OpError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.message.rpartition("; ")[2]
        raise InputError(
            f"{prefix}: cannot be saved ({reason}); those before it are whole, so mend that, by freeing space perhaps, "
            "and the same command goes on from them"
        ) from error
    for path in _by_step(folder):
        if _step(path) < _step(kept[0]):
            _remove(path)
    return prefix


def tidy(folder: str, found: Found) -> None:
    """Makes a folder ready to be trained into, under its lock: what a kill left goes, what is damaged is put aside.

    Args:
      folder: of the run.
      found: what `find` gave.
    """
    with contextlib.suppress(tf.errors.NotFoundError):
        tf.io.gfile.rmtree(os.path.join(folder, _SAVING))
    _put_aside(folder, found)
    whole = {os.path.basename(prefix) for prefix in prefixes(folder)}
    for name in tf.io.gfile.listdir(folder):
        # a process that evaluates may be writing these
        half_written = writer.TEMPORARY in name and not name.startswith(("report.html", "eval_results.txt"))
        data_of = re.match(r"(ckpt-\d+)\.data-\d{5}-of-\d{5}$", name)
        # a kill in the midst of deleting leaves data without the index that makes it a checkpoint
        if half_written or (data_of and data_of[1] not in whole):
            tf.io.gfile.remove(os.path.join(folder, name))


def check_space(folder: str, checkpoint_bytes: int) -> None:
    """Refuses to begin where the next checkpoint has no room, and warns where those that are kept will have none.

    Args:
      folder: of the run, which is there.
      checkpoint_bytes: size of one.

    Raises:
      InputError: says what is needed and what is free.
    """
    if not _is_local(folder):
        return
    free = shutil.disk_usage(folder).free
    there = min(KEPT, len(_indexes(folder)))
    # the oldest one goes only once the newest is written
    needed = checkpoint_bytes * (KEPT + 1 - there)
    if free < checkpoint_bytes:
        raise InputError(
            f"--output_dir={folder}: a checkpoint takes {_megabytes(checkpoint_bytes)}, and {_megabytes(free)} are "
            "free there; free some, or give another folder"
        )
    if free < needed:
        logging.warning(
            "%s: the checkpoints that are kept will take %s more, and %s are free there",
            folder, _megabytes(needed), _megabytes(free),
        )  # fmt: skip


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _is_local(folder: str) -> bool:
    return "://" not in folder


def _step(prefix: str) -> int:
    number = _STEP.search(prefix)
    return int(number[1]) if number else -1


def _indexes(folder: str) -> list[str]:
    return [name for name in tf.io.gfile.listdir(folder) if _INDEX.match(name)]


def _by_step(folder: str) -> list[str]:
    return sorted((os.path.join(folder, name[: -len(".index")]) for name in _indexes(folder)), key=_step)


def _named(folder: str) -> tuple[list[str], str]:
    """Prefixes in the folder's `checkpoint` file, and its latest; none where it is damaged."""
    try:
        state = tf.train.get_checkpoint_state(folder)
    except (ValueError, tf.errors.OpError):
        state = None
    if state is None:
        return [], ""
    return [*state.all_model_checkpoint_paths, state.model_checkpoint_path], state.model_checkpoint_path


@contextlib.contextmanager
def _aside(folder: str) -> Iterator[str]:
    """A folder to write a checkpoint in, which is gone afterwards whatever comes."""
    path = os.path.join(folder, _SAVING)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _move(aside: str, name: str, folder: str) -> None:
    """Renames a checkpoint's flushed files: the index, which makes it one, as the last."""
    files = sorted(os.listdir(aside), key=lambda file: file.endswith(".index"))
    for file in files:
        _flush(os.path.join(aside, file))
    # one of the same step, which was given up for an older one: no index of it may meet data of this one
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
    writer.write_text(os.path.join(folder, STATE_NAME), "".join(f"{line}\n" for line in lines))
    if _is_local(folder):
        _flush(folder)


def _files(folder: str, name: str) -> list[str]:
    """A checkpoint's files, the index first."""
    belongs = re.compile(rf"^{re.escape(name)}\.(index|data-\d{{5}}-of-\d{{5}})$")
    return sorted(filter(belongs.match, tf.io.gfile.listdir(folder)), key=lambda file: not file.endswith(".index"))


def _remove(prefix: str) -> None:
    folder, name = os.path.split(prefix)
    for file in _files(folder, name):
        tf.io.gfile.remove(os.path.join(folder, file))


def _put_aside(folder: str, found: Found) -> None:
    """Moves the files of damaged checkpoints into a folder where a person can look at them."""
    if not found.damaged:
        return
    _name_latest(folder, [os.path.basename(found.prefix)])
    names = [os.path.basename(prefix) for prefix in found.damaged]
    files = [file for name in names for file in _files(folder, name)]
    if not files:
        return
    earlier = os.path.join(folder, _DAMAGED)
    target = os.path.join(earlier, str(len(tf.io.gfile.listdir(earlier)) if tf.io.gfile.isdir(earlier) else 0))
    tf.io.gfile.makedirs(target)
    for file in files:
        tf.io.gfile.rename(os.path.join(folder, file), os.path.join(target, file))
    logging.warning("what is left of %s is in %s now", ", ".join(names), target)
