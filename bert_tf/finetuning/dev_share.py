"""Applies `--dev_share`: holds out a share of a task's training data as dev data."""

import dataclasses
from typing import TypeVar

from bert_tf.core.errors import InputError
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.stratified_split import HeldOut
from bert_tf.finetuning.task import Task
from bert_tf.runs import run_folder, run_record

AnyTask = TypeVar("AnyTask", bound=Task)


def with_dev_share(task: AnyTask, command: Command, has_dev: bool | None = None) -> AnyTask:
    """Returns a task with held-out data; the share and the seed come from the flags, or else from the run's record.

    Without a share, the task is returned unchanged. `--dev_seed` is separate from the seed of the training. Therefore,
    runs with different training seeds have the same dev data. Examples are the trials of a sweep and the models of an
    ensemble.

    Args:
      task: the task without held-out data.
      command: the command with the flags.
      has_dev: whether there is a file with dev data; None for the task's `has_dev_files`.

    Raises:
      InputError: the run was trained with another share or seed; a share is given although there is a file with dev
        data; or a seed is given without a share.
    """
    settings, (share, seed) = command.settings, command.of_model(dev_share=None, dev_seed=None).values()
    if share is None:
        if seed is not None:
            raise InputError(f"--dev_seed={seed}: needs --dev_share; give both or neither")
        return task
    has_dev = task.has_dev_files if has_dev is None else has_dev
    if settings.dev_share is not None and has_dev:
        raise InputError(
            f"--dev_share={share}: there already is dev data ({', '.join(task.files('dev'))}); drop the flag, or "
            "remove this file"
        )
    task = dataclasses.replace(task, held_out=HeldOut(share, seed or 0, is_dev=not has_dev))
    if command.trained and settings.do_eval and not settings.do_train:
        _check_not_trained_on(task, settings.output_dir)
    return task


def _check_not_trained_on(task: Task, folder: str) -> None:
    """Refuses held-out dev data for a run that was trained on other files or with another share.

    Such a run may have been trained on the examples that are held out now, because the choice of held-out examples
    depends on all examples of the files.

    Raises:
      InputError: the files, the share or the seed differ.
    """
    if not task.held_out or not task.held_out.is_dev:
        return
    for trained in (phase.data for phase in run_record.read_phases(folder)[-1:]):
        files = [run_folder.without_names(prints) for prints in (trained["train"], task.fingerprint("train"))]
        shares = [(each.get("dev_share"), each.get("dev_seed")) for each in (trained, task.data_facts())]
        if files[0] != files[1] or shares[0] != shares[1]:
            raise InputError(
                f"{folder}: was trained on other files or with another --dev_share, so it may have learned the "
                "examples that are held out here; give the files and flags of its training, or a file with dev data"
            )
