"""The kind of task that answers questions, for the registry."""

import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.finetuning.description import TaskDescription
from bert_tf.modeling.heads import SpanHead
from bert_tf.tasks.questions import report, squad_results
from bert_tf.tasks.questions.settings import SquadSettings
from bert_tf.tasks.questions.squad_task import QUESTIONS, squad_task
from bert_tf.tasks.registry import Kind


class Questions(Kind):
    """The kind of `SquadTask`."""

    name, settings, make_task = QUESTIONS, SquadSettings, staticmethod(squad_task)
    tuned = squad_results.NULL_THRESHOLD
    hidden_scores = ("null_threshold",)
    report_entries = staticmethod(report.questions)

    def head(self, described: TaskDescription, config: BertConfig) -> keras.layers.Layer:
        return SpanHead(config)


KINDS = [Questions()]
