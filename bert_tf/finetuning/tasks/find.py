"""From `--task_name` to the task."""

from bert_tf.finetuning.tasks import glue, xnli
from bert_tf.finetuning.tasks.classification import ClassificationTask
from bert_tf.finetuning.tasks.joint import JointTask, check_joint
from bert_tf.finetuning.tasks.own_data import own_task
from bert_tf.finetuning.tasks.tsv_task import TSV
from bert_tf.settings import ClassifierSettings
from tfrecords.errors import InputError


def find_task(settings: ClassifierSettings) -> ClassificationTask | JointTask:
    """Returns the task that `--task_name` names, in any case of letters, with or without hyphens.

    The labels of a user's own files are those of `--tsv_labels`, else those of the run in `--output_dir`, else those
    in train.tsv. With `--joint_tasks`, the task is trained together with these.

    Raises:
      InputError: a name is unknown, or a user's own files have fewer than two labels.
    """
    own = _spelled(settings.task_name) == TSV
    task = own_task(settings) if own else _benchmark_task("task_name", settings.task_name, settings.data_dir, settings)
    if not settings.joint_tasks:
        return task
    others = [
        _benchmark_task("joint_tasks", name, folder, settings)
        for name, folder in zip(settings.joint_task_names, settings.joint_folders, strict=True)
    ]
    check_joint(task, others)
    return JointTask(task, tuple(others))


def _benchmark_task(flag: str, name: str, data_dir: str, settings: ClassifierSettings) -> ClassificationTask:
    for known in glue.TASK_NAMES:
        if _spelled(known) == _spelled(name):
            return glue.task(known, data_dir)
    if _spelled(name) == _spelled(xnli.NAME):
        return xnli.xnli_task(settings.xnli_language, data_dir)
    own = f" and {TSV}, for your own train.tsv, dev.tsv and test.tsv" if flag == "task_name" else ""
    raise InputError(f"--{flag}={name}: unknown; known are {', '.join((*glue.TASK_NAMES, xnli.NAME))}{own}")


def _spelled(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
