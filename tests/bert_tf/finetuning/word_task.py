"""A task that is not a classification: two rows for each example, a label for each token, and its own files."""

import json

import numpy as np
import tensorflow as tf

from bert_tf.core.command_line import parse
from bert_tf.finetuning.engine import run_finetuning
from bert_tf.finetuning.task import LOSS, Task, tokenize
from bert_tf.finetuning.task_data import TaskData, each_row
from bert_tf.modeling.dense import Linear
from bert_tf.rows.sources import Files
from bert_tf.settings import FineTuningSettings
from bert_tf.text.packing import pack
from bert_tf.training.metrics import Form, Metric
from tests.small_configs import small_config


class TokenHead(Linear):
    reads = "sequence_output"

    def call(self, x, training=False, seed=None):
        return tf.cast(super().call(x), tf.float32)  # [B, S, 2]


def _lines(path, with_labels):
    return ((path, {"text": line}) for line in open(path).read().splitlines())


class FindTheWord(Task):
    """Marks the tokens "the" in a line. The two rows of an example are the halves of its line."""

    kind, name, labels = "find", "toy", ("other", "the")
    metrics = (LOSS, Metric("token_accuracy", "acc", "task", form=Form.FRACTION, higher_is_better=True))

    def __init__(self, folder):
        paths = {split: [f"{folder}/{split}.txt"] for split in ("train", "dev", "test")}
        self.data = TaskData.of(Files("", paths, paths.get, _lines), each_row(lambda _, row, __: row["text"]))

    def encode(self, examples, tokenizer, max_seq_length):
        halves = [half for line in examples for half in (line[: len(line) // 2], line[len(line) // 2 :])]
        tokens = tokenize(halves, tokenizer)
        the = tokenizer.vocabulary.index("the")
        labels = tf.cast(tokens == the, tf.int32).to_tensor(shape=[None, max_seq_length - 2])
        return {
            "tokens": tokens,
            "label_ids": tf.pad(labels, [[0, 0], [1, 1]]),
            "example_ids": np.arange(len(halves)) // 2,
        }

    def model_inputs(self, columns, tokenizer, max_seq_length):
        ids = {"cls_id": tokenizer.cls_id, "sep_id": tokenizer.sep_id}
        return pack(columns["tokens"], None, max_seq_length=max_seq_length, **ids)

    def head(self, config):
        return TokenHead(config.hidden_size, 2, config)

    def weights(self, batch):
        return batch["row_weights"][:, tf.newaxis] * tf.cast(batch["input_mask"], tf.float32)

    def losses(self, logits, batch):
        right = tf.argmax(logits, -1, tf.int32) == batch["label_ids"]
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label_ids"], logits)
        return {"loss": loss, "token_accuracy": tf.cast(right, tf.float32)}

    def prediction(self, logits, batch):
        return tf.argmax(logits, -1, tf.int32) * batch["input_mask"]

    def scores(self, split, predictions):
        return {"exact_rows": float(np.mean(np.all(predictions == split.columns["label_ids"].numpy(), axis=1)))}

    def write_predictions(self, folder, split, predictions):
        found = np.bincount(split.example_ids, predictions.sum(axis=1)).astype(int)
        with open(f"{folder}/found.json", "w") as file:
            json.dump(dict(zip(split.examples, found.tolist(), strict=True)), file)
        return [f"{folder}/found.json"]


def settings(folder, vocab_file, output_dir, *more: str) -> FineTuningSettings:
    return parse(
        FineTuningSettings,
        [f"--bert_config_file={folder}/config.json", f"--vocab_file={vocab_file}", f"--output_dir={output_dir}",
         "--max_seq_length=16", "--train_batch_size=10", "--num_train_epochs=20", "--learning_rate=1e-2", *more],
    )  # fmt: skip


def train(folder, vocab_file, output_dir, *more: str, make_task=FindTheWord) -> dict[str, float]:
    """Runs the task with the flags of `settings`; returns the metrics of the evaluation."""
    return run_finetuning(settings(folder, vocab_file, output_dir, *more), lambda command: make_task(folder))


def write_inputs(folder) -> None:
    """Writes `train.txt`, `dev.txt`, `test.txt` of 12 lines, and a configuration."""
    lines = [" ".join(("the" if (i + j) % 3 == 0 else "man") for j in range(4 + 2 * (i % 3))) for i in range(12)]
    for split in ("train", "dev", "test"):
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
    config = small_config(max_position_embeddings=16)
    (folder / "config.json").write_text(config.to_json_string())
