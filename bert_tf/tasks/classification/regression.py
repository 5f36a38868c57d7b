"""The answers of a task with one number per example.

Paper: section 4.1 (STS-B).
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.finetuning.description import score_scale
from bert_tf.finetuning.task import LOSS
from bert_tf.tasks.classification import scores
from bert_tf.tasks.classification.answers import Answers
from bert_tf.tasks.classification.example import REGRESSION
from bert_tf.training.metrics import Metric

# Larger scores, or the gradients of squared errors of larger scores, could overflow float32.
LARGEST_SCORE = 1e30
# Predictions that differ by less than this share of the scores' standard deviation count as equal.
_SAME_SCORE = 1e-3


@dataclasses.dataclass(frozen=True)
class Regression(Answers):
    """One number per example."""

    # names of the task's scores in `scores.SCORES`; the main score comes first
    score_names: tuple[str, ...] = ("pearson", "spearman", "r_squared")
    # `low`, `high`: the lowest and the highest score
    low: float = -LARGEST_SCORE
    high: float = LARGEST_SCORE
    mean: float = 0.0
    # standard deviation of the training scores. The model learns (score - mean) / deviation, so the initial weights and
    # the learning rate suit scores in any range. Predictions are in the user's range.
    deviation: float = 1.0
    # whether the score is the sigmoid of the model's output, as in a cross-encoder of sentence-transformers
    has_sigmoid: bool = False
    kind: ClassVar[str] = REGRESSION
    labels: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[tuple[Metric, ...]] = (LOSS,)

    @classmethod
    def of_parameters(cls, parameters: Mapping[str, Any]) -> "Regression":
        """Returns the answers of a trained task from the parameters of its description."""
        mean, deviation = score_scale(parameters)
        return cls(mean=mean, deviation=deviation, has_sigmoid=parameters.get("has_sigmoid", False))

    @property
    def parameters(self) -> dict[str, Any]:
        is_standard = (self.mean, self.deviation) == (0.0, 1.0)
        scale = {} if is_standard else {"mean": self.mean, "deviation": self.deviation}
        return scale | ({"has_sigmoid": True} if self.has_sigmoid else {})

    def target(self, label: float | None) -> float:
        """Returns the score; 0 for an unknown score."""
        if label is not None and not self.low <= label <= self.high:
            raise InputError(f"the score {label:g} is outside {self.low:g} to {self.high:g}")
        return label or 0.0

    def losses(self, logits: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the squared error of standardized scores from outputs [B, 1] and scores [B]."""
        if self.has_sigmoid:
            return {"loss": tf.square(tf.sigmoid(logits[:, 0]) - targets)}
        if self.parameters:
            targets = (targets - self.mean) / self.deviation
        return {"loss": tf.square(logits[:, 0] - targets)}

    def teacher_losses(self, teacher: tf.Tensor, logits: tf.Tensor, temperature: float) -> tf.Tensor:
        """Computes the squared error of the teacher's scores."""
        return self.losses(logits, teacher[:, 0])["loss"]

    def outputs(self, logits):
        """Returns the scores in the user's range, with the shape of the logits."""
        if self.has_sigmoid:
            return tf.sigmoid(logits)
        return logits * self.deviation + self.mean if self.parameters else logits

    def predicted(self, outputs: np.ndarray) -> np.ndarray:
        return outputs[:, 0]

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        raise TypeError("a regression has no probabilities")

    def scores(self, targets: np.ndarray, outputs: np.ndarray) -> dict[str, float]:
        return scores.compute(self.score_names, targets, outputs[:, 0])

    def is_labeled(self, labels: Sequence) -> bool:
        """See `Answers`. If all scores are equal, for example -1, the scores count as unknown."""
        return None not in labels and len(set(labels)) > 1

    def constant(self, targets: np.ndarray) -> tuple[str, np.ndarray]:
        """See `Answers`. The best constant answer is the mean score."""
        mean = float(np.mean(targets, dtype=np.float64))
        return f"the mean {mean:.4g}", np.full([len(targets), 1], mean, np.float32)

    def only_answer(self, targets: np.ndarray, outputs: np.ndarray) -> str:
        is_one = np.ptp(targets) and np.ptp(outputs) < _SAME_SCORE * np.std(targets)
        return f"the same score, {outputs.mean():.4g}" if is_one else ""

    def lines(self, targets: np.ndarray, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        for target, score in zip(targets.tolist(), outputs[:, 0].tolist(), strict=True):
            yield {"label": target, "prediction": score, "loss": (score - target) ** 2}

    def table(self, outputs: np.ndarray, folder: str) -> tuple[list[str], list[str], np.ndarray]:
        return ["score"], [], outputs
