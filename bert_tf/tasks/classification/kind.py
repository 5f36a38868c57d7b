"""The kinds of tasks that predict classes, scores or sets of labels for texts, for the registry."""

import abc
import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import tf_keras as keras
from absl import logging

from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks.classification import multi_label, report
from bert_tf.tasks.classification.classification_task import (
    CLASSIFICATION,
    REGRESSION,
    make_head,
    probabilities,
    score_scale,
)
from bert_tf.tasks.classification.find import find_task
from bert_tf.tasks.classification.reading import Reading
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.registry import Kind
from bert_tf.tasks.trained import Trained
from bert_tf.text.packing import TRUNCATE


class TextKind(Kind):
    """The base class of the three kinds; `TextClassifier` uses this interface."""

    settings, make_task = ClassifierSettings, staticmethod(find_task)
    probabilities: Callable[[np.ndarray], np.ndarray] = staticmethod(probabilities)

    @abc.abstractmethod
    def answers(self, outputs: np.ndarray, model: Trained) -> Sequence:
        """Returns a model's answers for N texts from its outputs, which are logits or scores, float32 [N, C]."""

    def head(self, described: TaskDescription, config: BertConfig) -> keras.layers.Layer:
        return make_head(described.labels, config, Reading.of_parameters(described.parameters))

    def check_format(self, format: str, source: str, described: TaskDescription) -> None:
        reading = Reading.of_parameters(described.parameters)
        if reading.pooling != "cls":
            raise InputError(
                f"--format={format}: its classifier reads the pooled [CLS], but {source} was trained with "
                f"--pooling={reading.pooling}; give --format=bert_tf"
            )
        if reading.has_both_orders:
            raise InputError(
                f"--format={format}: its code reads a pair in one order, but {source} was trained with "
                "--pair_order=both; give --format=bert_tf"
            )
        if reading.long_text != TRUNCATE:
            logging.warning(
                "--format=%s: its code truncates texts, but %s was trained with --long_text=%s, so the answers to "
                "texts of more than %d tokens will differ; --format=bert_tf keeps --long_text",
                format, source, reading.long_text, described.max_seq_length,
            )  # fmt: skip


class Classes(TextKind):
    """The kind of tasks that predict one class for each text."""

    name = CLASSIFICATION
    report_entries = staticmethod(report.classes)
    config_entries: ClassVar[dict[str, Any]] = {"problem_type": "single_label_classification"}

    def answers(self, outputs: np.ndarray, model: Trained) -> list[str]:
        return [model.description.labels[best] for best in np.argmax(probabilities(outputs), axis=1)]


class Scores(TextKind):
    """The kind of tasks that predict one number for each text."""

    name, score_scale = REGRESSION, staticmethod(score_scale)
    report_entries = staticmethod(report.scores)
    config_entries: ClassVar[dict[str, Any]] = {"problem_type": "regression"}

    def answers(self, outputs: np.ndarray, model: Trained) -> np.ndarray:
        return outputs[:, 0]


class LabelSets(TextKind):
    """The kind of tasks that predict any number of labels for each text; see `MultiLabelTask`."""

    name = multi_label.MULTI_LABEL
    report_entries = staticmethod(report.label_sets)
    config_entries: ClassVar[dict[str, Any]] = {"problem_type": "multi_label_classification"}
    tuned = multi_label.THRESHOLDS
    probabilities = staticmethod(multi_label.sigmoid)

    def answers(self, outputs: np.ndarray, model: Trained) -> list[tuple[str, ...]]:
        labels = model.description.labels
        above = multi_label.sigmoid(outputs) > multi_label.THRESHOLDS.read(model.folder, model.step, labels)
        return [tuple(itertools.compress(labels, row)) for row in above]


KINDS = [Classes(), Scores(), LabelSets()]
