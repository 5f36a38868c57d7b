"""Which of a run's checkpoints is evaluated, predicts, and is exported or converted.

Paper: appendix A.3 (choice on the dev set).
"""

import os

import tensorflow as tf
from absl import logging

from bert_tf.checkpoint_formats import best, evaluations, latest
from bert_tf.checkpoint_formats.latest import ResumePoint
from bert_tf.runs import run_folder
from tfrecords.errors import InputError

_LAST = "--use_checkpoint=last"


def choose(folder: str, newest: ResumePoint, use: str) -> ResumePoint:
    """Returns the checkpoint to evaluate, predict or export with.

    Args:
      folder: the run's folder.
      newest: its newest intact checkpoint.
      use: "best" for the best one on the dev data if the run was evaluated during training; "last" for the newest.

    Raises:
      InputError: the best checkpoint is unknown, missing or damaged.
    """
    if use != "best":
        return newest
    _refuse_lost_evaluations(folder)
    chosen = best.find(folder, newest, _LAST)
    if chosen.prefix != newest.prefix:
        found, step = evaluations.read(folder), latest.step_of(chosen.prefix)
        logging.info(
            "%s: the best checkpoint on the dev data, with %s %.4g; the last one is of step %d (%s)",
            chosen.prefix, found.metric, found.scores[step][found.metric], newest.step, _LAST,
        )  # fmt: skip
    return chosen


def _refuse_lost_evaluations(folder: str) -> None:
    """Refuses a run that was evaluated during training, but whose evaluations are not there."""
    if evaluations.exists(folder) or not tf.io.gfile.exists(os.path.join(folder, run_folder.NAME)):
        return
    given = {phase.settings.get("eval_strategy", "no") for phase in run_folder.read_phases(folder)} - {"no"}
    if given:
        raise InputError(
            f"{os.path.join(folder, evaluations.NAME)}: no such file, though the run was trained with "
            f"--eval_strategy={min(given)}, so its best checkpoint is unknown; copy the run's folder again, or "
            f"take the last one with {_LAST}"
        )
