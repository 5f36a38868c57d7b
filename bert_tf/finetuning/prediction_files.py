"""Writes prediction files and, in the same folder, `test_data.json`, which records the data of each prediction file.

New predictions never overwrite predictions for other data. Existing files for other data are first moved into
`earlier_predictions`, which has one folder for each data set. New predictions replace earlier predictions for the same
data, even if the earlier predictions are in `earlier_predictions`. Therefore, a repeated command leaves the same files
as the first command.
"""

import json
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.core import storage
from bert_tf.finetuning.task import Split, Task
from bert_tf.runs import run_folder

NAME, EARLIER = "test_data.json", "earlier_predictions"

# Maps the names of prediction files to the identity of their data; see `Task.fingerprint`.
_Files = dict[str, list[str]]


def write(folder: str, task: Task, split: Split, predictions: np.ndarray) -> None:
    """Writes the predictions for the test data; before that, moves predictions for other data away.

    Args:
      folder: folder of the run, or of an ensemble's results.
      task: task that writes the files.
      split: split with one row per example.
      predictions: predictions with one row per example; all values are finite.

    Raises:
      InputError: the record of the existing files is damaged.
    """
    data = task.fingerprint("test")
    set_aside(folder, data, task)
    paths = task.write_predictions(folder, split, predictions)
    record(folder, data, [os.path.basename(path) for path in paths])
    for path in paths:
        logging.info("wrote the predictions of %d examples to %s", len(split.examples), path)


def record(folder: str, data: Sequence[str], names: Sequence[str]) -> None:
    """Records that the files with these names belong to `data` (see `Task.fingerprint`); keeps other entries."""
    _write(folder, _read(folder) | {name: list(data) for name in names})


def set_aside(folder: str, data: Sequence[str], task: Task) -> None:
    """Prepares a folder for new predictions.

    Predictions for other data are moved into `earlier_predictions`. Predictions for this data are deleted from
    `earlier_predictions`. A renamed data file counts as the same data.

    Args:
      folder: folder of the prediction files.
      data: identity of the data to which the new files belong; see `Task.fingerprint`.
      task: task that writes the new files.

    Raises:
      InputError: the record of the existing files is damaged.
    """
    known = {name: of for name, of in _read(folder).items() if task.overwrites(name)}
    others: dict[tuple, list[str]] = {}
    for name in (name for name, of in known.items() if not _is_same(of, data)):
        others.setdefault(tuple(run_folder.without_names(known[name])), []).append(name)
    for names in others.values():
        _move(folder, names, known[names[0]])
    for earlier in _earlier(folder):
        found = _read(earlier)
        for name in [name for name, of in found.items() if _is_same(of, data) and task.overwrites(name)]:
            tf.io.gfile.remove(os.path.join(earlier, name))
            _write(earlier, found := {each: of for each, of in found.items() if each != name})


def _move(folder: str, names: Sequence[str], data: Sequence[str]) -> None:
    """Moves the predictions for one data set into the folder of this data set below `earlier_predictions`."""
    earlier = _earlier(folder)
    numbers = map(str, range(len(earlier) + 1))
    unused = next(path for path in (os.path.join(folder, EARLIER, n) for n in numbers) if path not in earlier)
    target = next((path for path in earlier if any(_is_same(of, data) for of in _read(path).values())), unused)
    tf.io.gfile.makedirs(target)
    record(target, data, names)
    for name in names:
        tf.io.gfile.rename(os.path.join(folder, name), os.path.join(target, name), overwrite=True)
    _write(folder, {name: of for name, of in _read(folder).items() if name not in names})
    logging.warning("moved the predictions for other data (%s) to %s", ", ".join(data), target)


def _earlier(folder: str) -> list[str]:
    parent = os.path.join(folder, EARLIER)
    names = tf.io.gfile.listdir(parent) if tf.io.gfile.isdir(parent) else []
    return [os.path.join(parent, name.rstrip("/")) for name in names]


def _is_same(one: Sequence[str], other: Sequence[str]) -> bool:
    return run_folder.without_names(one) == run_folder.without_names(other)


def _read(folder: str) -> _Files:
    """Reads the record of a folder, without entries for files that no longer exist.

    Raises:
      InputError: the record is damaged.
    """
    path = os.path.join(folder, NAME)
    if not tf.io.gfile.exists(path):
        return {}
    with storage.json_file(path, "delete it to overwrite the predictions beside it") as entries:
        known = {name: list(of) for name, of in entries["files"].items()}
    return {name: of for name, of in known.items() if tf.io.gfile.exists(os.path.join(folder, name))}


def _write(folder: str, files: _Files) -> None:
    """Writes a folder's record. If `files` is empty, deletes the record and empty folders of earlier predictions."""
    path = os.path.join(folder, NAME)
    if files:
        storage.write_text(path, json.dumps({"files": files}, indent=2) + "\n")
        return
    if tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)
    parent = os.path.dirname(folder)
    for each in (folder, parent) if os.path.basename(parent) == EARLIER else ():
        if not tf.io.gfile.listdir(each):
            tf.io.gfile.rmtree(each)
