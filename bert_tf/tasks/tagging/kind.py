"""Tags of words, for the registry."""

from typing import Any, ClassVar

from absl import logging

from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks.registry import Kind
from bert_tf.tasks.tagging.settings import NerSettings
from bert_tf.tasks.tagging.tagging_data import tagging_task
from bert_tf.tasks.tagging.tagging_task import TAGGING


class Tagging(Kind):
    """See `TaggingTask`."""

    name, settings, make_task = TAGGING, NerSettings, staticmethod(tagging_task)
    config_entries: ClassVar[dict[str, Any]] = {"problem_type": "single_label_classification"}

    def check_format(self, format: str, source: str, described: TaskDescription) -> None:
        """See `Kind`."""
        if described.parameters.get("document_context"):
            logging.warning(
                "--format=%s: its code reads each sentence alone, but %s was trained with --document_context, so its "
                "tags will differ; --format=bert_tf keeps it", format, source,
            )  # fmt: skip


KINDS = [Tagging()]
