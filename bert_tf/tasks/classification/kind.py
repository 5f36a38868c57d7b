"""Classes, scores and sets of labels of texts, for the registry."""

from collections.abc import Mapping
from typing import Any, ClassVar

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks.classification import multi_label
from bert_tf.tasks.classification.classification_task import CLASSIFICATION, REGRESSION, score_scale
from bert_tf.tasks.classification.find import find_task
from bert_tf.tasks.classification.reading import Reading
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.registry import Kind
from bert_tf.text.packing import TRUNCATE


class Classes(Kind):
    """One class of each text; see `ClassificationTask`."""

    name, settings, make_task = CLASSIFICATION, ClassifierSettings, staticmethod(find_task)
    config_entries: ClassVar[dict[str, Any]] = {"problem_type": "single_label_classification"}

    def check_format(self, format: str, source: str, described: TaskDescription) -> None:
        """See `Kind`."""
        reading = Reading.of_parameters(described.parameters)
        if reading.pooling != "cls":
            raise InputError(
                f"--format={format}: its classifier reads the pooled [CLS], but {source} was trained with "
                f"--pooling={reading.pooling}; give --format=bert_tf"
            )
        if reading.long_text != TRUNCATE:
            logging.warning(
                "--format=%s: its code truncates texts, but %s was trained with --long_text=%s, so its answers to "
                "texts beyond %d tokens will differ; --format=bert_tf keeps it",
                format, source, reading.long_text, described.max_seq_length,
            )  # fmt: skip


class Scores(Classes):
    """One number of each text."""

    name = REGRESSION
    config_entries: ClassVar[dict[str, Any]] = {"problem_type": "regression"}

    def score_scale(self, parameters: Mapping[str, Any]) -> tuple[float, float]:
        """See `Kind`."""
        return score_scale(parameters)


class LabelSets(Classes):
    """Any number of labels of each text; see `MultiLabelTask`."""

    name = multi_label.MULTI_LABEL
    config_entries: ClassVar[dict[str, Any]] = {"problem_type": "multi_label_classification"}
    tuned_file = multi_label.THRESHOLDS_NAME

    def copy_tuned(self, folder: str, target: str, described: TaskDescription, step: int | None) -> None:
        """See `Kind`."""
        thresholds = multi_label.read_thresholds(folder, described.labels, step)
        multi_label.write_thresholds(target, described.labels, thresholds, step=None)


KINDS = [Classes(), Scores(), LabelSets()]
