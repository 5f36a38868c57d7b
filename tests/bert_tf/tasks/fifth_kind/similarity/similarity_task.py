"""The similarity of two texts: the cosine of their vectors. The two rows of a pair are consecutive.

Letters: B batch, S sequence length, H hidden, N rows, G pairs.
"""

import dataclasses
import os

import numpy as np
import tensorflow as tf
import tf_keras as keras

from bert_tf.core import storage
from bert_tf.finetuning.task import LOSS, Split, Task, tokenize
from bert_tf.finetuning.task_data import TaskData
from bert_tf.modeling.heads import pool_tokens
from bert_tf.tasks import evaluation_file
from bert_tf.text.packing import pack


class MeanHead(keras.layers.Layer):
    """Computes the mean of a row's tokens, [B, H]; the layer has no weights."""

    reads, columns = "sequence_output", ("input_mask",)

    def call(self, x, input_mask=None, training=False, seed=None):
        return tf.cast(pool_tokens(x, input_mask, "mean"), tf.float32)


def cosine(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The cosines of vectors, [B, H] each."""
    return tf.reduce_sum(tf.math.l2_normalize(a, -1) * tf.math.l2_normalize(b, -1), -1)


@dataclasses.dataclass(frozen=True)
class Pair:
    text_a: str
    text_b: str
    label: float


def read(path, split):
    with tf.io.gfile.GFile(path) as file:
        cells = [line.split("\t") for line in file.read().splitlines()]
    return [Pair(a, b, float(score)) for a, b, score in cells]


@dataclasses.dataclass(frozen=True)
class SimilarityTask(Task):
    data: TaskData
    kind, name, labels, metrics = "similarity", "pairs", (), (LOSS,)

    def encode(self, examples, tokenizer, max_seq_length):
        texts = [text for pair in examples for text in (pair.text_a, pair.text_b)]
        return {
            "tokens": tokenize(texts, tokenizer),
            "is_first": np.tile(np.float32([1, 0]), len(examples)),
            "label_ids": np.repeat(np.float32([pair.label for pair in examples]), 2),
            "example_ids": np.repeat(np.arange(len(examples)), 2),
        }

    def group_sizes(self, split):
        return np.full(len(split.examples), 2)

    def model_inputs(self, columns, tokenizer, max_seq_length):
        ids = {"cls_id": tokenizer.cls_id, "sep_id": tokenizer.sep_id}
        return pack(columns["tokens"], None, max_seq_length=max_seq_length, **ids)

    def head(self, config):
        return MeanHead()

    def weights(self, batch):
        return batch["row_weights"] * batch["is_first"]

    def losses(self, logits, batch):
        return {"loss": tf.square(cosine(logits, tf.roll(logits, -1, 0)) - batch["label_ids"])}

    def by_example(self, split, predictions):
        found = cosine(predictions[::2], predictions[1::2]).numpy()[:, np.newaxis]  # [G, 1]
        columns = {"label_ids": split.columns["label_ids"][::2]}
        return Split(split.examples, columns, np.arange(len(split.examples))), found

    def scores(self, split, predictions):
        return {"pearson": float(np.corrcoef(predictions[:, 0], split.columns["label_ids"])[0, 1])}

    def keep_evaluation(self, folder, split, predictions, step, prefix="dev"):
        rows = zip(split.examples, split.columns["label_ids"].numpy().tolist(), predictions[:, 0].tolist(), strict=True)
        entries = [{"text_a": e.text_a, "text_b": e.text_b, "label": label, "prediction": p} for e, label, p in rows]
        evaluation_file.write(folder, entries, prefix)

    def write_predictions(self, folder, split, predictions):
        path = os.path.join(folder, "test_predictions.tsv")
        storage.write_text(path, "".join(f"{value}\n" for value in predictions[:, 0]))
        return [path]
