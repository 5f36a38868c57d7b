"""The kind of task that chooses one of several texts, for the registry."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks.choice.choice_task import CHOICE, choice_task, make_head
from bert_tf.tasks.choice.settings import SwagSettings
from bert_tf.tasks.registry import Kind
from bert_tf.tasks.report_parts import Part, chosen, short


class Choice(Kind):
    """The kind of `ChoiceTask`."""

    name, settings, make_task = CHOICE, SwagSettings, staticmethod(choice_task)
    # Without this entry, Hugging Face's code would treat the model as a regression model, because the model's head has
    # one output.
    config_entries: ClassVar[dict[str, Any]] = {"architectures": ["BertForMultipleChoice"]}

    def head(self, described: TaskDescription, config: BertConfig) -> keras.layers.Layer:
        return make_head(config)

    @staticmethod
    def report_entries(entries: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> list[Part]:
        del labels
        return chosen(entries, ["right", "chosen"], lambda entry, name: short(entry["choices"][entry[name]]))


KINDS = [Choice()]
