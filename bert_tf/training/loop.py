"""The training loop: orbit's controller trains from the folder's newest checkpoint to the last step.

Paper: appendix A.2 (pre-training procedure), A.3 (fine-tuning procedure).
"""

import contextlib
import io
import os
from collections.abc import Callable

import orbit
import tensorflow as tf
from absl import logging

from bert_tf.distributed import strategies, workers
from bert_tf.runs import checkpoint_folder, run_folder
from bert_tf.settings import FineTuningSettings, PretrainingSettings
from bert_tf.training import metrics_file, resume, summaries
from bert_tf.training.interruption import Interruption
from bert_tf.training.metrics import NotFinite
from bert_tf.training.progress import TrainingProgress
from bert_tf.training.trainer import MOST_SKIPPED_IN_A_ROW, Stopped, Trainer

# Without a TPU, returning to Python costs almost no time, so short loops can show progress.
_STEPS_PER_LOOP_OFF_TPU = 50
# Each loop adds one point to a curve, and even a short run must have enough points for a curve.
_FEWEST_LOOPS = 20
# Training has diverged if the loss exceeds the first loss times _DIVERGED_FACTOR plus _DIVERGED_MORE. Random
# differences between batches are smaller.
_DIVERGED_FACTOR, _DIVERGED_MORE = 2, 1
_REMEDY = "lower --learning_rate or raise the warm-up, in another --output_dir"


def optimizer_facts(
    settings: PretrainingSettings | FineTuningSettings,
    num_train_steps: int,
    num_warmup_steps: int,
    num_schedule_steps: int,
) -> dict:
    """Returns the optimizer settings that affect the weights, for `run_record.TrainingRecord`."""
    return {
        "optimizer": settings.optimizer,
        "adam_bias_correction": settings.adam_bias_correction,
        "decay_after_warmup": settings.decay_after_warmup,
        "learning_rate": settings.learning_rate,
        "num_train_steps": num_train_steps,
        "num_warmup_steps": num_warmup_steps,
        "num_schedule_steps": num_schedule_steps,
        "train_batch_size": settings.train_batch_size,
        "dtype": settings.dtype,
        "random_seed": settings.random_seed,
        "init_checkpoint": run_folder.resolved_path(settings.init_checkpoint),
    }


