"""Resumes a run: finds its checkpoint and its position in the data, and restores the state of training.

Pre-training and fine-tuning resume in the same way. A checkpoint of step n stores the `Position` in the data after
step n, so a resumed run reads the same batches as an uninterrupted run.
"""

import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.distributed import workers
from bert_tf.input.record_order import BEGINNING, Position
from bert_tf.runs import checkpoint_folder, run_folder, run_record
from bert_tf.runs.checkpoint_folder import ResumePoint
from bert_tf.training.trainer import Trainer


def shared_checkpoint(folder: str, strategy: tf.distribute.Strategy) -> ResumePoint:
    """Finds the checkpoint to resume from, and checks that all workers see the same checkpoint."""
    point = checkpoint_folder.newest_intact(folder)
    workers.check_same_folder(strategy, folder, point.step)
    return point


def start_position(folder: str, phase: run_record.TrainingRecord, point: ResumePoint) -> Position:
    """Returns the position in the data at which a phase starts. This is the checkpoint's position if the checkpoint was
    trained on the phase's data, else the beginning of the data."""
    return point.position if run_folder.check_phase(folder, phase, point.step) else BEGINNING


def checkpoint_entries(trainer: Trainer, step: int) -> tf.train.Checkpoint:
    """Returns the objects to save. At step 0, the optimizer is omitted: its moments are 0 and would triple the size."""
    return trainer.checkpoint if step else trainer.checkpoint_without_optimizer


def restore(trainer: Trainer, point: ResumePoint) -> None:
    """Restores weights, optimizer, step and seed from a checkpoint; does nothing if there is no checkpoint."""
    if not point.prefix:
        return
    with trainer.strategy.scope():
        try:
            checkpoint_entries(trainer, point.step).restore(point.prefix).assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            reason = str(error).split("\n")[0]
            raise InputError(
                f"{point.prefix}: belongs to another model or optimizer ({reason}); give another --output_dir"
            ) from error
