"""From `--task_name` to the task."""

import dataclasses

from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.dev_share import with_dev_share
from bert_tf.finetuning.tasks import glue, xnli
from bert_tf.finetuning.tasks.classification import ClassificationTask
from bert_tf.finetuning.tasks.glue_task import GlueTask
from bert_tf.finetuning.tasks.joint import JointTask, check_joint
from bert_tf.finetuning.tasks.multi_label import MULTI_LABEL
from bert_tf.finetuning.tasks.own_data import NAMES, own_task
from bert_tf.finetuning.tasks.reading import Reading
from bert_tf.finetuning.tasks.records_task import records_task
from bert_tf.finetuning.tasks.sources import Source
from bert_tf.settings import IN_MEMORY, ClassifierSettings
from tfrecords.errors import InputError


def find_task(settings: ClassifierSettings, source: Source | None = None) -> ClassificationTask | JointTask:
    """Returns the task that `--task_name` names, in any case of letters, with or without hyphens.

    With `--joint_tasks`, the task is trained together with these.

    Args:
      settings: name the task and its data.
      source: of a user's own data, if no flags name it.

    Raises:
      InputError: a name is unknown, or a user's own data does not fit the flags; see `own_data.own_task`.
    """
    reading, settings = Reading.of_settings(settings), _with_task_name(settings)
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
    return dataclasses.replace(settings, task_name=NAMES[0] if known.task_name == IN_MEMORY else known.task_name)


def _main_task(settings: ClassifierSettings) -> ClassificationTask:
    if settings.tfds_name or _spelled(settings.task_name) in NAMES:
        return own_task(settings)
    known = description.of_run(settings)
    if settings.input_meta_data_path:
        task = records_task(settings)
    else:
        task = _benchmark_task("task_name", settings.task_name, settings.data_dir, settings)
        _check_benchmark(task, settings, known)
    return with_dev_share(task, settings, known)


def _check_benchmark(task: GlueTask, settings: ClassifierSettings, known: TaskDescription | None) -> None:
    """Refuses to evaluate a run of another task, and files that a benchmark's task does not read."""
    if known and not settings.do_train and known.task_name != task.name:
        trained = NAMES[0] if known.task_name == IN_MEMORY else known.task_name
        raise InputError(
            f"--task_name={settings.task_name}: {settings.output_dir} was trained with --task_name={trained}; leave "
            "the flag out"
        )
    own = f"give --task_name={NAMES[0]} and the flags of columns for your own files"
    if known and not settings.do_train:
        own = "predict other texts in Python with bert_tf.classifier.TextClassifier.load"
    for flag in ("train_data_path", "eval_data_path", "test_data_path"):
        if path := getattr(settings, flag):
            raise InputError(
                f"--{flag}={path}: --task_name={settings.task_name} reads its files in --data_dir; drop the flag, or "
                f"{own}"
            )


def _benchmark_task(flag: str, name: str, data_dir: str, settings: ClassifierSettings) -> GlueTask:
    for known in glue.TASK_NAMES:
        if _spelled(known) == _spelled(name):
            return glue.task(known, data_dir)
    if _spelled(name) == _spelled(xnli.NAME):
        return xnli.xnli_task(settings.xnli_language, data_dir)
    own = f" and {NAMES[0]}, for your own data" if flag == "task_name" else ""
    raise InputError(f"--{flag}={name}: unknown; known are {', '.join((*glue.TASK_NAMES, xnli.NAME))}{own}")


def _spelled(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
