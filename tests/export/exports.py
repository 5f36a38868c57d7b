"""Small runs to export, put together without training."""

import shutil

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.finetuning import description
from bert_tf.finetuning.model import FineTunedBert
from bert_tf.runs import run_checkpoints

PAIRS = [
    ("the man said", "he was there"), ("all of you", "they had"), ("", "word"), ("word", ""), ("", ""),
    ("Ünïcödé ΑΣ \u200b x", "中文 (test)"), ("very " * 40, "long " * 40), ("a", "b c d"),
]  # fmt: skip

CONFIG = BertConfig(
    vocab_size=300, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=32, type_vocab_size=2, initializer_range=0.2,
)  # fmt: skip


def put_together(run, vocab_file, task):
    """A run's folder without training, and its model."""
    model = FineTunedBert(CONFIG, task.head)
    checkpoint = tf.train.Checkpoint(model=model, global_step=tf.Variable(1, dtype=tf.int64))
    run_checkpoints.save(str(run), checkpoint, 1)
    (run / "bert_config.json").write_text(CONFIG.to_json_string())
    shutil.copy(vocab_file, run / "vocab.txt")
    description.write(str(run), description.describe(task, True, 24))
    return model
