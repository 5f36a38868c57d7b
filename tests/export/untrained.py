"""Runs' folders without training: random weights answer as well for a comparison with the trainer's code."""

import pathlib
import shutil

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.finetuning import description
from bert_tf.finetuning.model import FineTunedBert, head_maker
from bert_tf.finetuning.task import Task
from bert_tf.runs import run_checkpoints
from export.saved_model import export_saved_model
from export.settings import ExportSettings

CONFIG = BertConfig(
    vocab_size=300, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=64, type_vocab_size=2, initializer_range=0.5,
)  # fmt: skip


def make_run(folder: pathlib.Path, vocab_file: str, task: Task, length: int, bilstm_head=False) -> FineTunedBert:
    """Writes the folder of a run; returns its model."""
    model = FineTunedBert(CONFIG, head_maker(task.head, bilstm_head))
    spread = tf.random.Generator.from_seed(5)
    for variable in model.variables:  # biases too, which begin as zeros
        variable.assign(variable + spread.normal(variable.shape, stddev=0.3))
    run_checkpoints.save(str(folder), tf.train.Checkpoint(model=model, global_step=tf.Variable(1, dtype=tf.int64)), 1)
    (folder / "bert_config.json").write_text(CONFIG.to_json_string())
    shutil.copy(vocab_file, folder / "vocab.txt")
    description.write(str(folder), description.describe(task, True, length, bilstm_head))
    return model


def export(run: pathlib.Path, **settings):
    """Exports a run and loads the export."""
    target = run.parent / "model/1"
    export_saved_model(ExportSettings(checkpoint_dir=str(run), export_dir=str(target), **settings))
    return tf.saved_model.load(str(target))
