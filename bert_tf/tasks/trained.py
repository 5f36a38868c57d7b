"""Loads a trained model from a run's folder."""

import dataclasses
import os

import tensorflow as tf
import tf_keras as keras

from bert_tf import checkpoints
from bert_tf.checkpoint_formats import names
from bert_tf.config import BertConfig
from bert_tf.core import identity
from bert_tf.core.errors import InputError, unreadable
from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.model import FineTunedBert, head_maker
from bert_tf.runs import chosen_checkpoint, run_record
from bert_tf.tasks import registry
from bert_tf.tasks.registry import TaskKind
from bert_tf.tokenization import BertTokenizer


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model."""

    kind: TaskKind | None  # kind of the task; None for a pre-trained model that is exported without a task
    folder: str
    checkpoint: str
    step: int  # step of the checkpoint; -1 if unknown
    model: keras.Model  # the model with its trained weights; `FineTunedBert` if the model has a task
    tokenizer: BertTokenizer  # the tokenizer that the model was trained with
    description: TaskDescription  # description of the task; if the model has no task, description of the served outputs
    config: BertConfig


def load(folder: str, use_checkpoint: str, allow_unfinished: bool = False) -> Trained:
    """Loads the best or the last checkpoint of a run's folder.
    `use_checkpoint`: see `chosen_checkpoint.choose`.
    `allow_unfinished`: see `run_folder.check_finished`."""
    with unreadable(folder):
        described = description.read(folder)
        kind = registry.of_task(described, folder)
        checkpoint = chosen_checkpoint.of_finished(folder, use_checkpoint, allow_unfinished)
        config = BertConfig.from_json_file(os.path.join(folder, checkpoints.CONFIG_NAME))
        tokenizer = BertTokenizer(folder)
        _check_files(folder, described, config, tokenizer)
        model = FineTunedBert(config, head_maker(kind.task_of(described, folder).head, described.bilstm_head))
        _restore(model, checkpoint.prefix)
        return Trained(kind, folder, checkpoint.prefix, checkpoint.step, model, tokenizer, described, config)


def _restore(model: keras.Model, prefix: str) -> None:
    """Restores all variables. A pooler may be missing: the taggers and question answerers of transformers have none."""
    tf.train.Checkpoint(model=model).restore(prefix).expect_partial()
    stored = {name for name, _ in tf.train.list_variables(prefix)}
    for path in checkpoints.variables_by_path(model):
        if f"model/{path}/.ATTRIBUTES/VARIABLE_VALUE" not in stored and names.component_of(path) != "encoder/pooler":
            raise InputError(f"{prefix}: has no {path}; copy the run's folder again, or train again")


def _check_files(folder: str, described: TaskDescription, config: BertConfig, tokenizer: BertTokenizer) -> None:
    """Refuses files that were changed after training. Without a `run.json` in the folder, nothing is checked."""
    if not run_record.exists(folder):
        return
    phase, facts = run_record.read_phases(folder)[-1], description.model_facts(described, config, tokenizer.rules)
    recorded = {name: phase.model[name] for name in facts} | {"max_seq_length": phase.data["max_seq_length"]}
    now = facts | {"max_seq_length": described.max_seq_length}
    identity.require_same(f"{folder}: its files are not the run's own", recorded, now, "copy the run's folder again")