def train(
    trainer: Trainer,
    settings: PretrainingSettings | FineTuningSettings,
    num_train_steps: int,
    point: checkpoint_folder.ResumePoint,
    evaluate: Callable[[], None] | None = None,
    next_evaluation: Callable[[int], int | None] = lambda step: None,
    has_ended: Callable[[], bool] = lambda: False,
) -> None:
    """Trains up to a step, from the checkpoint in `point`, or from the model's weights if there is no checkpoint. After
    SIGTERM or Ctrl-C, training continues for about a second, or to the end of a slower step. Then training saves a
    checkpoint and stops. On a TPU, or with several workers, training first finishes the current loop.
    `trainer`: a trainer with an optimizer and training data.
    `settings`: settings with the folder, the interval of checkpoints and the number of steps per loop.
    `num_train_steps`: the last step, counted from the first step in the folder.
    `evaluate`: function that is called at the start, and after every checkpoint but the last.
    `next_evaluation`: function that takes a step, and returns the next step at which an evaluation needs a checkpoint;
      None if there is no such step. This checkpoint is saved in addition to the checkpoints of the settings.
    `has_ended`: function that is called after `evaluate`; if it returns True, training ends before its last step.
    Raises NotFinite: a weight is not finite, or a step failed because its loss or gradient is not finite. With
    `skip_non_finite_steps`, training fails only after many such steps in a row."""
    run = _Run(trainer, settings, num_train_steps, point)
    step = run.first_step
    if step >= num_train_steps:
        logging.info("training is already complete at step %d", step)
        return
    every = settings.save_checkpoints_steps
    try:
        while step < num_train_steps:
            if evaluate:
                evaluate()
            if has_ended():
                break
            step = min(num_train_steps, (step // every + 1) * every, next_evaluation(step) or num_train_steps)
            run.train_to(step)
    finally:
        if run.shown:
            run.shown.close()
    logging.info("saved %s", run.saved)
    if run.shown:
        _warn_if_diverged(settings.output_dir)
    # No worker may continue or read the folder before the last checkpoint is complete.
    workers.wait_for_chief(trainer.strategy, f"{run.saved}.index")


def _warn_if_diverged(folder: str) -> None:
    """Warns if the newest loss is far above the run's first loss."""
    rows = [row for row in metrics_file.read(folder) if row["split"] == metrics_file.TRAIN]
    losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    if losses and losses[-1][1] > _DIVERGED_FACTOR * losses[0][1] + _DIVERGED_MORE:
        logging.warning("training has diverged: the loss was %.4g at step %d and is %.4g at step %d; %s",
                        losses[0][1], losses[0][0], losses[-1][1], losses[-1][0], _REMEDY)  # fmt: skip


class _Run:
    """A training run in progress.
    `first_step`: number of completed steps when the process starts training; 0 in a new run.
    `saved`: prefix of the last checkpoint.
    `shown`: the progress display; None on a worker that writes no files."""

    def __init__(self, trainer: Trainer, settings, num_train_steps: int, point: checkpoint_folder.ResumePoint):
        self._trainer, self._settings = trainer, settings
        self._folder, self.saved = settings.output_dir, point.prefix
        self._writes, self.shown = strategies.is_chief(trainer.strategy), None
        resume.restore(trainer, point)
        self._saved_step = self.first_step = int(trainer.global_step.numpy())
        if self.first_step >= num_train_steps:
            return
        if self._writes:
            checkpoint_folder.tidy(self._folder, point)
        if point.prefix:
            logging.info("resuming from %s", point.prefix)
        else:
            self._save()
        if self._writes:
            facts, declared = trainer.throughput.describe(), trainer.objective.metrics
            steps = f"steps {self.first_step + 1} to {num_train_steps}"
            logging.info("training in %s: %s; the first step is slow, because it is compiled", self._folder, steps)
            self.shown = TrainingProgress(self._folder, self.first_step, num_train_steps, facts, declared)
        summary_dir = os.path.join(self._folder, "train") if self._writes else None
        self._controller = orbit.Controller(
            strategy=trainer.strategy,
            trainer=trainer,
            global_step=trainer.global_step,
            steps_per_loop=_steps_per_loop(settings, num_train_steps, trainer.strategy),
            summary_manager=summaries.manager(summary_dir, trainer.global_step, trainer.objective.metrics),
            train_actions=[self._report],
        )

    def train_to(self, step: int) -> None:
        """Trains up to a step or an interruption, and saves a checkpoint."""
        # Discard orbit's output, because `TrainingProgress` shows the metrics of each loop on one line.
        with Interruption() as interruption, contextlib.redirect_stdout(io.StringIO()):
            self._trainer.must_stop = lambda: workers.any_of_all(self._trainer.strategy, interruption.noted)
            self._trainer.between_steps = self._show
            try:
                self._controller.train(steps=step, checkpoint_at_completion=False)
            except Stopped:
                self._report(self._trainer.train_loop_end())
            self._save()
            if self._trainer.must_stop():
                logging.info("saved %s", self.saved)
                interruption.stop()

    def _show(self) -> None:
        """Shows progress inside a loop, since a loop of slow steps can take minutes."""
        if not self.shown:
            return
        step = int(self._trainer.global_step.numpy())
        self.shown.end_compilation(step)
        if self.shown.is_due:
            self.shown.show(step, _floats(self._trainer.train_loop_end()))

    def _report(self, output) -> None:
        step, failed = int(self._trainer.global_step.numpy()), self._trainer.failed_step
        if self.shown:
            self.shown.update(step, _floats(output))
        if failed:
            raise NotFinite(self._of_failed_step(failed))

    def _of_failed_step(self, step: int) -> str:
        if self._settings.skip_non_finite_steps:
            what = f"{MOST_SKIPPED_IN_A_ROW + 1} consecutive steps up to step {step}"
            remedy = f"training diverged; {_REMEDY}"
        else:
            what = f"step {step}"
            remedy = f"skip such steps with --skip_non_finite_steps; if training diverged, {_REMEDY}"
        return f"loss or gradient of {what} is not finite; the last good checkpoint is {self.saved}; {remedy}"

    def _save(self) -> None:
        step = int(self._trainer.global_step.numpy())
        if self.saved and step == self._saved_step:
            return
        if name := self._trainer.non_finite_variable():
            raise NotFinite(
                f"{name} is not finite after step {step}; the last good checkpoint is {self.saved or 'none'}; "
                f"training diverged; {_REMEDY}"
            )
        self.saved = checkpoint_folder.at_step(self._folder, step)
        if self._writes:
            entries, most = resume.checkpoint_entries(self._trainer, step), self._settings.keep_checkpoint_max
            checkpoint_folder.save(self._folder, entries, step, most)
        self._saved_step = step


def _steps_per_loop(
    settings: PretrainingSettings | FineTuningSettings, num_train_steps: int, strategy: tf.distribute.Strategy
) -> int:
    """Returns the number of steps per loop. Resuming does not change this number, so curves keep the same points."""
    steps = min(settings.iterations_per_loop, settings.save_checkpoints_steps, max(1, num_train_steps // _FEWEST_LOOPS))
    return steps if isinstance(strategy, tf.distribute.TPUStrategy) else min(steps, _STEPS_PER_LOOP_OFF_TPU)


def _floats(output) -> dict[str, float]:
    return {name: float(value) for name, value in output.items()}
