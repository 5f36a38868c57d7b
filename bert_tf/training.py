"""A run of training: from the folder's latest checkpoint to the last step, under orbit's controller.

Paper: appendix A.2 (pre-training procedure), A.3 (fine-tuning procedure).
"""

import contextlib
import io
import os
from collections.abc import Callable

import orbit
import tensorflow as tf
from absl import logging

from bert_tf import summaries
from bert_tf.progress import Progress
from bert_tf.record_order import BEGINNING, Position
from bert_tf.settings import ClassifierSettings, PretrainingSettings
from bert_tf.trainer import Trainer

_CHECKPOINTS_KEPT = 5
# Off a TPU a return to Python costs nothing, so it is made often enough to show progress.
_STEPS_PER_LOOP_OFF_TPU = 50


def optimizer_facts(
    settings: PretrainingSettings | ClassifierSettings, num_train_steps: int, num_warmup_steps: int
) -> dict:
    """What makes a run's optimizer this one, for `run_folder.Phase`."""
    return {
        "optimizer": settings.optimizer,
        "adam_bias_correction": settings.adam_bias_correction,
        "learning_rate": settings.learning_rate,
        "num_train_steps": num_train_steps,
        "num_warmup_steps": num_warmup_steps,
        "train_batch_size": settings.train_batch_size,
        "random_seed": settings.random_seed,
        "init_checkpoint": settings.init_checkpoint,
    }


def train(
    trainer: Trainer,
    settings: PretrainingSettings | ClassifierSettings,
    num_train_steps: int,
    evaluate: Callable[[], None] | None = None,
) -> None:
    """Trains up to a step, from the folder's latest checkpoint, or from the weights that the model has.

    Args:
      trainer: with optimizer and training data.
      settings: the folder, and how often to save and to return to Python.
      num_train_steps: step to end at, counted from the folder's first.
      evaluate: called at the start and before the training after every checkpoint but the last.
    """
    output_dir, save_checkpoints_steps = settings.output_dir, settings.save_checkpoints_steps
    steps_per_loop = min(settings.iterations_per_loop, save_checkpoints_steps, num_train_steps)
    if not isinstance(trainer.strategy, tf.distribute.TPUStrategy):
        steps_per_loop = min(steps_per_loop, _STEPS_PER_LOOP_OFF_TPU)

    manager = tf.train.CheckpointManager(
        trainer.checkpoint,
        output_dir,
        max_to_keep=_CHECKPOINTS_KEPT,
        step_counter=trainer.global_step,
        checkpoint_interval=save_checkpoints_steps,
    )

    def report(output):
        shown.update(int(trainer.global_step.numpy()), {k: float(v) for k, v in output.items()})

    # orbit prints each loop's figures; `Progress` shows them on one line
    with contextlib.redirect_stdout(io.StringIO()):
        controller = orbit.Controller(  # restores the latest checkpoint
            strategy=trainer.strategy,
            trainer=trainer,
            global_step=trainer.global_step,
            steps_per_loop=steps_per_loop,
            checkpoint_manager=manager,
            summary_manager=summaries.manager(os.path.join(output_dir, "train"), trainer.global_step),
            train_actions=[report],
        )
        first_step = int(trainer.global_step.numpy())
        if first_step:
            logging.info("resuming from %s", manager.latest_checkpoint)
        if first_step >= num_train_steps:
            logging.info("training is complete at step %d; nothing is left to do", first_step)
            return
        if not first_step:
            controller.save_checkpoint()
        shown = Progress(output_dir, first_step, num_train_steps, trainer.throughput.describe())
        try:
            step = first_step
            while step < num_train_steps:
                if evaluate:
                    evaluate()
                step = min(num_train_steps, (step // save_checkpoints_steps + 1) * save_checkpoints_steps)
                controller.train(steps=step, checkpoint_at_completion=False)
                if not manager.latest_checkpoint.endswith(f"-{step}"):
                    controller.save_checkpoint()
        finally:
            shown.close()
    logging.info("saved %s", manager.latest_checkpoint)


def latest_step(output_dir: str) -> int:
    """Step of a folder's latest checkpoint; 0 where there is none."""
    return int(_latest(output_dir, "global_step", 0))


def latest_position(output_dir: str) -> Position:
    """Where the data stood at a folder's latest checkpoint; the beginning where there is none."""
    return Position(*_latest(output_dir, "data_position", BEGINNING))


def _latest(output_dir: str, name: str, default):
    path = tf.train.latest_checkpoint(output_dir) if tf.io.gfile.isdir(output_dir) else None
    return tf.train.load_variable(path, f"{name}/.ATTRIBUTES/VARIABLE_VALUE") if path else default
