"""Evaluates a model on the dev data during training: chooses the steps, records the scores, and ends training early.

Paper: appendix A.3 (choice on the dev set).
"""

import dataclasses
import fractions
import itertools
import os
from collections.abc import Callable, Mapping

import tensorflow as tf
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.distributed import strategies, workers
from bert_tf.finetuning import evaluated_data
from bert_tf.finetuning.task import Task
from bert_tf.runs import checkpoint_folder, evaluations
from bert_tf.settings import FineTuningSettings


def evaluation_steps(settings: FineTuningSettings, num_train_steps: int) -> list[int]:
    """Returns the steps after which a run is evaluated, in ascending order; [] if `eval_strategy` is "no"."""
    if settings.eval_strategy == "no":
        return []
    if settings.eval_strategy == "steps":
        return sorted({*range(settings.eval_steps, num_train_steps, settings.eval_steps), num_train_steps})
    # A quotient of floats could be just below a whole number.
    epochs = fractions.Fraction(str(settings.num_train_epochs))
    ends = (int(epoch * num_train_steps / epochs) for epoch in itertools.count(1))
    return sorted({*itertools.takewhile(lambda step: step < num_train_steps, filter(None, ends)), num_train_steps})


class EvaluationSchedule:
    """Evaluates a run during its training, and records the evaluations in `evaluations.json`. A recorded evaluation is
    not repeated. If a run is killed before or during an evaluation, the resumed run does this evaluation before it
    continues to train. Therefore, a run records the same evaluations, however often it is killed. `evaluations.json`
    names the run's dev data, even if the only evaluation is after training.
    `strategy`: strategy of the training; all workers call the same methods.
    `task`: the task; its `metrics` state whether a higher value is better.
    `data`: identity of the dev data, see `fingerprint_of`; "" if there is no dev data.
    `trained_steps`: step of the checkpoint from which the run resumes; recorded evaluations of later steps are dropped.
    `evaluate`: function that evaluates the weights at a step on all workers, and returns the metrics, the main metric
      first."""

    def __init__(
        self,
        settings: FineTuningSettings,
        strategy: tf.distribute.Strategy,
        task: Task,
        data: str,
        num_train_steps: int,
        trained_steps: int,
        evaluate: Callable[[int], Mapping[str, float]],
    ):
        self._folder, self._strategy, self._evaluate = settings.output_dir, strategy, evaluate
        self._steps = evaluation_steps(settings, num_train_steps)
        self._higher_is_better = {metric.name: metric.higher_is_better for metric in task.metrics}
        self._recorded = evaluations.Evaluations()
        if not data:
            if not trained_steps and evaluations.exists(self._folder):
                self._write()  # the file belongs to an earlier run, whose checkpoints were deleted
            return
        recorded = evaluations.read(self._folder).up_to(trained_steps) if trained_steps else evaluations.Evaluations()
        if recorded.data and not evaluated_data.is_same(recorded.data, data):
            if self._steps:
                raise InputError(
                    f"{os.path.join(self._folder, evaluations.NAME)}: belongs to other dev data ({recorded.data}, now "
                    f"{data}); restore the earlier data, or delete this file to choose among later checkpoints"
                )
            evaluated_data.refuse_tuning(settings)
            return
        if not self._steps:
            if strategies.is_chief(strategy):
                evaluations.write(self._folder, dataclasses.replace(recorded, data=data))
            return
        if missing := [step for step in self._steps if step < trained_steps and step not in recorded.scores]:
            logging.warning(
                "%s has no evaluation of step %s; the best checkpoint is chosen among other steps",
                os.path.join(self._folder, evaluations.NAME), ", ".join(map(str, missing)),
            )  # fmt: skip
        self._recorded = dataclasses.replace(recorded, data=data, patience=settings.early_stopping_patience)
        # Wait until all workers have read the file, because the chief then replaces the file.
        workers.check_same_facts(strategy, {"evaluations": dataclasses.asdict(self._recorded)})
        self._write()

    def __call__(self, step: int) -> None:
        """Evaluates the weights at a step, if an evaluation is due at this step and is not recorded yet."""
        if step not in self._steps or step in self._recorded.scores:
            return
        scores = dict(self._evaluate(step))
        main = next(iter(scores))
        self._recorded = dataclasses.replace(
            self._recorded,
            metric=main,
            higher_is_better=self._higher_is_better.get(main, True),
            scores={**self._recorded.scores, step: scores},
        )
        self._write()
        # No worker may read the file before the chief has added this evaluation.
        workers.wait_for_chief(self._strategy, os.path.join(self._folder, evaluations.NAME))

    @property
    def best_step(self) -> int | None:
        """Step of the best evaluation so far; None before the first evaluation."""
        return self._recorded.best_step

    def next_after(self, step: int) -> int | None:
        """Returns the step of the next evaluation after a step; None if there is no further evaluation."""
        return next((due for due in self._steps if due > step), None)

    def has_ended(self) -> bool:
        """Returns whether training ends early because `early_stopping_patience` is exhausted; logs the reason."""
        if (step := self._recorded.stopped_at) is None:
            return False
        metric, best = self._recorded.metric, self._recorded.best_step
        logging.info(
            "training ends early at step %d: no %s better than %.4g (step %d) in %d evaluations",
            step, metric, self._recorded.scores[best][metric], best, self._recorded.patience,
        )  # fmt: skip
        return True

    def _write(self) -> None:
        if strategies.is_chief(self._strategy):
            evaluations.write(self._folder, self._recorded)
            checkpoint_folder.delete_stale_weights(self._folder)
