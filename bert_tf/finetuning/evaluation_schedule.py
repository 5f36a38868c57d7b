"""Evaluation on the dev data during training: at which steps, and whether training ends early.

Paper: appendix A.3 (choice on the dev set).
"""

import dataclasses
import fractions
import itertools
import os
from collections.abc import Callable, Mapping

import tensorflow as tf
from absl import logging

from bert_tf.checkpoint_formats import evaluations
from bert_tf.distributed import strategies, workers
from bert_tf.finetuning.task import Task
from bert_tf.settings import FineTuningSettings
from tfrecords.errors import InputError


def evaluation_steps(settings: FineTuningSettings, num_train_steps: int) -> list[int]:
    """Returns the steps after which a run is evaluated, in ascending order; [] without `eval_strategy`."""
    if settings.eval_strategy == "no":
        return []
    if settings.eval_strategy == "steps":
        return sorted({*range(settings.eval_steps, num_train_steps, settings.eval_steps), num_train_steps})
    epochs = fractions.Fraction(str(settings.num_train_epochs))  # a quotient of floats may be just below a step
    ends = (int(epoch * num_train_steps / epochs) for epoch in itertools.count(1))
    return sorted({*itertools.takewhile(lambda step: step < num_train_steps, filter(None, ends)), num_train_steps})


class EvaluationSchedule:
    """Evaluates a run during its training, and records it in `evaluations.json`.

    An evaluation that is recorded is not repeated. One that a kill prevented takes place when the run resumes, before
    training continues. So a run records the same evaluations however often it is killed.

    Args:
      settings: of the run.
      strategy: where it trains; all workers call the same methods.
      task: gives the dev data, and says of its metrics whether higher is better.
      num_train_steps: of the run.
      trained_steps: step of the checkpoint that it resumes from; the folder's evaluations of later ones are dropped.
      evaluate: evaluates the weights at a step on all workers, and returns the metrics, the main one first.

    Raises:
      InputError: the dev data has changed since the folder's first evaluation.
    """

    def __init__(
        self,
        settings: FineTuningSettings,
        strategy: tf.distribute.Strategy,
        task: Task,
        num_train_steps: int,
        trained_steps: int,
        evaluate: Callable[[int], Mapping[str, float]],
    ):
        self._folder, self._strategy, self._evaluate = settings.output_dir, strategy, evaluate
        self._steps = evaluation_steps(settings, num_train_steps)
        self._higher_is_better = {metric.name: metric.higher_is_better for metric in task.metrics}
        self._recorded = evaluations.Evaluations()
        if not self._steps:
            return
        recorded = evaluations.read(self._folder).up_to(trained_steps)
        data = tuple(task.fingerprint("dev"))
        if recorded.scores and recorded.data != data:
            raise InputError(
                f"{os.path.join(self._folder, evaluations.NAME)}: is of other dev data ({', '.join(recorded.data)}, "
                f"now {', '.join(data)}); restore that data, or delete this file to choose among later checkpoints"
            )
        if missing := [step for step in self._steps if step < trained_steps and step not in recorded.scores]:
            logging.warning(
                "%s has no evaluation of step %s; the best checkpoint is chosen among those of other steps",
                os.path.join(self._folder, evaluations.NAME), ", ".join(map(str, missing)),
            )  # fmt: skip
        self._recorded = dataclasses.replace(recorded, data=data, patience=settings.early_stopping_patience)
        # all workers have read the file when the chief writes it
        workers.check_same_facts(strategy, {"evaluations": dataclasses.asdict(self._recorded)})
        if recorded.scores:
            self._write()

    def __call__(self, step: int) -> None:
        """Evaluates the weights at a step, if an evaluation is due there and is not recorded yet."""
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
        # no worker may read the file before this evaluation is in it
        workers.wait_for_chief(self._strategy, os.path.join(self._folder, evaluations.NAME))

    @property
    def best_step(self) -> int | None:
        """Step of the best evaluation so far; None if there is none."""
        return self._recorded.best_step

    def next_after(self, step: int) -> int | None:
        """Returns the step of the next evaluation after a step; None if there is none."""
        return next((due for due in self._steps if due > step), None)

    def has_ended(self) -> bool:
        """Whether the patience has ended, so that training ends early."""
        if (step := self._recorded.stopped_at) is None:
            return False
        metric, best = self._recorded.metric, self._recorded.best_step
        logging.info(
            "training ends early at step %d: no better %s than %.4g of step %d in %d evaluations",
            step, metric, self._recorded.scores[best][metric], best, self._recorded.patience,
        )  # fmt: skip
        return True

    def _write(self) -> None:
        if strategies.is_chief(self._strategy):
            evaluations.write(self._folder, self._recorded)
