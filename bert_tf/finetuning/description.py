"""Writes and reads `task.json`, which describes a run's task for evaluation, export and conversion."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.finetuning.task import Task
from bert_tf.runs import checkpoint_folder, run_record
from bert_tf.settings import FineTuningSettings
from bert_tf.text.tokenizer_rules import TokenizerRules

NAME = "task.json"
_REMEDY = "copy the run's folder again, or train again"


@dataclasses.dataclass(frozen=True)
class TaskDescription:
    """The description of a fine-tuned task."""

    kind: str  # kind of the task; see `Task.kind`
    task_name: str  # the value of `--task_name`
    labels: Sequence[str]  # names of the classes in the order of their ids; () if the task has no classes
    max_seq_length: int  # maximum number of tokens in a row during training
    parameters: Mapping[str, Any]  # other values that the kind needs; see `Task.parameters`
    # how the training data was read; see `Task.data_facts`
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bilstm_head: bool = False  # whether there is a BiLSTM between the encoder and the head
    # how predictions become answers; see `Task.evaluation_facts`
    evaluation: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def describe(task: Task, max_seq_length: int, bilstm_head: bool | None = False) -> TaskDescription:
    return TaskDescription(
        task.kind,
        task.name,
        tuple(task.labels),
        max_seq_length,
        dict(task.parameters),
        dict(task.data_facts()),
        bool(bilstm_head),
        dict(task.evaluation_facts()),
    )


def score_scale(parameters: Mapping[str, Any]) -> tuple[float, float]:
    """Returns the mean and the standard deviation of a user's scores, from a description's parameters. A regression
    learns standardized scores: (score - mean) / deviation. For other tasks, the numbers are 0 and 1."""
    return parameters.get("mean", 0.0), parameters.get("deviation", 1.0)


def without_score_scale(task: TaskDescription) -> TaskDescription:
    """Returns the description of a model that computes the user's scores, instead of standardized scores."""
    kept = {name: value for name, value in task.parameters.items() if name not in ("mean", "deviation")}
    return dataclasses.replace(task, parameters=kept)


def model_facts(description: TaskDescription, config: BertConfig, rules: TokenizerRules) -> dict[str, Any]:
    """Returns the facts that identify a fine-tuned model; `run_record.TrainingRecord.model` contains these facts."""
    return {
        "model": description.kind,
        "task_name": description.task_name,
        "labels": list(description.labels),
        "parameters": dict(description.parameters),
        "bilstm_head": description.bilstm_head,
        **rules.facts,
        **dataclasses.asdict(config),
    }


def write_run(
    folder: str, source: str, task: TaskDescription, config: BertConfig, rules: TokenizerRules, script: str
) -> None:
    """Writes the record of a run of no steps, with which the scripts accept a model that another project trained."""
    steps = dict.fromkeys(("num_train_steps", "num_warmup_steps", "num_schedule_steps"), 0)
    phase = run_record.TrainingRecord(
        settings={"init_checkpoint": source},
        model=model_facts(task, config, rules),
        data={"train": [], "max_seq_length": task.max_seq_length},
        optimizer=steps | {"init_checkpoint": source},
        script=script,
    )
    run_record.write(folder, [phase], saved_step=0)


def write(folder: str, description: TaskDescription) -> None:
    """Writes `task.json` into a run's folder."""
    storage.write_json(os.path.join(folder, NAME), description)


def exists(folder: str) -> bool:
    """Returns whether a folder has a description. KerasHub's presets have another file with the same name."""
    path = os.path.join(folder, NAME)
    if not tf.io.gfile.exists(path):
        return False
    with storage.json_file(path, _REMEDY) as entries:
        return "registered_name" not in entries


def of_run(settings: FineTuningSettings) -> TaskDescription | None:
    """Returns the description of the run in `output_dir`; None if the folder has no checkpoint. If `task.json` was
    deleted and the command trains, this function returns None. The command then compares its settings with `run.json`,
    and writes `task.json` again. A command that does not train is refused, because it would use the defaults instead of
    the settings of the training."""
    folder = settings.output_dir
    if not checkpoint_folder.prefixes(folder):
        return None
    if exists(folder):
        return read(folder)
    if settings.do_train:
        return None
    raise InputError(
        f"{os.path.join(folder, NAME)}: no such file, so the settings of the training run are unknown; copy the "
        "run's folder again, or repeat the training command, which writes this file"
    )


def read(folder: str) -> TaskDescription:
    path = os.path.join(folder, NAME)
    if not exists(folder):
        what = "no such file" if tf.io.gfile.exists(folder) else "no such folder"
        raise InputError(f"{path}: {what}; give the folder of a fine-tuning run")
    with storage.json_file(path, _REMEDY) as entries:
        return storage.of_entries(TaskDescription, entries | {"labels": tuple(entries["labels"])})
