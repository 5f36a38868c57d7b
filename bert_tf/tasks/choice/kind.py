"""The kind of task that chooses one of several texts, for the registry."""

from collections.abc import Mapping, Sequence

from bert_tf.tasks.choice.choice_task import CHOICE, ChoiceTask, choice_task
from bert_tf.tasks.choice.settings import SwagSettings
from bert_tf.tasks.registry import TaskKind
from bert_tf.tasks.report_parts import Part, of_lines, short, worst_choices


def _report(entries: Sequence[Mapping], labels: Sequence[str]) -> list[Part]:
    del labels
    return worst_choices(entries, ["right", "chosen"], lambda entry, name: short(entry["choices"][entry[name]]))


# Without the entry `architectures`, Hugging Face's code would treat the model as a regression model, because the
# model's head has one output.
_ENTRIES = {"architectures": ["BertForMultipleChoice"]}
KINDS = [
    TaskKind(
        CHOICE, SwagSettings, choice_task, lambda described, folder: ChoiceTask(), of_lines(_report),
        config_entries=_ENTRIES,
    )
]  # fmt: skip
