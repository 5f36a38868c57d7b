"""Chooses the checkpoint of a run for evaluation, prediction, export and conversion.

Paper: appendix A.3 (choice on the dev set).
"""

from absl import logging

from bert_tf.runs import best, evaluations, latest, run_folder, run_record
from bert_tf.runs.latest import ResumePoint

_LAST = "--use_checkpoint=last"


def of_finished(folder: str, use: str, allow_unfinished: bool = False) -> ResumePoint:
    """Chooses the checkpoint of a finished run. Without `run.json`, the function assumes that the run is finished.

    Args:
      folder: the run's folder.
      use: see `choose`.
      allow_unfinished: see `run_folder.check_finished`.

    Raises:
      InputError: the folder has no checkpoint, the run is not finished, or `choose` raises this error.
    """
    latest.check_there(folder)
    newest = latest.find(folder)
    if run_record.exists(folder):
        run_folder.check_finished(folder, newest.step, allow_unfinished)
    return choose(folder, newest, use)


def choose(folder: str, newest: ResumePoint, use: str) -> ResumePoint:
    """Chooses the checkpoint for evaluation, prediction, export or conversion.

    Args:
      folder: the run's folder.
      newest: the folder's newest intact checkpoint.
      use: "best" selects the best checkpoint on the dev data, or the newest checkpoint if the run was not evaluated
        during training. "last" selects the newest checkpoint.

    Raises:
      InputError: the best checkpoint is unknown, missing or damaged.
    """
    if use != "best":
        return newest
    chosen = best.find(folder, newest, _LAST)
    if chosen.prefix != newest.prefix:
        found, step = evaluations.read(folder), latest.step_of(chosen.prefix)
        logging.info(
            "%s is the best checkpoint on the dev data, with %s %.4g; the last checkpoint has step %d (%s)",
            chosen.prefix, found.metric, found.scores[step][found.metric], newest.step, _LAST,
        )  # fmt: skip
    return chosen
