"""A small pre-trained checkpoint with its configuration and vocabulary, for tests."""

import pathlib

import tensorflow as tf

from tests.bert_tf.reference import random_pretrainer
from tests.small_configs import small_config


def write_pretrained(folder: pathlib.Path, vocab_file: str, **changes):
    """Writes a checkpoint of random weights; returns the pre-trainer."""
    config = small_config(**{"num_hidden_layers": 3, "max_position_embeddings": 40} | changes)
    folder.mkdir(parents=True, exist_ok=True)
    model = random_pretrainer(config)
    step = tf.Variable(7, dtype=tf.int64)
    tf.train.Checkpoint(model=model, global_step=step).write(str(folder / "ckpt-7"))
    (folder / "bert_config.json").write_text(config.to_json_string())
    (folder / "vocab.txt").write_text(pathlib.Path(vocab_file).read_text())
    return model
