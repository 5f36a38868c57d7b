"""Follows the checkpoints that another process saves."""

import re
import time
from collections.abc import Callable, Iterator

import tensorflow as tf
from absl import logging

from tfrecords.errors import InputError

_SECONDS_BETWEEN_LOOKS = 1.0


def follow(output_dir: str, timeout: float, is_last: Callable[[int], bool]) -> Iterator[str]:
    """Gives a folder's latest checkpoint, then each new one as it is saved.

    A trainer names a checkpoint in the folder's `checkpoint` file only once it is whole. It deletes old ones, so
    one that was given may be gone before it has been read; `is_there` tells.

    Args:
      output_dir: the run's folder; need not be there yet.
      timeout: seconds to wait for the first and for each next one; 0 gives the latest alone.
      is_last: whether the run ends with the checkpoint of this step.

    Yields:
      Prefixes, by ascending step.

    Raises:
      InputError: there is no checkpoint, and none came in time.
    """
    newest, waiting_since = -1, time.monotonic()
    while True:
        kept = _checkpoints(output_dir)
        new = [step for step in sorted(kept) if step > newest]
        for step in new if newest >= 0 else new[-1:]:
            newest = step
            yield kept[step]
            waiting_since = time.monotonic()
        if newest >= 0 and (timeout == 0 or is_last(newest)):
            return
        if time.monotonic() - waiting_since >= timeout:
            if newest < 0:
                waited = f" after {timeout:g} seconds" if timeout else ""
                raise InputError(
                    f"{output_dir}: holds no checkpoint{waited}; give a folder where training has saved one"
                )
            logging.info("no new checkpoint in %g seconds; the last was that of step %d", timeout, newest)
            return
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def is_there(prefix: str) -> bool:
    """Whether a checkpoint has not been deleted."""
    return tf.io.gfile.exists(f"{prefix}.index") and bool(tf.io.gfile.glob(f"{prefix}.data-*"))


def _checkpoints(output_dir: str) -> dict[int, str]:
    """Prefixes of the checkpoints that a folder names, by step."""
    state = tf.train.get_checkpoint_state(output_dir) if tf.io.gfile.isdir(output_dir) else None
    if state is None:
        return {}
    numbered = ((re.search(r"-(\d+)$", prefix), prefix) for prefix in state.all_model_checkpoint_paths)
    return {int(number[1]): prefix for number, prefix in numbered if number}
