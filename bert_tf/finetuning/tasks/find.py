"""From `--task_name` to the task."""

import dataclasses

from bert_tf.finetuning.tasks import glue
from bert_tf.finetuning.tasks.own_data import own_task
from bert_tf.finetuning.tasks.reading import Reading
from bert_tf.finetuning.tasks.tsv_task import TSV, TsvTask
from bert_tf.settings import ClassifierSettings
from tfrecords.errors import InputError


def find_task(settings: ClassifierSettings) -> TsvTask:
    """Returns the task that `--task_name` names, in any case of letters.

    The labels of a user's own files are those of `--tsv_labels`, else those of the run in `--output_dir`, else those
    in train.tsv.

    Raises:
      InputError: the name is unknown, or a user's own files have fewer than two labels.
    """
    return dataclasses.replace(_named_task(settings), reading=Reading.of_settings(settings))


def _named_task(settings: ClassifierSettings) -> TsvTask:
    for task in glue.TASKS:
        if task.name.lower() == settings.task_name.lower():
            return dataclasses.replace(task, data_dir=settings.data_dir)
    if settings.task_name.lower() != TSV:
        raise InputError(
            f"--task_name={settings.task_name}: unknown; known are {', '.join(glue.TASK_NAMES)} and {TSV}, "
            "for your own train.tsv, dev.tsv and test.tsv"
        )
    return own_task(settings)
