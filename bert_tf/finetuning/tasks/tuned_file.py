"""Writes a file of tuned thresholds; of the same checkpoint, one that a person has changed is kept beside it."""

import itertools
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from tfrecords import writer

# Thresholds that are tuned again with other batches differ by less.
_TOLERANCE = 1e-4


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
    if tf.io.gfile.exists(path) and _is_changed(path, step, key, tuned):
        names = (f"{path}.edited-{number}" for number in itertools.count())
        kept = next(each for each in names if not tf.io.gfile.exists(each))
        tf.io.gfile.copy(path, kept)
        logging.warning("%s: was changed since it was tuned; it is tuned again, and the changed one is %s", path, kept)
    text = json.dumps({"step": step, key: tuned}, indent=2, ensure_ascii=False)
    writer.write_text(path, text + "\n")


def _is_changed(path: str, step: int | None, key: str, tuned: Any) -> bool:
    """Whether a file holds, for the same checkpoint, other thresholds than are tuned now."""
    with tf.io.gfile.GFile(path) as file:
        text = file.read()
    try:
        known = json.loads(text)
        if known["step"] != step:
            return False
        pair = [found if isinstance(found, Mapping) else {"": found} for found in (known[key], tuned)]
        values = [[float(found[label]) for label in pair[1]] for found in pair]
        return pair[0].keys() != pair[1].keys() or not np.allclose(*values, _TOLERANCE, _TOLERANCE)
    except (ValueError, KeyError, TypeError):
        return True
