"""The kinds of tasks that predict classes, scores or sets of labels for texts, for the registry."""

from collections.abc import Callable

import tf_keras as keras
from absl import logging

from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.finetuning.description import TaskDescription, score_scale
from bert_tf.tasks.classification import multi_label, report
from bert_tf.tasks.classification.answers import Answers
from bert_tf.tasks.classification.classes import Classes
from bert_tf.tasks.classification.classification_task import make_head
from bert_tf.tasks.classification.example import CLASSIFICATION, MULTI_LABEL, REGRESSION
from bert_tf.tasks.classification.find import find_task
from bert_tf.tasks.classification.multi_label import LabelSets
from bert_tf.tasks.classification.reading import Reading
from bert_tf.tasks.classification.regression import Regression
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.registry import Kind
from bert_tf.tasks.report_parts import of_lines
from bert_tf.text.packing import TRUNCATE


def answers_of(described: TaskDescription, folder: str) -> Answers | None:
    """Returns the answers of a trained task; None if the task is of another kind. `folder` has the thresholds."""
    if described.kind == REGRESSION:
        mean, deviation = score_scale(described.parameters)
        return Regression(mean=mean, deviation=deviation)
    labels = tuple(described.labels)
    if described.kind == MULTI_LABEL:
        return LabelSets(labels, run_folder=folder)
    return Classes(labels) if described.kind == CLASSIFICATION else None


def _head(described: TaskDescription, config: BertConfig) -> keras.layers.Layer:
    return make_head(described.labels, config, Reading.of_parameters(described.parameters))


def _check_format(format: str, source: str, described: TaskDescription) -> None:
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


def _kind(name: str, report: Callable, problem_type: str, **more) -> Kind:
    entries = {"problem_type": problem_type}
    return Kind(
        name, ClassifierSettings, find_task, _head, of_lines(report), _check_format, config_entries=entries, **more
    )


KINDS = [
    _kind(CLASSIFICATION, report.classes, "single_label_classification"),
    _kind(REGRESSION, report.scores, "regression"),
    _kind(MULTI_LABEL, report.label_sets, "multi_label_classification", tuned=multi_label.THRESHOLDS),
]
