"""Classifiers and classification tasks for tests of other modules."""

import functools

from bert_tf.config import BertConfig
from bert_tf.finetuning.model import FineTunedBert, FineTuningObjective
from bert_tf.tasks.classification import classification_task
from bert_tf.tasks.classification.classes import Classes
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.regression import Regression


def make_task(num_labels: int, has_pairs: bool = True) -> ClassificationTask:
    """Returns a task with this number of classes; 0 means a regression with scores from 0 to 5."""
    labels = tuple(str(number) for number in range(num_labels))
    answers = Classes(labels, ("accuracy",)) if labels else Regression(("accuracy",), 0.0, 5.0)
    return ClassificationTask("test", answers, has_pairs)


def make_classifier(config: BertConfig, num_outputs: int) -> FineTunedBert:
    return FineTunedBert(config, functools.partial(classification_task.make_head, range(num_outputs)))


def make_objective(config: BertConfig, num_labels: int) -> FineTuningObjective:
    return FineTuningObjective(make_classifier(config, num_labels), make_task(num_labels))
