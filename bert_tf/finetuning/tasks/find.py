"""From `--task_name` to the task."""

import dataclasses

from bert_tf.finetuning.tasks import glue
from bert_tf.finetuning.tasks.classification import ClassificationTask
from bert_tf.finetuning.tasks.own_data import NAMES, own_task
from bert_tf.finetuning.tasks.records_task import records_task
from bert_tf.settings import ClassifierSettings
from tfrecords.errors import InputError


def find_task(settings: ClassifierSettings) -> ClassificationTask:
    """Returns the task that `--task_name` names, in any case of letters.

    Raises:
      InputError: the name is unknown, or a user's own data does not fit the flags; see `own_data.own_task`.
    """
    if settings.input_meta_data_path:
        return records_task(settings)
    if settings.tfds_name:
        return own_task(settings)
    for task in glue.TASKS:
        if task.name.lower() == settings.task_name.lower():
            return dataclasses.replace(task, data_dir=settings.data_dir)
    if settings.task_name.lower() not in NAMES:
        raise InputError(
            f"--task_name={settings.task_name}: unknown; known are {', '.join(glue.TASK_NAMES)} and {NAMES[0]}, "
            "for your own data"
        )
    return own_task(settings)
