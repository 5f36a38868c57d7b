"""The registry of the kinds of tasks, and the interface through which the rest of the library uses a kind.

A new kind needs a folder in `bert_tf.tasks`, a module in `export.kinds`, a script, and a line in `FOLDERS`.
"""

import dataclasses
import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from bert_tf.core.errors import InputError
from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.task import Task
from bert_tf.settings import FineTuningSettings
from bert_tf.tasks.report_parts import Part
from bert_tf.tasks.tuned_file import TunedFile

# The folders of `bert_tf.tasks`. The constant `KINDS` in a folder's module `kind` lists the folder's kinds of tasks.
# The kinds of a folder share one script, its flags, and the code that reads files and makes rows. The module in
# `export.kinds` that has the folder's name defines the served models of these kinds.
FOLDERS = [
    "classification",
    "questions",
    "tagging",
    "choice",
    "embeddings",
]


@dataclasses.dataclass(frozen=True)
class TaskKind:
    """A kind of task."""

    name: str  # the value of `Task.kind`, which `task.json` records
    settings: type[FineTuningSettings]  # the settings class of the kind's script
    # function that returns the task for a command of the script; the task may be of any kind in the same folder
    make_task: Callable[[Command], Task]
    # function that returns the task, without data, of a model for its description and its folder
    task_of: Callable[[TaskDescription, str], Task]
    # function that returns the report's parts for an evaluation, or [] if `Task.write_evaluation` wrote nothing for the
    # report. Its arguments are the folder and the prefix of `Task.write_evaluation`, and the description.
    report: Callable[[str, str, TaskDescription], list[Part]]
    # function that raises InputError if a checkpoint format cannot store a model, and warns if the library that uses
    # the format would read texts differently. Its arguments are the value of `--format`, the checkpoint's path and the
    # description.
    check_format: Callable[[str, str, TaskDescription], None] = lambda format, source, described: None
    # the file with the thresholds that an evaluation tunes; None if the kind has no thresholds
    tuned: TunedFile | None = None
    hidden_scores: tuple[str, ...] = ()  # names of scores that the report omits because they do not measure quality
    # entries for the `config.json` of Hugging Face's format, in addition to the labels
    config_entries: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def kinds() -> dict[str, TaskKind]:
    modules = [importlib.import_module(f"bert_tf.tasks.{folder}.kind") for folder in FOLDERS]
    return {kind.name: kind for module in modules for kind in module.KINDS}


def of_task(described: TaskDescription, folder: str) -> TaskKind:
    """Returns the kind of a fine-tuned task; `folder` is the run's folder, for messages."""
    all_kinds = kinds()
    if described.kind not in all_kinds:
        raise InputError(
            f"{os.path.join(folder, description.NAME)}: the kind of task {described.kind!r} is unknown; known kinds: "
            f"{', '.join(all_kinds)}"
        )
    return all_kinds[described.kind]


def of_settings(settings: FineTuningSettings) -> TaskKind:
    """Returns one of the kinds whose script has these settings; all kinds of a script share `make_task`."""
    return next(kind for kind in kinds().values() if kind.settings is type(settings))
