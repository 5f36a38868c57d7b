"""The registry of the kinds of tasks, and the interface through which the rest of the library uses a kind.

A new kind needs a folder in `bert_tf.tasks`, a module in `export.kinds`, a script, and a line in `FOLDERS`.
"""

import abc
import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.task import Task
from bert_tf.settings import FineTuningSettings
from bert_tf.tasks import evaluation_file
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
]


class Kind(abc.ABC):
    """A kind of task.

    Attributes:
      name: the value of `Task.kind`, which `task.json` records.
      settings: the settings class of the kind's script.
      tuned: the file with the thresholds that an evaluation tunes; None if the kind has no thresholds.
      hidden_scores: names of scores that the report omits because they do not measure quality.
      config_entries: entries for the `config.json` of Hugging Face's format, in addition to the labels.
    """

    name: str
    settings: type[FineTuningSettings]
    tuned: TunedFile | None = None
    hidden_scores: tuple[str, ...] = ()
    config_entries: Mapping[str, Any] = {}

    @staticmethod
    @abc.abstractmethod
    def make_task(command: Command) -> Task:
        """Returns the task for a command of this kind's script. The task may be of any kind in the same folder."""

    @abc.abstractmethod
    def head(self, described: TaskDescription, config: BertConfig) -> keras.layers.Layer:
        """Returns the head of a trained task; does not need the task's data. See `Task.head`."""

    def check_format(self, format: str, source: str, described: TaskDescription) -> None:  # noqa: B027 - a default
        """Warns if the library that uses a checkpoint format would read texts differently from this model.

        By default, the function does nothing.

        Args:
          format: value of `--format`.
          source: path of the checkpoint.
          described: the checkpoint's task.

        Raises:
          InputError: the format cannot store the model.
        """

    def score_scale(self, parameters: Mapping[str, Any]) -> tuple[float, float] | None:
        """Returns the mean and the standard deviation that map the head's output to the user's scores.

        Args:
          parameters: see `TaskDescription`.

        Returns:
          The two numbers. None, the default, means that the head's output is the prediction itself.
        """
        return None

    def report(self, folder: str, prefix: str, described: TaskDescription) -> list[Part]:
        """Returns the report's parts for an evaluation; [] if `Task.keep_evaluation` wrote nothing for the report.

        Args:
          folder: see `Task.keep_evaluation`.
          prefix: see `Task.keep_evaluation`.
          described: the task.
        """
        entries = evaluation_file.read(folder, prefix)
        return self.report_entries(entries, described.labels) if entries else []

    @staticmethod
    def report_entries(entries: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> list[Part]:
        """Returns the report's parts for the lines of an evaluation's file; by default, [].

        Args:
          entries: the lines; see `evaluation_file.read`.
          labels: names of the classes.
        """
        del entries, labels
        return []


def kinds() -> dict[str, Kind]:
    """Returns all kinds by name."""
    modules = [importlib.import_module(f"bert_tf.tasks.{folder}.kind") for folder in FOLDERS]
    return {kind.name: kind for module in modules for kind in module.KINDS}


def of_task(described: TaskDescription, folder: str) -> Kind:
    """Returns the kind of a fine-tuned task; `folder` is the run's folder, for messages.

    Raises:
      InputError: the kind in the description is unknown.
    """
    known = kinds()
    if described.kind not in known:
        raise InputError(
            f"{os.path.join(folder, description.NAME)}: the kind of task {described.kind!r} is unknown; known kinds: "
            f"{', '.join(known)}"
        )
    return known[described.kind]


def of_settings(settings: FineTuningSettings) -> Kind:
    """Returns one of the kinds whose script has these settings; all kinds of a script share `make_task`."""
    return next(kind for kind in kinds().values() if kind.settings is type(settings))
