"""From `--dev_share` and the run's folder to a task whose dev data is held out of its training data."""

import dataclasses
from typing import TypeVar

from bert_tf.core.errors import InputError
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.stratified_split import HeldOut
from bert_tf.finetuning.task import Task
from bert_tf.runs import run_folder, run_record

AnyTask = TypeVar("AnyTask", bound=Task)


def with_dev_share(task: AnyTask, command: Command, has_dev: bool | None = None) -> AnyTask:
    """Returns a task with what its run holds out: as the flags say, else as the run in the folder was trained.

    The seed is not one of training: runs of other seeds, and so the trials of a sweep and the models of an ensemble,
    share their dev data.

    Args:
      task: over its files.
      command: says what is held out.
      has_dev: whether the dev data has a file; None for what the task says.

    Raises:
      InputError: the run was trained with another share, or the dev data has a file.
    """
    settings, (share, seed) = command.settings, command.of_model(dev_share=None, dev_seed=None).values()
    if share is None:
        if seed is not None:
            raise InputError(f"--dev_seed={seed}: needs --dev_share; give both or none")
        return task
    has_dev = task.has_dev_files if has_dev is None else has_dev
    if settings.dev_share is not None and has_dev:
        raise InputError(
            f"--dev_share={share}: there is dev data already ({', '.join(task.files('dev'))}); drop the flag, or "
            "remove this file"
        )
    task = dataclasses.replace(task, held_out=HeldOut(share, seed or 0, is_dev=not has_dev))
    if command.trained and settings.do_eval and not settings.do_train:
        check_not_trained_on(task, settings.output_dir)
    return task


def check_not_trained_on(task: Task, folder: str) -> None:
    """Refuses held-out dev data for a run that was trained on other files or with another share.

    Its training may have read these examples, since what is held out depends on all examples of the files.

    Raises:
      InputError: names the difference.
    """
    if not task.held_out or not task.held_out.is_dev:
        return
    for trained in (phase.data for phase in run_record.read_phases(folder)[-1:]):
        files = [run_folder.without_names(prints) for prints in (trained["train"], task.fingerprint("train"))]
        if "joint_tasks" in trained:
            files[0] = [entry for entry in files[0] if entry in files[1]]  # the other files are of the other tasks
        shares = [(each.get("dev_share"), each.get("dev_seed")) for each in (trained, task.data_facts())]
        if files[0] != files[1] or shares[0] != shares[1]:
            raise InputError(
                f"{folder}: was trained on other files or with another --dev_share, so it may have learned what is "
                "held out here; give the files and flags of its training, or a file of dev data"
            )
