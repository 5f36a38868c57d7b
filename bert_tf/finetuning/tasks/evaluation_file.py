"""`dev_predictions.jsonl` in a run's folder: what the last evaluation answered, for the report and other programs.

A line is one example: its `index` from 0, `text_a`, `text_b` for pairs, `label`, `prediction` and `loss`; for classes
also `probabilities`, in the order of the labels in `task.json`. Texts end after 1,000 characters.

Letters: N examples, C classes.
"""

import json
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.task import Split
from tfrecords import writer

NAME = "dev_predictions.jsonl"
_MOST_CHARACTERS = 1000


def write(folder: str, split: Split, logits: np.ndarray, labels: Sequence[str]) -> None:
    """Writes the file, atomically. Examples without a label are left out, and so is a split that diverged.

    Args:
      folder: the run's folder.
      split: with one row for each of N examples, whose `label_ids` are ids of classes or scores.
      logits: float [N, C]; for a regression [N, 1].
      labels: names of the classes; () for a regression.
    """
    if not np.all(np.isfinite(logits)):
        return
    targets = split.columns["label_ids"].numpy()
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    lines = []
    for row, index in enumerate(split.example_ids.tolist()):
        example = split.examples[index]
        if example.label is None:
            continue
        entry = {"index": index, "text_a": example.text_a[:_MOST_CHARACTERS]}
        if example.text_b is not None:
            entry["text_b"] = example.text_b[:_MOST_CHARACTERS]
        if labels:
            target, chances = int(targets[row]), np.exp(log_probabilities[row])
            entry |= {"label": labels[target], "prediction": labels[int(np.argmax(logits[row]))]}
            entry |= {"loss": float(-log_probabilities[row, target]), "probabilities": chances.tolist()}
        else:
            target, score = float(targets[row]), float(logits[row, 0])
            entry |= {"label": target, "prediction": score, "loss": (score - target) ** 2}
        lines.append(json.dumps(entry, ensure_ascii=False) + "\n")
    writer.write_text(os.path.join(folder, NAME), "".join(lines))


def read(folder: str) -> list[dict]:
    """Reads the lines of a folder's file; [] if there is none.

    Raises:
      ValueError: a line is no JSON.
    """
    path = os.path.join(folder, NAME)
    if not tf.io.gfile.exists(path):
        return []
    with tf.io.gfile.GFile(path, "rb") as file:
        return [json.loads(line) for line in file.read().decode("utf-8").split("\n") if line]
