"""Resolves a run's settings and task from the flags, the run's folder and the checkpoint's files.

If a flag is left out, its value is the value with which the run in the folder was trained. Without such a run, the flag
has its default. `Command` states the rules for a flag that differs from the training.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from absl import logging

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.core.errors import InputError
from bert_tf.finetuning import description, sweep_results
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.task import Task
from bert_tf.runs import checkpoint_folder, run_folder
from bert_tf.settings import FineTuningSettings


@dataclasses.dataclass(frozen=True)
class Command:
    """The flags of a command, and the record of the run in `output_dir`. Each kind of task makes a task from a command.
    The value of a flag is the given value, else the recorded value, else the default. A flag that would change the
    model or its inputs may not differ from the training (`of_model`). A resumed training must have the flags with which
    it began; `run_folder.check_phase` refuses other flags."""

    settings: FineTuningSettings
    # the record (`task.json`) of the run, or of the model that is used without training; None if there is none
    trained: TaskDescription | None
    results_dir: str  # folder of tuned thresholds; for an ensemble, this is not the folder of a model's run

    @classmethod
    def of(cls, settings: FineTuningSettings) -> "Command":
        """Returns the command with these settings and with the record in `output_dir`."""
        return cls(settings, description.of_run(settings), settings.output_dir)

    def of_data(self, *flags: str, **defaults: Any) -> dict[str, Any]:
        """Returns the values of flags that may differ from the training, such as how a file is read.
        `*flags`: names of flags, whose values for a new run are in the settings.
        `**defaults`: names of other flags, and their values for a new run."""
        recorded, defaults = self._recorded(), self._new_run(flags) | defaults
        return {
            flag: next((v for v in (getattr(self.settings, flag), recorded.get(flag)) if v is not None), default)
            for flag, default in defaults.items()
        }

    def of_model(self, *flags: str, **defaults: Any) -> dict[str, Any]:
        """Returns the values of flags that change the model or its inputs; see `of_data`."""
        defaults = self._new_run(flags) | defaults
        settings, recorded = self.settings, defaults | self._recorded()
        for flag in defaults if self.trained and not settings.do_train else ():
            value, before = getattr(settings, flag), recorded[flag]
            if value not in (None, before):
                was = "none" if before in (None, "") else before
                has_run = checkpoint_folder.prefixes(settings.output_dir)
                folder = settings.output_dir if has_run else settings.init_checkpoint or settings.output_dir
                raise InputError(f"--{flag}={value}: {folder} was trained with {was}; leave the flag out")
        return self.of_data(**defaults)

    def _new_run(self, flags: Sequence[str]) -> dict[str, Any]:
        defaults = {field.name: field.metadata["new_run"] for field in dataclasses.fields(self.settings)}
        return {flag: defaults[flag] for flag in flags}

    def _recorded(self) -> dict[str, Any]:
        if not (trained := self.trained):
            return {}
        shape = {"max_seq_length": trained.max_seq_length, "bilstm_head": trained.bilstm_head}
        return {**trained.parameters, **trained.data, **trained.evaluation, **shape}


def resolve(
    settings: FineTuningSettings,
    make_task: Callable[[Command], Task],
    describe: Callable[[FineTuningSettings], TaskDescription | None] | None = None,
) -> tuple[FineTuningSettings, Task]:
    """Returns the complete settings of a run, and its task. If the command does not train and its folder contains a
    sweep, the folder of the best trial replaces the sweep's folder. The model's files and the casing come from the
    run's folder or from --init_checkpoint. The row length comes from the flag, else from the record, else from encoded
    data. Otherwise, the row length is the length that the checkpoint's files state for this task, else the script's
    default, but at most the model's number of positions.
    `describe`: function that describes the model in `init_checkpoint` for a command that uses it without training; None
      if its files do not describe the task."""
    command = Command.of(_with_best_trial(settings))
    run_folder.check_source(command.settings)
    if describe and run_folder.takes_over(command.settings):
        command = dataclasses.replace(command, trained=describe(command.settings))
    settings, task = command.settings, make_task(command)
    files = checkpoints.model_files(settings, "bert_config_file", "vocab_file")
    rules = checkpoint_tokenizer.of_run(settings, files["vocab_file"])
    casing = {"do_lower_case": rules.do_lower_case, "strip_accents": rules.strip_accents}
    shape = command.of_model("bilstm_head", max_seq_length=task.row_length)
    if shape["max_seq_length"] is None:
        positions = checkpoints.read_config(files["bert_config_file"]).max_position_embeddings
        shape["max_seq_length"] = min(task.default_length or settings.default_max_seq_length, positions)
    return dataclasses.replace(settings, **casing, **files, **shape), task


def _with_best_trial(settings: FineTuningSettings) -> FineTuningSettings:
    """Returns the settings; if `output_dir` contains a sweep, the folder of the best trial replaces `output_dir`. If
    the command itself runs a sweep, this function returns the settings unchanged."""
    folder = settings.output_dir
    if settings.sweep or not sweep_results.exists(folder):
        run_folder.check_script(folder, settings.script, settings.do_train)
        return settings
    if settings.do_train:
        raise InputError(
            f"--output_dir={folder}: holds a sweep; add the sweep's flags to resume it, or give another folder"
        )
    best = sweep_results.best_folder(folder, settings.allow_unfinished)
    logging.info("%s is a sweep; its best trial is %s", folder, best)
    run_folder.check_script(best, settings.script, settings.do_train)
    return dataclasses.replace(settings, output_dir=best)
