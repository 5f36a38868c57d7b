"""Finds a run's best checkpoint on the dev data.

The best checkpoint is complete as long as it is one of the newest checkpoints. Later, only the weights are kept, as
`best-STEP`. Training cannot resume from such weights.

Paper: appendix A.3 (choice on the dev set).
"""

import os
import re

import tensorflow as tf

from bert_tf.checkpoint_formats.tensor_bundle import damage
from bert_tf.core.errors import InputError
from bert_tf.runs import evaluations, latest, run_record
from bert_tf.runs.latest import ResumePoint

_WEIGHTS = re.compile(r"^best-\d+\.index$")


def find(folder: str, newest: ResumePoint, instead: str) -> ResumePoint:
    """Returns a run's best checkpoint, or the newest checkpoint if the run was not evaluated during training.

    Args:
      folder: the run's folder.
      newest: the folder's newest intact checkpoint.
      instead: the flag or path that selects the newest checkpoint, for the advice in the error message.

    Raises:
      InputError: the best checkpoint is unknown, missing or damaged, or the list of evaluations is damaged.
    """
    if not evaluations.exists(folder):
        _refuse_lost_evaluations(folder, instead)
        return newest
    step = evaluations.read(folder).up_to(newest.step).best_step
    if step in (None, newest.step):
        return newest
    reason = f"{folder}/ckpt-{step} is missing"
    for prefix in (prefix for prefix in (*latest.prefixes(folder), *weights(folder)) if latest.step_of(prefix) == step):
        reason = damage(prefix)
        if not reason:
            return ResumePoint(prefix)
    raise InputError(
        f"{folder}: the run's best checkpoint on the dev data cannot be used ({reason}); copy the folder again, or "
        f"take the last checkpoint with {instead}"
    )


def weights_name(step: int) -> str:
    """Returns the name of the checkpoint that contains only the weights after a step."""
    return f"best-{step}"


def weights(folder: str) -> list[str]:
    """Lists the prefixes of a folder's checkpoints that contain only weights."""
    names = [name.removesuffix(".index") for name in tf.io.gfile.listdir(folder) if _WEIGHTS.match(name)]
    return [os.path.join(folder, name) for name in names]


def _refuse_lost_evaluations(folder: str, instead: str) -> None:
    """Refuses a run whose settings require evaluations during training if the evaluations are missing."""
    if not run_record.exists(folder):
        return
    given = {phase.settings.get("eval_strategy", "no") for phase in run_record.read_phases(folder)} - {"no"}
    if given:
        raise InputError(
            f"{os.path.join(folder, evaluations.NAME)}: no such file, though the run has "
            f"--eval_strategy={min(given)}, so the best checkpoint is unknown; copy the run's folder again, or, if "
            f"the run ended before its first evaluation, take the last checkpoint with {instead}"
        )
