"""The answers of a task with any number of labels per example, including no label."""

import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from absl import logging
from scipy import special

from bert_tf.core import storage
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.task import LOSS
from bert_tf.tasks.classification.answers import Answers, unknown_label
from bert_tf.tasks.classification.example import MULTI_LABEL
from bert_tf.tasks.tuned_file import TunedFile
from bert_tf.training.metrics import Form, Metric

LABEL_SCORES_NAME = "eval_labels.tsv"
_DEFAULT_THRESHOLD = 0.5
# A logit whose sigmoid is exactly 1 in float32.
_CERTAIN = 100.0
_SUBSET_ACCURACY = Metric("subset_accuracy", "subset acc", "task", form=Form.FRACTION, higher_is_better=True)
# The accuracy at the threshold 0.5, which training reports if evaluations tune the thresholds.
_AT_HALF = Metric("subset_accuracy_at_0.5", "subset acc at 0.5", "task", form=Form.FRACTION, higher_is_better=True)


@dataclasses.dataclass(frozen=True)
class LabelSets(Answers):
    """Any number of labels for each example, with an independent decision for each label."""

    labels: tuple[str, ...]  # names of the C labels in the order of their ids
    # factor of each label in the loss of the examples with this label; () if all factors are 1
    weights: tuple[float, ...] = ()
    # folder with the thresholds for an evaluation. If the folder has no thresholds, all thresholds are 0.5.
    run_folder: str = ""
    tune_thresholds: bool = False  # whether an evaluation chooses a new threshold for each label
    kind: ClassVar[str] = MULTI_LABEL

    @property
    def metrics(self) -> tuple[Metric, ...]:
        if not self.tune_thresholds:
            return (LOSS, _SUBSET_ACCURACY)
        return (LOSS, dataclasses.replace(_SUBSET_ACCURACY, is_only_evaluated=True), _AT_HALF)

    @property
    def parameters(self) -> dict[str, Any]:
        return {"class_weights": list(self.weights)} if self.weights else {}

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.labels)}

    def target(self, label: Sequence[str] | None) -> np.ndarray:
        """Returns float32 [C]: 1 for each label that the example has, else 0."""
        if unknown := [name for name in label or () if name not in self._numbers]:
            raise unknown_label(unknown[0], self.labels)
        target = np.zeros(len(self.labels), np.float32)
        target[[self._numbers[name] for name in label or ()]] = 1
        return target

    def losses(self, logits: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the loss and the subset accuracy at the threshold 0.5 from logits and targets [B, C]. The loss is
        the mean of the sigmoid cross-entropies of the labels."""
        factors = tf.constant(self.weights or (1.0,))
        losses = tf.nn.weighted_cross_entropy_with_logits(targets, logits, factors)
        right = tf.reduce_all((logits > 0) == (targets > 0), axis=1)
        name = (_AT_HALF if self.tune_thresholds else _SUBSET_ACCURACY).name
        return {"loss": tf.reduce_mean(losses, axis=1), name: tf.cast(right, tf.float32)}

    def teacher_losses(self, teacher: tf.Tensor, logits: tf.Tensor, temperature: float) -> tf.Tensor:
        """Computes the mean sigmoid cross-entropy of the teacher's probabilities, times T^2; T divides all logits."""
        teacher, logits = teacher / temperature, logits / temperature
        losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.sigmoid(teacher), logits)
        return temperature**2 * tf.reduce_mean(losses, axis=1)

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        return special.expit(outputs)

    def predicted(self, outputs: np.ndarray) -> list[tuple[str, ...]]:
        above = special.expit(outputs) > THRESHOLDS.read(self.run_folder, labels=self.labels)
        return [tuple(itertools.compress(self.labels, row)) for row in above]

    def scores(self, targets: np.ndarray, outputs: np.ndarray) -> dict[str, float]:
        """Computes micro F1, macro F1 and subset accuracy."""
        return set_scores(targets > 0, special.expit(outputs) > self._thresholds(targets, outputs))

    def _thresholds(self, targets: np.ndarray, outputs: np.ndarray) -> np.ndarray:
        if self.tune_thresholds:
            return best_thresholds(targets > 0, special.expit(outputs))
        return THRESHOLDS.read(self.run_folder, labels=self.labels)

    def is_labeled(self, labels: Sequence) -> bool:
        """See `Answers`. If no example has a label, the labels count as unknown."""
        return None not in labels and any(labels)

    def constant(self, targets: np.ndarray) -> tuple[str, np.ndarray]:
        """See `Answers`. The best constant answer is the k most frequent labels, for the k with the best micro F1."""
        labels = targets > 0
        counts = labels.sum(axis=0)
        order = np.argsort(-counts, kind="stable")
        f1 = 2 * np.cumsum(counts[order]) / (len(labels) * np.arange(1, len(order) + 1) + max(counts.sum(), 1))
        chosen = np.sort(order[: int(np.argmax(f1)) + 1])
        outputs = np.full(targets.shape, -_CERTAIN, np.float32)
        outputs[:, chosen] = _CERTAIN
        return f"{', '.join(self.labels[number] for number in chosen)}, the most frequent", outputs

    def only_answer(self, targets: np.ndarray, outputs: np.ndarray) -> str:
        labels, answers = targets > 0, special.expit(outputs) > self._thresholds(targets, outputs)
        if np.any(answers != answers[0]) or np.all(labels == labels[0]):
            return ""
        return ", ".join(itertools.compress(self.labels, answers[0])) or "no label"

    def lines(self, targets: np.ndarray, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        thresholds = self._thresholds(targets, outputs.astype(np.float32))
        probabilities = np.exp(-np.logaddexp(0, -outputs))
        losses = np.mean(np.logaddexp(0, outputs) - targets * outputs, axis=1)
        for target, loss, row in zip(targets > 0, losses, probabilities, strict=True):
            label, prediction = (list(itertools.compress(self.labels, some)) for some in (target, row > thresholds))
            answer = {"label": label, "prediction": prediction, "loss": float(loss)}
            yield answer | {"probabilities": row.tolist()}

    def table(self, outputs: np.ndarray, folder: str) -> tuple[list[str], list[str], np.ndarray]:
        """See `Answers`. The answers are JSON lists of labels."""
        here = dataclasses.replace(self, run_folder=folder)
        answers = [json.dumps(names, ensure_ascii=False) for names in here.predicted(outputs)]
        return ["labels", *(f"probability of {label}" for label in self.labels)], answers, special.expit(outputs)

    @property
    def tuned(self) -> TunedFile:
        return THRESHOLDS

    def without_tuning(self, folder: str) -> "LabelSets":
        return dataclasses.replace(self, tune_thresholds=False, run_folder=folder)

    def write(self, folder: str, targets: np.ndarray, outputs: np.ndarray, step: int | None) -> None:
        """Writes the metrics of each label, and the tuned thresholds."""
        thresholds = self._thresholds(targets, outputs)
        if self.tune_thresholds:
            THRESHOLDS.write(folder, thresholds, step, self.labels)
            logging.info("wrote the thresholds of %d labels to %s", len(self.labels), folder)
        lines = ["label\tthreshold\tprecision\trecall\tf1\texamples"]
        values = label_scores(targets > 0, special.expit(outputs) > thresholds)
        for name, threshold, row in zip(self.labels, thresholds, values, strict=True):
            lines.append("\t".join([name, str(threshold), *map(repr, row.tolist()[:3]), str(int(row[3]))]))
        storage.write_text(os.path.join(folder, LABEL_SCORES_NAME), "\n".join(lines) + "\n")

    def check_checkpoint(self, folder: str, step: int | None) -> None:
        """Refuses thresholds that were tuned on another checkpoint, unless this command tunes new thresholds."""
        if not self.tune_thresholds:
            THRESHOLDS.read(folder, step, self.labels)


def _parse(values: Mapping[str, float], labels: Sequence[str]) -> np.ndarray:
    thresholds = np.array([float(values[label]) for label in labels], np.float32)
    if not np.all((thresholds >= 0) & (thresholds <= 1)):
        raise ValueError("a threshold is not between 0 and 1")
    return thresholds


def _to_json(thresholds: np.ndarray, labels: Sequence[str]) -> dict[str, float]:
    # The string of a float32 has only as many digits as are needed to restore the float32.
    return {label: float(str(value)) for label, value in zip(labels, thresholds, strict=True)}


def evaluated_thresholds(folder: str) -> list[float]:
    """Returns the C thresholds of the last evaluation in a folder; [] if there is no evaluation."""
    path = os.path.join(folder, LABEL_SCORES_NAME)
    if not tf.io.gfile.exists(path):
        return []
    with tf.io.gfile.GFile(path) as file:
        return [float(line.rsplit("\t", 5)[1]) for line in file.read().splitlines()[1:]]


# The file with the thresholds of the labels, float32 [C].
THRESHOLDS = TunedFile(
    "thresholds.json", "thresholds", "tune_thresholds",
    lambda labels: np.full(len(labels), _DEFAULT_THRESHOLD, np.float32), _parse, _to_json,
)  # fmt: skip


def with_thresholds(description: TaskDescription, folder: str, step: int) -> TaskDescription:
    """Returns the description with the thresholds in a run's folder as a parameter; `step` is the checkpoint's step."""
    thresholds = THRESHOLDS.read(folder, step, description.labels).tolist()
    return dataclasses.replace(description, parameters={**description.parameters, "thresholds": thresholds})


def set_scores(labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Computes the scores of sets of labels.
    `labels`: bool [N, C], whether an example has a label.
    `predictions`: bool [N, C], whether the label is predicted.
    Returns the scores:
    - `micro_f1`: the F1 over the decisions for all labels.
    - `macro_f1`: the mean of the labels' F1. The F1 of a label is 0 if the label does not occur in the data and is
      never predicted.
    - `subset_accuracy`: the share of the examples for which all labels are correct."""
    from sklearn.metrics import f1_score

    return {
        "micro_f1": float(f1_score(labels, predictions, average="micro", zero_division=0.0)),
        "macro_f1": float(f1_score(labels, predictions, average="macro", zero_division=0.0)),
        "subset_accuracy": float(np.mean(np.all(labels == predictions, axis=1))),
    }


def label_scores(labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    """Computes the precision, the recall, the F1 and the number of examples of each label, float64 [C, 4]. For the
    arguments, see `set_scores`."""
    from sklearn.metrics import precision_recall_fscore_support

    return np.stack(precision_recall_fscore_support(labels, predictions, average=None, zero_division=0.0), axis=1)


def best_thresholds(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Chooses the threshold with the best F1 for each label. The candidates are the means of neighboring probabilities.
    If several candidates are equally good, the candidate nearest to 0.5 is chosen. If no example has a label, the
    threshold of this label is 0.5.
    `labels`: bool [N, C], whether an example has a label.
    `probabilities`: float32 [N, C], predicted probabilities of the labels.
    Returns thresholds, float32 [C]. A label is predicted if its probability is above its threshold."""
    chosen = [_best_threshold(labels[:, c], probabilities[:, c]) for c in range(labels.shape[1])]
    return np.array(chosen, np.float32)


def _best_threshold(labels: np.ndarray, probabilities: np.ndarray) -> float:
    if not labels.any():
        return _DEFAULT_THRESHOLD
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order].astype(np.float64)
    # If the label is predicted for the first k examples: F1 = 2 TP / (k + number of examples with the label).
    hits = np.cumsum(labels[order])
    f1 = 2 * hits / (np.arange(1, len(ranked) + 1) + hits[-1])
    candidates = ((ranked + np.append(ranked[1:], 0.0)) / 2).astype(np.float32)
    # A threshold cannot separate equal probabilities, or two probabilities whose mean is rounded to one of the two.
    below = np.append(ranked[1:], -1.0)
    divides = (ranked > candidates) & (below <= candidates)
    if not divides.any():
        return _DEFAULT_THRESHOLD
    f1 = np.where(divides, f1, -1.0)
    best = np.flatnonzero(f1 >= f1.max() - 1e-12)
    # 0.5 is as good as a candidate if it is between the two neighbors of the candidate.
    if any(below[k] <= _DEFAULT_THRESHOLD < ranked[k] for k in best):
        return _DEFAULT_THRESHOLD
    return min(candidates[best].tolist(), key=lambda value: abs(value - _DEFAULT_THRESHOLD))
