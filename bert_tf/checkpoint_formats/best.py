"""The best of a run's checkpoints on its dev data.

Paper: appendix A.3 (choice on the dev set).
"""

import os

from bert_tf.checkpoint_formats import evaluations, latest, run_record
from bert_tf.checkpoint_formats.latest import ResumePoint
from bert_tf.checkpoint_formats.tensor_bundle import damage
from tfrecords.errors import InputError


def find(folder: str, newest: ResumePoint, instead: str) -> ResumePoint:
    """Returns the best checkpoint of a run's folder, or the newest one if the run was not evaluated during training.

    Args:
      folder: the run's folder.
      newest: its newest intact checkpoint.
      instead: what the error tells to do to take the newest one.

    Raises:
      InputError: the best checkpoint is unknown, missing or damaged, or the list of evaluations is damaged.
    """
    if not evaluations.exists(folder):
        _refuse_lost_evaluations(folder, instead)
        return newest
    step = evaluations.read(folder).up_to(newest.step).best_step
    if step in (None, newest.step):
        return newest
    prefix = latest.numbered(folder).get(step, "")
    if reason := damage(prefix) if prefix else f"{folder}/ckpt-{step} is missing":
        raise InputError(
            f"{folder}: its best checkpoint on the dev data cannot be used ({reason}); copy the run's folder again, or "
            f"take the last one with {instead}"
        )
    return ResumePoint(prefix)


def _refuse_lost_evaluations(folder: str, instead: str) -> None:
    """Refuses a run that was to be evaluated during training, but whose evaluations are not there."""
    if not run_record.exists(folder):
        return
    given = {phase.settings.get("eval_strategy", "no") for phase in run_record.read_phases(folder)} - {"no"}
    if given:
        raise InputError(
            f"{os.path.join(folder, evaluations.NAME)}: no such file, though the run has "
            f"--eval_strategy={min(given)}, so its best checkpoint is unknown; copy the run's folder again, or, if it "
            f"ended before its first evaluation, take the last checkpoint with {instead}"
        )
