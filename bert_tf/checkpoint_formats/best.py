"""The best of a run's checkpoints on its dev data.

Paper: appendix A.3 (choice on the dev set).
"""

from bert_tf.checkpoint_formats import evaluations, latest
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
      InputError: the best checkpoint is missing or damaged, or the list of evaluations is damaged.
    """
    if not evaluations.exists(folder):
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
