"""Classifiers and classification tasks for tests of other modules."""

import functools

from bert_tf.config import BertConfig
from bert_tf.finetuning.model import FineTunedBert, FineTuningObjective
from bert_tf.tasks.classification import classification_task
from bert_tf.tasks.classification.glue_task import GlueTask, SplitFile
from bert_tf.tasks.classification.tsv import ColumnNames


def make_task(num_labels: int, has_pairs: bool = True) -> GlueTask:
    """Returns a task with this number of classes; 0 means a regression with scores from 0 to 5."""
    columns = ColumnNames("a", "b" if has_pairs else None, "label")
    labels = tuple(str(number) for number in range(num_labels))
    splits = {split: (SplitFile((f"{split}.tsv",), columns),) for split in ("train", "dev", "test")}
    return GlueTask("test", splits, labels, score_names=("accuracy",), score_range=(0.0, 5.0))


def make_classifier(config: BertConfig, num_outputs: int) -> FineTunedBert:
    return FineTunedBert(config, functools.partial(classification_task.make_head, range(num_outputs)))


def make_objective(config: BertConfig, num_labels: int) -> FineTuningObjective:
    return FineTuningObjective(make_classifier(config, num_labels), make_task(num_labels))
