"""Follows the checkpoints that another process saves."""

import time
from collections.abc import Callable, Iterator

import tensorflow as tf
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.runs import latest

_SECONDS_BETWEEN_LOOKS = 1.0


def follow(output_dir: str, timeout: float, is_last: Callable[[int], bool]) -> Iterator[str]:
    """Yields a folder's newest intact checkpoint, and then each new checkpoint.

    The training process gives a checkpoint its name only when the checkpoint is complete. The training process also
    deletes old checkpoints, so a checkpoint may be deleted before the caller reads the files; see `is_there`.

    Args:
      output_dir: the run's folder, which may not exist yet.
      timeout: seconds to wait for each new checkpoint, including the first checkpoint; 0 to yield only the latest
        checkpoint.
      is_last: function that returns whether the run ends with the checkpoint at a step.

    Yields:
      Checkpoint prefixes, in ascending order of steps.

    Raises:
      InputError: no checkpoint appeared in time, or all checkpoints are damaged.
    """
    newest, waiting_since = -1, time.monotonic()
    while True:
        first = latest.find(output_dir).prefix if newest < 0 else ""
        there = latest.numbered(output_dir).items()
        new = {step: prefix for step, prefix in there if (prefix == first if newest < 0 else step > newest)}
        for step in sorted(new):
            newest = step
            yield new[step]
            waiting_since = time.monotonic()
        if newest >= 0 and (timeout == 0 or is_last(newest)):
            return
        if time.monotonic() - waiting_since >= timeout:
            if newest < 0:
                waited = f" after {timeout:g} seconds" if timeout else ""
                raise InputError(
                    f"{output_dir}: holds no checkpoint{waited}; give a folder where training has saved a checkpoint"
                )
            logging.info("no new checkpoint within %g seconds; the last checkpoint has step %d", timeout, newest)
            return
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def is_there(prefix: str) -> bool:
    """Returns whether a checkpoint still exists."""
    return tf.io.gfile.exists(f"{prefix}.index") and bool(tf.io.gfile.glob(f"{prefix}.data-*"))
