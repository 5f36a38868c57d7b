"""From `--task_name` to the task."""

import dataclasses

from bert_tf.core.command_line import refuse_unread
from bert_tf.core.errors import InputError
from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.dev_share import with_dev_share
from bert_tf.tasks.classification import glue, xnli
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.example_sources import ExampleSource
from bert_tf.tasks.classification.glue_task import GlueTask
from bert_tf.tasks.classification.joint import JointTask, check_joint
from bert_tf.tasks.classification.multi_label import MULTI_LABEL
from bert_tf.tasks.classification.own_data import own_task
from bert_tf.tasks.classification.reading import Reading
from bert_tf.tasks.classification.records_task import records_task
from bert_tf.tasks.classification.settings import (
    IN_MEMORY,
    LABEL_SETS,
    MEMORY,
    OWN,
    OWN_DATA,
    RECORDS,
    TFDS,
    XNLI,
    ClassifierSettings,
)


def find_task(settings: ClassifierSettings, source: ExampleSource | None = None) -> ClassificationTask | JointTask:
    """Returns the task that `--task_name` names, in any case of letters, with or without hyphens.

    With `--joint_tasks`, the task is trained together with these.

    Args:
      settings: name the task and its data.
      source: of a user's own data, if no flags name it.

    Raises:
      InputError: a name is unknown, or a user's own data does not fit the flags; see `own_data.own_task`.
    """
    reading, settings = Reading.of_settings(settings), _with_task_name(settings)
    _check_read(settings, bool(source))
    task = own_task(settings, source) if source else _main_task(settings)
    task = dataclasses.replace(task, reading=reading)
    if settings.tune_thresholds and task.kind != MULTI_LABEL:
        raise InputError("--tune_thresholds is for several labels an example; give --multi_label, or drop it")
    if not settings.joint_tasks:
        return task
    others = [
        _benchmark_task("joint_tasks", name, folder, settings)
        for name, folder in zip(settings.joint_task_names, settings.joint_folders, strict=True)
    ]
    check_joint(task, others)
    return JointTask(task, tuple(dataclasses.replace(other, reading=reading) for other in others))


def _with_task_name(settings: ClassifierSettings) -> ClassifierSettings:
    """Returns settings with the name of the folder's task, if they lack one that they need.

    Raises:
      InputError: there is no run in the folder.
    """
    if settings.task_name.strip() or settings.tfds_name or settings.input_meta_data_path:
        return settings
    known = description.of_run(settings)
    if not known:
        raise InputError(
            "--task_name is empty, and --output_dir holds no run that tells it; give it: own for your own data"
        )
    return dataclasses.replace(settings, task_name=OWN_DATA if known.task_name == IN_MEMORY else known.task_name)


def _check_read(settings: ClassifierSettings, in_memory: bool) -> None:
    """Refuses flags that the data of a task does not use.

    Raises:
      InputError: names the first flag.
    """
    known, remedy = description.of_run(settings), ""
    if in_memory:
        readers = [MEMORY]
    elif settings.tfds_name:
        readers = [TFDS]
    elif settings.input_meta_data_path:
        readers = [RECORDS]
    elif _spelled(settings.task_name) == OWN_DATA:
        has_sets = settings.multi_label or (known and known.kind == MULTI_LABEL)
        readers = [OWN] + [LABEL_SETS] * bool(has_sets)
    else:
        readers = [f"--task_name={settings.task_name}"]
        if known and not settings.do_train:
            remedy = ", or predict other texts in Python with bert_tf.classifier.TextClassifier.load"
    names = map(_spelled, (settings.task_name, *settings.joint_task_names))
    readers += [XNLI] * (_spelled(xnli.NAME) in names)
    refuse_unread(settings, readers, remedy)


def _main_task(settings: ClassifierSettings) -> ClassificationTask:
    if settings.tfds_name or _spelled(settings.task_name) == OWN_DATA:
        return own_task(settings)
    known = description.of_run(settings)
    if settings.input_meta_data_path:
        task = records_task(settings)
    else:
        task = _benchmark_task("task_name", settings.task_name, settings.data_dir, settings)
        _check_benchmark(task, settings, known)
    return with_dev_share(task, settings, known)


def _check_benchmark(task: GlueTask, settings: ClassifierSettings, known: TaskDescription | None) -> None:
    """Refuses to evaluate a run of another task."""
    if known and not settings.do_train and known.task_name != task.name:
        trained = OWN_DATA if known.task_name == IN_MEMORY else known.task_name
        raise InputError(
            f"--task_name={settings.task_name}: {settings.output_dir} was trained with --task_name={trained}; leave "
            "the flag out"
        )


def _benchmark_task(flag: str, name: str, data_dir: str, settings: ClassifierSettings) -> GlueTask:
    for known in glue.TASK_NAMES:
        if _spelled(known) == _spelled(name):
            return glue.task(known, data_dir)
    if _spelled(name) == _spelled(xnli.NAME):
        return xnli.xnli_task(settings.xnli_language, data_dir)
    own = f" and {OWN_DATA}, for your own data" if flag == "task_name" else ""
    raise InputError(f"--{flag}={name}: unknown; known are {', '.join((*glue.TASK_NAMES, xnli.NAME))}{own}")


def _spelled(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
