"""The answers of a task with one class per example.

Paper: section 3.2, Figure 4 (a) and (b).
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from scipy import special

from bert_tf.finetuning.task import ACCURACY, LOSS
from bert_tf.tasks.classification import scores
from bert_tf.tasks.classification.answers import Answers, unknown_label
from bert_tf.tasks.classification.example import CLASSIFICATION
from bert_tf.training.metrics import Metric


@dataclasses.dataclass(frozen=True)
class Classes(Answers):
    """One class per example."""

    labels: tuple[str, ...]  # names of the classes in the order of their ids
    # names of the task's scores in `scores.SCORES`; the main score comes first
    score_names: tuple[str, ...] = ("accuracy", "macro_f1")
    weights: tuple[float, ...] = ()  # factor of each class in the loss; () if all factors are 1
    # maps other spellings of labels in the files to the labels
    spellings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kind: ClassVar[str] = CLASSIFICATION
    metrics: ClassVar[tuple[Metric, ...]] = (LOSS, ACCURACY)

    @property
    def parameters(self) -> dict[str, Any]:
        return {"class_weights": list(self.weights)} if self.weights else {}

    def target(self, label: str | None) -> float:
        """Returns the id of a class; 0 for an unknown label."""
        if label is None:
            return 0.0
        label = self.spellings.get(label, label)
        if label not in self.labels:
            raise unknown_label(label, self.labels)
        return float(self.labels.index(label))

    def losses(self, logits: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the weighted cross-entropy and the accuracy from logits [B, C] and ids [B]."""
        ids = tf.cast(targets, tf.int32)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(ids, logits)
        if self.weights:
            loss *= tf.gather(tf.constant(self.weights), ids)
        return {"loss": loss, "accuracy": tf.cast(tf.argmax(logits, -1, tf.int32) == ids, tf.float32)}

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        return special.softmax(outputs, axis=-1)

    def predicted(self, outputs: np.ndarray) -> list[str]:
        return [self.labels[best] for best in np.argmax(self.probabilities(outputs), axis=1)]

    def scores(self, targets: np.ndarray, outputs: np.ndarray) -> dict[str, float]:
        answers = np.where(np.isnan(outputs).any(axis=1), np.nan, np.argmax(outputs, axis=1))
        return scores.compute(self.score_names, targets, answers)

    def constant(self, targets: np.ndarray) -> tuple[str, np.ndarray]:
        """See `Answers`. The best constant answer is the majority class."""
        most = int(np.bincount(targets.astype(int)).argmax())
        outputs = np.eye(len(self.labels), dtype=np.float32)[np.full(len(targets), most)]
        return f"{self.labels[most]!r}, the majority class", outputs

    def only_answer(self, targets: np.ndarray, outputs: np.ndarray) -> str:
        best = np.argmax(outputs, axis=1)
        return repr(self.labels[best[0]]) if np.ptp(best) == 0 and np.ptp(targets) else ""

    def lines(self, targets: np.ndarray, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        log_probabilities = outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True)
        for target, row in zip(targets.astype(int), log_probabilities, strict=True):
            answer = {"label": self.labels[target], "prediction": self.labels[int(np.argmax(row))]}
            yield answer | {"loss": float(-row[target]), "probabilities": np.exp(row).tolist()}

    def table(self, outputs: np.ndarray, folder: str) -> tuple[list[str], list[str], np.ndarray]:
        names = [f"probability of {label}" for label in self.labels]
        return ["label", *names], self.predicted(outputs), self.probabilities(outputs)
