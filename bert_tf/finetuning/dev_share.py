"""Applies `--dev_share`: holds out a share of a task's training data as dev data.

For data in memory, `check_dev` refuses other dev data than the run in the folder has.
"""

import dataclasses

from bert_tf.core import identity
from bert_tf.core.errors import InputError
from bert_tf.finetuning import evaluated_data
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.stratified_split import HeldOut
from bert_tf.finetuning.task import Task
from bert_tf.finetuning.task_data import TaskData, fingerprint_of
from bert_tf.runs import evaluations, run_record


def with_dev_share(data: TaskData, command: Command, has_dev: bool | None = None) -> TaskData:
    """Returns data with held-out examples; the share and the seed come from the flags, or else from the run's record.
    Without a share, the data is returned unchanged. `--dev_seed` is separate from the seed of the training. Therefore,
    runs with different training seeds have the same dev data. Examples are the trials of a sweep and the models of an
    ensemble.
    `data`: data without held-out examples.
    `has_dev`: whether there is a file with dev data; None for the source's `has_dev`."""
    settings, (share, seed) = command.settings, command.of_model(dev_share=None, dev_seed=None).values()
    if share is None:
        return data
    has_dev = data.source.has_dev if has_dev is None else has_dev
    if settings.dev_share is not None and has_dev:
        there = ", ".join(data.source.files("dev"))
        raise InputError(
            f"--dev_share={share}: there already is dev data ({there}); drop the flag, or remove this file"
        )
    data = dataclasses.replace(data, held_out=HeldOut(share, seed or 0, is_dev=not has_dev))
    if command.trained and settings.do_eval and not settings.do_train and not has_dev:
        _check_not_trained_on(data, settings.output_dir)
    return data


def _check_not_trained_on(data: TaskData, folder: str) -> None:
    """Refuses held-out dev data for a run that was trained on other files or with another share. Such a run may have
    been trained on the examples that are held out now, because the choice of held-out examples depends on all examples
    of the files."""
    for trained in (phase.data for phase in run_record.read_phases(folder)[-1:]):
        # `with_dev_share` has refused another share.
        before, now = (identity.without_names(each) for each in (trained["train"], data.fingerprint("train")))
        if before != now:
            raise InputError(
                f"{folder}: was trained on other files or with another --dev_share, so it may have learned the "
                "examples that are held out here; give the files and flags of its training, or a file with dev data"
            )


def check_dev(command: Command, task: Task, argument: str, is_given: bool) -> None:
    """Refuses dev data that differs from the dev data of the run in the folder, because training resumes this run.
    `argument`: the name of the argument with the dev data, for messages.
    `is_given`: whether there is dev data that is not held out."""
    settings, trained = command.settings, command.trained
    share = trained.data.get("dev_share") if trained else None
    if share is not None and settings.dev_share is None:
        raise InputError(
            f"output_dir: the run in {settings.output_dir} holds out the share {share} of its texts; give "
            f"dev_share={share}, or another output_dir"
        )
    recorded = evaluations.read(settings.output_dir).data
    data = fingerprint_of(task.data.title("dev"), task.data.read("dev")) if recorded and is_given else recorded
    if not evaluated_data.is_same(data, recorded):
        raise InputError(
            f"{argument}: {settings.output_dir} was evaluated on other texts ({recorded}); give the same texts, or "
            "call evaluate with the new texts"
        )
