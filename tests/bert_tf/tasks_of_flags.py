"""Tasks of flags beside the record in their folder, as the scripts make them, for tests that only need the task."""

from bert_tf.finetuning.resolution import Command
from bert_tf.tasks.choice import choice_task as choice
from bert_tf.tasks.classification import find
from bert_tf.tasks.questions import squad_task as questions
from bert_tf.tasks.tagging import tagging_data


def _of_flags(make_task):
    return lambda settings, *source: make_task(Command.of(settings), *source)


find_task = _of_flags(find.find_task)
squad_task = _of_flags(questions.squad_task)
tagging_task = _of_flags(tagging_data.tagging_task)
choice_task = _of_flags(choice.choice_task)
