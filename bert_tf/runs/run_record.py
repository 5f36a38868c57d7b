"""Reads and writes the record of a run: `run.json`, which lists the phases of training in the run's folder."""

import dataclasses
import os
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.runs import checkpoint_folder

NAME = "run.json"
_REMEDY = "copy the run's folder again, or train in a new folder"


@dataclasses.dataclass(frozen=True)
class TrainingRecord:
    """A part of a run, with one data set and one learning-rate schedule."""

    settings: dict  # all resolved settings, by the names of the flags
    model: dict  # facts that identify the model; all phases in a folder have the same model
    data: dict
    optimizer: dict  # facts that identify the optimizer, including `num_train_steps` and `num_schedule_steps`
    first_step: int = 0  # step at which training on this data began
    # step at which the phase began; later than `first_step` if the phase has the data of the previous phase
    begun_at: int = 0
    # fields of the `DataVocabulary`; None if the vocabulary is unknown or part of `model`
    vocabulary: dict | None = None
    script: str = ""  # the script that trains; "" if unknown


def exists(folder: str) -> bool:
    return tf.io.gfile.exists(os.path.join(folder, NAME))


def write(folder: str, phases: Sequence[TrainingRecord], saved_step: int | None = None) -> None:
    """Writes the record of a run or a saved model, atomically.
    `saved_step`: step of a saved model's weights; None for a run."""
    entries = {"phases": [dataclasses.asdict(phase) for phase in phases]}
    entries |= {} if saved_step is None else {"saved_step": saved_step}
    storage.write_json(os.path.join(folder, NAME), entries)


def saved_step(folder: str) -> int | None:
    """Returns the step of a saved model's weights; None for the folder of a run."""
    if not exists(folder):
        return None
    with storage.json_file(os.path.join(folder, NAME), _REMEDY) as entries:
        return entries.get("saved_step")


def last_settings(folder: str) -> dict:
    """Returns the settings of the last phase of training in a folder; {} if the folder has no record of a run."""
    phases = read_phases(folder) if exists(folder) else []
    return phases[-1].settings if phases else {}


def read_phases(output_dir: str) -> list[TrainingRecord]:
    """Returns the phases in a folder's record; [] if the folder has no checkpoint."""
    if not checkpoint_folder.prefixes(output_dir):
        return []
    if not exists(output_dir):
        raise InputError(
            f"--output_dir={output_dir}: holds checkpoints, but no {NAME} that describes the run; give another folder"
        )
    return read_file(output_dir)


def read_file(output_dir: str) -> list[TrainingRecord]:
    """Returns the phases in a folder's record, even if the folder has no checkpoint."""
    with storage.json_file(os.path.join(output_dir, NAME), _REMEDY) as entries:
        phases = [storage.of_entries(TrainingRecord, phase) for phase in entries["phases"]]
        if not phases:
            raise ValueError("it lists no phases")
    return phases
