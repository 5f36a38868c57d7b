"""A small pre-trained checkpoint with its configuration and vocabulary, for tests."""

import pathlib

import tensorflow as tf

from bert_tf.config import BertConfig
from tests.bert_tf.reference import random_pretrainer


def write_pretrained(folder: pathlib.Path, vocab_file: str, **changes):
    """Writes a checkpoint of random weights; returns the pre-trainer."""
    shape = {
        "vocab_size": 300, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32,
        "max_position_embeddings": 40, "type_vocab_size": 2,
    }  # fmt: skip
    config = BertConfig(**shape | changes)
    folder.mkdir(parents=True, exist_ok=True)
    model = random_pretrainer(config)
    step = tf.Variable(7, dtype=tf.int64)
    tf.train.Checkpoint(model=model, global_step=step).write(str(folder / "ckpt-7"))
    (folder / "bert_config.json").write_text(config.to_json_string())
    (folder / "vocab.txt").write_text(pathlib.Path(vocab_file).read_text())
    return model
