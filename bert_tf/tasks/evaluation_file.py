"""`dev_predictions.jsonl` in a run's folder: what the last evaluation answered, for the report and other programs.

An evaluation of other data than the run's dev data writes `eval_predictions.jsonl`, into a folder of its own.

A line is one example: its `index` from 0, `text_a`, `text_b` for pairs, `label`, `prediction` and `loss`; for classes
also `probabilities`, in the order of the labels in `task.json`. Of label sets, `label` and `prediction` are lists.
Texts end after 1,000 characters.

A line of `run_squad` is one question: `index`, `id`, `question`, the `context` around the answer, `label` (the texts of
the answers, none for a question without one), `prediction` ("" for no answer), its `probability` among the best
answers, `exact_match` and `f1`; of SQuAD 2.0 also `null_odds`.

Letters: N examples, C classes.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.core import storage
from bert_tf.finetuning.task import Split

NAME = "dev_predictions.jsonl"
_MOST_CHARACTERS = 1000
_TEXTS = ("text_a", "text_b", "question", "context")


def write(
    folder: str,
    split: Split,
    logits: np.ndarray,
    labels: Sequence[str],
    thresholds: np.ndarray | float = 0.5,
    prefix: str = "dev",
) -> None:
    """Writes the file, atomically. Examples without a label are left out, and so is a split that diverged.

    Args:
      folder: the run's folder.
      split: with one row for each of N examples. Its `label_ids` are ids of classes or scores, [N], or for label sets
        1 and 0, [N, C].
      logits: float [N, C]; for a regression [N, 1].
      labels: names of the classes; () for a regression.
      thresholds: of label sets: the probability, [C] or for all labels, above which a label is predicted.
      prefix: with which the file's name begins; see `Task.keep_evaluation`.
    """
    if not np.all(np.isfinite(logits)):
        return
    targets, logits = split.columns["label_ids"].numpy(), logits.astype(np.float64)
    answers = _label_sets if targets.ndim == 2 else _classes if labels else _scores
    entries = []
    found = zip(split.example_ids.tolist(), answers(targets, logits, labels, thresholds), strict=True)
    for index, answer in found:
        example = split.examples[index]
        if example.label is None:
            continue
        entry = {"index": index, "text_a": example.text_a}
        if example.text_b is not None:
            entry["text_b"] = example.text_b
        entries.append(entry | answer)
    write_entries(folder, entries, prefix)


def write_entries(folder: str, entries: Iterable[Mapping[str, Any]], prefix: str = "dev") -> None:
    """Writes the file, atomically: an object for each example, whose texts end after 1,000 characters."""
    lines = []
    for entry in entries:
        cut = {name: value[:_MOST_CHARACTERS] if name in _TEXTS else value for name, value in entry.items()}
        lines.append(json.dumps(cut, ensure_ascii=False) + "\n")
    storage.write_text(os.path.join(folder, f"{prefix}_predictions.jsonl"), "".join(lines))


def _classes(targets: np.ndarray, logits: np.ndarray, labels: Sequence[str], _) -> Iterator[dict]:
    log_probabilities = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    for target, row in zip(targets.astype(int), log_probabilities, strict=True):
        answer = {"label": labels[target], "prediction": labels[int(np.argmax(row))], "loss": float(-row[target])}
        yield answer | {"probabilities": np.exp(row).tolist()}


def _label_sets(targets: np.ndarray, logits: np.ndarray, labels: Sequence[str], thresholds) -> Iterator[dict]:
    probabilities = np.exp(-np.logaddexp(0, -logits))
    losses = np.mean(np.logaddexp(0, logits) - targets * logits, axis=1)
    for target, loss, row in zip(targets > 0, losses, probabilities, strict=True):
        sets = [[labels[number] for number in np.flatnonzero(chosen)] for chosen in (target, row > thresholds)]
        yield {"label": sets[0], "prediction": sets[1], "loss": float(loss), "probabilities": row.tolist()}


def _scores(targets: np.ndarray, logits: np.ndarray, *_) -> Iterator[dict]:
    for target, score in zip(targets.tolist(), logits[:, 0].tolist(), strict=True):
        yield {"label": target, "prediction": score, "loss": (score - target) ** 2}


def read(folder: str, prefix: str = "dev") -> list[dict]:
    """Reads the lines of a folder's file, whose name begins with a prefix as in `write`; [] if there is none.

    Raises:
      ValueError: a line is no JSON.
    """
    path = os.path.join(folder, f"{prefix}_predictions.jsonl")
    if not tf.io.gfile.exists(path):
        return []
    with tf.io.gfile.GFile(path, "rb") as file:
        return [json.loads(line) for line in file.read().decode("utf-8").split("\n") if line]
