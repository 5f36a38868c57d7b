"""Chooses the checkpoint of a run for evaluation, prediction, export and conversion.

Paper: appendix A.3 (choice on the dev set).
"""

from absl import logging

from bert_tf.checkpoint_formats.tensor_bundle import damage
from bert_tf.core.errors import InputError
from bert_tf.runs import checkpoint_folder, evaluations, run_folder, run_record
from bert_tf.runs.checkpoint_folder import ResumePoint, step_of

_LAST = "--use_checkpoint=last"


def of_finished(folder: str, use: str, allow_unfinished: bool = False) -> ResumePoint:
    """Chooses the checkpoint of a finished run. Without `run.json`, the function assumes that the run is finished."""
    checkpoint_folder.check_there(folder)
    newest = checkpoint_folder.newest_intact(folder)
    if run_record.exists(folder):
        run_folder.check_finished(folder, newest.step, allow_unfinished)
    return choose(folder, newest, use)


def choose(folder: str, newest: ResumePoint, use: str) -> ResumePoint:
    """Chooses the checkpoint for evaluation, prediction, export or conversion.
    `newest`: the folder's newest intact checkpoint.
    `use`: "best" selects the best checkpoint on the dev data, or the newest checkpoint if the run was not evaluated
      during training. "last" selects the newest checkpoint."""
    if use != "best":
        return newest
    chosen = best(folder, newest, _LAST)
    if chosen.prefix != newest.prefix:
        recorded, step = evaluations.read(folder), step_of(chosen.prefix)
        logging.info(
            "%s is the best checkpoint on the dev data, with %s %.4g; the last checkpoint has step %d (%s)",
            chosen.prefix, recorded.metric, recorded.scores[step][recorded.metric], newest.step, _LAST,
        )  # fmt: skip
    return chosen


def best(folder: str, newest: ResumePoint, instead: str) -> ResumePoint:
    """Returns a run's best checkpoint, or the newest checkpoint if the run was not evaluated during training.
    `newest`: the folder's newest intact checkpoint.
    `instead`: the flag or path that selects the newest checkpoint, for the advice in the error message."""
    if not evaluations.exists(folder):
        return newest
    step = evaluations.read(folder).up_to(newest.step).best_step
    if step in (None, newest.step):
        return newest
    reason = f"{folder}/ckpt-{step} is missing"
    for prefix in (*checkpoint_folder.prefixes(folder), *checkpoint_folder.best_weights(folder)):
        if step_of(prefix) == step and not (reason := damage(prefix)):
            return ResumePoint(prefix)
    raise InputError(
        f"{folder}: the run's best checkpoint on the dev data cannot be used ({reason}); copy the folder again, or "
        f"take the last checkpoint with {instead}"
    )
