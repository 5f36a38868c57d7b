"""What a classifier predicts for a text. `classes`, `regression` and `multi_label` implement the three kinds."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.tasks.classification.example import Example
from bert_tf.training.divergence import divergence
from bert_tf.training.metrics import Metric


class Answers(abc.ABC):
    """The labels of a task, the loss, the scores, and the answers in files. Targets are the labels as the numbers that
    the model learns, float32 [N], or [N, C] for sets of labels. Outputs are what `outputs` returns for the logits,
    float32 [N, C], or [N, 1] for a regression.
    `parameters`: the values for `TaskDescription.parameters`."""

    kind: str
    labels: tuple[str, ...]  # names of the C classes in the order of their ids; () for a regression
    metrics: tuple[Metric, ...]  # the loss terms and metrics that `losses` returns

    @property
    def parameters(self) -> dict[str, Any]:
        return {}

    def check(self, example: Example) -> None:
        """Raises InputError if the label of an example is not one of the task."""
        try:
            self.target(example.label)
        except InputError as error:
            raise InputError(f"{example.place}: {error}") from error

    @abc.abstractmethod
    def target(self, label: Any) -> float | list[float]:
        """Returns the target of a label; `label` is None if it is unknown."""

    @abc.abstractmethod
    def losses(self, logits: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the loss and the metrics of training, float32 [B] each; see `Task.losses`."""

    def teacher_losses(self, teacher: tf.Tensor, logits: tf.Tensor, temperature: float) -> tf.Tensor:
        """Computes the loss of a teacher's outputs [B, C], float32 [B]; by default, the loss of one class."""
        return divergence(teacher, logits, temperature)

    def outputs(self, logits):
        """Returns the outputs for logits. The logits, and also the outputs, are a tensor or an array."""
        return logits

    @abc.abstractmethod
    def predicted(self, outputs: np.ndarray) -> Sequence:
        """Returns the answers of `TextClassifier.predict`."""

    @abc.abstractmethod
    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Returns the probability of each class, float32 [N, C]."""

    @abc.abstractmethod
    def scores(self, targets: np.ndarray, outputs: np.ndarray) -> dict[str, float]:
        """Computes the task's scores; the main score comes first."""

    @abc.abstractmethod
    def constant(self, targets: np.ndarray) -> tuple[str, np.ndarray]:
        """Returns the name of the best constant answer, and its outputs for all N examples."""

    @abc.abstractmethod
    def only_answer(self, targets: np.ndarray, outputs: np.ndarray) -> str:
        """Returns the predicted answer if all answers are equal although the targets differ, else ""."""

    @abc.abstractmethod
    def lines(self, targets: np.ndarray, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        """Yields the entries `label`, `prediction`, `loss` and others of each line of `dev_predictions.jsonl`. For
        classes and sets of labels, `probabilities` is in the order of the labels. For sets of labels, `label` and
        `prediction` are lists."""

    @abc.abstractmethod
    def table(self, outputs: np.ndarray, folder: str) -> tuple[list[str], list[str], np.ndarray]:
        """Returns the content of prediction files. The result is the titles of the columns; the N answers, or [] if the
        numbers are the answers; and numbers [N, C]."""

    def is_labeled(self, labels: Sequence) -> bool:
        return None not in labels

    @property
    def tuned(self) -> Any:
        """See `Task.tuned`."""
        return None

    def without_tuning(self, folder: str) -> "Answers":
        """See `Task.without_tuning`."""
        return self

    def write(self, folder: str, targets: np.ndarray, outputs: np.ndarray, step: int | None) -> None:  # noqa: B027
        """Writes further files of an evaluation; by default, none. See `Task.write_evaluation`."""

    def check_checkpoint(self, folder: str, step: int | None) -> None:  # noqa: B027
        """Raises InputError if files that `write` wrote for an evaluation do not belong to the checkpoint of `step`."""


def unknown_label(label: str, labels: Sequence[str]) -> InputError:
    """Returns the error for a label in the data that is not one of the task's labels."""
    return InputError(
        f"unknown label {label!r}; the task's labels are {', '.join(labels)}; correct the label, or train on your own "
        "data with all labels named in --labels"
    )
