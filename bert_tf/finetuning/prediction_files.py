"""Writes prediction files, and `test_data.json` beside them, which says of which data they are.

Predictions of other data never overwrite them: these files move to `earlier_predictions` first.
"""

import json
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.finetuning.task import Split, Task
from bert_tf.runs import run_folder
from tfrecords import writer
from tfrecords.errors import InputError

NAME, EARLIER = "test_data.json", "earlier_predictions"


def write(folder: str, task: Task, split: Split, predictions: np.ndarray) -> None:
    """Writes the predictions of the test data.

    Args:
      folder: of the run, or of an ensemble's results.
      task: writes its files.
      split: by example.
      predictions: by example, finite.

    Raises:
      InputError: the record of the files that are there is damaged.
    """
    data = task.fingerprint("test")
    set_aside(folder, data, task)
    paths = task.write_predictions(folder, split, predictions)
    record(folder, data, [os.path.basename(path) for path in paths])
    for path in paths:
        logging.info("wrote the predictions of %d examples to %s", len(split.examples), path)


def record(folder: str, data: Sequence[str], names: Sequence[str]) -> None:
    """Writes of which data, see `Task.fingerprint`, the prediction files of these names are."""
    entries = {"data": data, "files": names}
    writer.write_text(os.path.join(folder, NAME), json.dumps(entries, indent=2) + "\n")


def set_aside(folder: str, data: Sequence[str], task: Task) -> None:
    """Moves the prediction files of a folder away if they are of other data; a renamed file is the same data.

    Args:
      folder: of the files.
      data: of the new files, see `Task.fingerprint`.
      task: writes the new files.

    Raises:
      InputError: the record of the files that are there is damaged.
    """
    path = os.path.join(folder, NAME)
    if not tf.io.gfile.exists(path):
        return
    try:
        with tf.io.gfile.GFile(path) as file:
            entries = json.load(file)
        recorded, names = list(entries["data"]), [name for name in entries["files"] if task.overwrites(name)]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is damaged ({error!r}); delete it to overwrite the predictions beside it") from error
    if run_folder.without_names(recorded) == run_folder.without_names(data):
        return
    earlier = os.path.join(folder, EARLIER)
    number = len(tf.io.gfile.listdir(earlier)) if tf.io.gfile.isdir(earlier) else 0
    target = os.path.join(earlier, str(number))
    tf.io.gfile.makedirs(target)
    for name in [*names, NAME]:  # the record last, so that a kill leaves it with what is not moved yet
        if tf.io.gfile.exists(os.path.join(folder, name)):
            tf.io.gfile.rename(os.path.join(folder, name), os.path.join(target, name))
    logging.warning("moved the predictions of other data (%s) to %s", ", ".join(recorded), target)
