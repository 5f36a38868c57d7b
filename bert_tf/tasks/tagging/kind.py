"""The kind of task that tags words, for the registry."""

import os

import tf_keras as keras
from absl import logging

from bert_tf.config import BertConfig
from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks.registry import Kind
from bert_tf.tasks.report_parts import Part
from bert_tf.tasks.tagging import report
from bert_tf.tasks.tagging.settings import NerSettings
from bert_tf.tasks.tagging.tagging_data import tagging_task
from bert_tf.tasks.tagging.tagging_task import TAGGING, make_head


def _head(described: TaskDescription, config: BertConfig) -> keras.layers.Layer:
    features = described.parameters.get("features", ""), described.parameters.get("lstm_size", 0)
    return make_head(len(described.labels), *features, config)


def _check_format(format: str, source: str, described: TaskDescription) -> None:
    if described.parameters.get("document_context"):
        logging.warning(
            "--format=%s: code for this format reads each sentence alone, but %s was trained with "
            "--document_context, so the tags will differ; --format=bert_tf keeps the context", format, source,
        )  # fmt: skip


def _report(folder: str, prefix: str, described: TaskDescription) -> list[Part]:
    del described
    return report.entities(os.path.join(folder, f"{prefix}_predictions.txt"))


_ENTRIES = {"problem_type": "single_label_classification"}
KINDS = [Kind(TAGGING, NerSettings, tagging_task, _head, _report, _check_format, config_entries=_ENTRIES)]
