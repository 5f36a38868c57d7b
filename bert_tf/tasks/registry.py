"""The kinds of tasks that can be fine-tuned, and what each gives to the parts of the library that know no kind.

A new kind is a folder of `bert_tf.tasks`, a module of `export.kinds`, a script, and a line of `FOLDERS`.
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

# The folders of `bert_tf.tasks`. The module `kind` of each lists its kinds as `KINDS`. They have one script and share
# flags, readers and rows. The module of `export.kinds` that has the folder's name has their served models.
FOLDERS = [
    "classification",
    "questions",
    "tagging",
    "choice",
]


class Kind(abc.ABC):
    """A kind of task.

    Attributes:
      name: the value of `Task.kind`, which `task.json` keeps.
      settings: the flags of its script.
      tuned: file in a run's folder with what an evaluation has tuned; None for none.
      hidden_scores: names of scores that the report leaves out, because they do not measure quality.
      config_entries: entries of Hugging Face's `config.json` beside the labels.
    """

    name: str
    settings: type[FineTuningSettings]
    tuned: TunedFile | None = None
    hidden_scores: tuple[str, ...] = ()
    config_entries: Mapping[str, Any] = {}

    @staticmethod
    @abc.abstractmethod
    def make_task(command: Command) -> Task:
        """Returns the task that a command of this kind's script names, of any kind in the folder."""

    @abc.abstractmethod
    def head(self, described: TaskDescription, config: BertConfig) -> keras.layers.Layer:
        """Returns the head of a trained task, without its data; see `Task.head`."""

    def check_format(self, format: str, source: str, described: TaskDescription) -> None:  # noqa: B027 - a default
        """Refuses, or warns, where the code of another format would read texts otherwise; nothing by default.

        Args:
          format: value of `--format`.
          source: the checkpoint.
          described: its task.

        Raises:
          InputError: the format cannot hold the model.
        """

    def score_scale(self, parameters: Mapping[str, Any]) -> tuple[float, float] | None:
        """Returns mean and deviation of the user's scores, which the head's one output is standardized by.

        Args:
          parameters: see `TaskDescription`.

        Returns:
          None, by default, where the head's output is the answer.
        """
        return None

    def report(self, folder: str, prefix: str, described: TaskDescription) -> list[Part]:
        """Returns what the report shows of an evaluation that `Task.keep_evaluation` kept; [] if it shows none.

        Args:
          folder: see `Task.keep_evaluation`.
          prefix: see `Task.keep_evaluation`.
          described: the task.
        """
        entries = evaluation_file.read(folder, prefix)
        return self.report_entries(entries, described.labels) if entries else []

    @staticmethod
    def report_entries(entries: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> list[Part]:
        """Returns what the report shows of the lines of `evaluation_file`, with the names of labels; [] by default."""
        del entries, labels
        return []


def kinds() -> dict[str, Kind]:
    """Returns all kinds by their names."""
    modules = [importlib.import_module(f"bert_tf.tasks.{folder}.kind") for folder in FOLDERS]
    return {kind.name: kind for module in modules for kind in module.KINDS}


def of_task(described: TaskDescription, folder: str) -> Kind:
    """Returns the kind of the fine-tuned task of a folder.

    Raises:
      InputError: no kind has this name.
    """
    known = kinds()
    if described.kind not in known:
        raise InputError(
            f"{os.path.join(folder, description.NAME)}: kind {described.kind!r} is unknown; known kinds are "
            f"{', '.join(known)}"
        )
    return known[described.kind]


def of_settings(settings: FineTuningSettings) -> Kind:
    """Returns a kind that the script with these settings trains; kinds of one script share `make_task`."""
    return next(kind for kind in kinds().values() if kind.settings is type(settings))
