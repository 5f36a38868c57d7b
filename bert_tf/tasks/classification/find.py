"""Makes the task that the flags of `run_classifier` name."""

import dataclasses

from bert_tf.core.errors import InputError
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.dev_share import with_dev_share
from bert_tf.finetuning.resolution import Command
from bert_tf.settings.finetuning import UNLABELED
from bert_tf.tasks.classification import glue, xnli
from bert_tf.tasks.classification.benchmark import benchmark_task
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.example import MULTI_LABEL, TextData
from bert_tf.tasks.classification.own_data import own_task, weights_of, with_unlabeled
from bert_tf.tasks.classification.reading import LongTextRule
from bert_tf.tasks.classification.settings import IN_MEMORY, OWN_DATA, ClassifierSettings


def find_task(command: Command, texts: TextData | None = None) -> ClassificationTask:
    """Returns the task that the flags name; case, hyphens and underscores in the task's name have no effect.
    `texts`: a user's own data in memory; None if the flags name the data."""
    reading, command = LongTextRule.of_command(command), _with_task_name(command)
    settings = command.settings
    task = own_task(command, texts) if texts else _main_task(command)
    task = dataclasses.replace(task, reading=reading)
    if settings.unlabeled_data_path:
        task = dataclasses.replace(task, data=with_unlabeled(task, command))
    if settings.tune_thresholds and task.kind != MULTI_LABEL:
        raise InputError("--tune_thresholds is for examples with several labels; give --multi_label, or drop the flag")
    return task


def _with_task_name(command: Command) -> Command:
    """Adds the task name of the run in `--output_dir` to a command that lacks the name of its task."""
    settings, trained = command.settings, command.trained
    if settings.task_name.strip() or settings.tfds_name:
        return command
    if not trained:
        raise InputError(
            "--task_name is empty, and --output_dir holds no run that names a task; give --task_name (own for your own "
            "data)"
        )
    name = OWN_DATA if trained.task_name == IN_MEMORY else trained.task_name
    return dataclasses.replace(command, settings=dataclasses.replace(settings, task_name=name))


def _main_task(command: Command) -> ClassificationTask:
    settings = command.settings
    if settings.tfds_name or _spelled(settings.task_name) == OWN_DATA:
        return own_task(command)
    task = _benchmark_task(settings)
    _check_benchmark(task, settings, command.trained)
    data, answers = with_dev_share(task.data, command), task.answers
    if answers.labels:
        answers = dataclasses.replace(answers, weights=weights_of(settings, command.trained, answers, data))
    return dataclasses.replace(task, data=data, answers=answers, writes_texts=settings.predictions_with_texts)


def _check_benchmark(task: ClassificationTask, settings: ClassifierSettings, trained: TaskDescription | None) -> None:
    """Refuses to evaluate a run that was trained on another task; any task may take over a model, whose name is ""."""
    if trained and not settings.do_train and trained.task_name not in ("", task.name):
        name = OWN_DATA if trained.task_name == IN_MEMORY else trained.task_name
        raise InputError(
            f"--task_name={settings.task_name}: {settings.output_dir} was trained with --task_name={name}; leave "
            "the flag out"
        )


def _benchmark_task(settings: ClassifierSettings) -> ClassificationTask:
    name, paths = _spelled(settings.task_name), settings.data_paths
    paths.pop(UNLABELED, None)
    if paths:
        raise InputError(
            f"--{settings.path_flags[next(iter(paths))]}: the task {settings.task_name} reads the files in --data_dir; "
            "drop the flag, or predict other texts in Python with bert_tf.classifier.TextClassifier.load"
        )
    tasks = glue.TASKS | glue.INFERENCE_TASKS
    for task_name, benchmark in tasks.items():
        if _spelled(task_name) == name:
            return benchmark_task(benchmark, settings.data_dir)
    if _spelled(xnli.NAME) == name:
        return xnli.xnli_task(settings.xnli_language, settings.data_dir)
    names = ", ".join((*tasks, xnli.NAME))
    raise InputError(f"--task_name={settings.task_name}: unknown; known are {names} and {OWN_DATA}, for your own data")


def _spelled(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
