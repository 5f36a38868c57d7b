"""Writes and reads `dev_predictions.jsonl`, which contains the predictions of a run's last evaluation on the dev data.

The report and other programs read this file. An evaluation on data other than the run's dev data writes
`eval_predictions.jsonl` into a separate folder.

Each line is one example. Its fields depend on the kind of task; most kinds have `index` (from 0), `label` and
`prediction`. Texts are truncated to 1,000 characters.
"""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.core import storage

_MOST_CHARACTERS = 1000
_TEXTS = ("text_a", "text_b", "question", "context")


def write(folder: str, entries: Iterable[Mapping[str, Any]], prefix: str = "dev") -> None:
    """Writes the file atomically.
    `entries`: for each example, the fields of its line, with values that JSON can represent.
    `prefix`: the beginning of the file's name; see `Task.write_evaluation`."""
    lines = []
    for entry in entries:
        cut = {name: value[:_MOST_CHARACTERS] if name in _TEXTS else value for name, value in entry.items()}
        lines.append(json.dumps(cut, ensure_ascii=False) + "\n")
    storage.write_text(os.path.join(folder, f"{prefix}_predictions.jsonl"), "".join(lines))


def read(folder: str, prefix: str = "dev") -> list[dict]:
    """Returns the lines of the file that `write` wrote with this prefix; [] if there is no such file.
    Raises ValueError: a line is not JSON."""
    path = os.path.join(folder, f"{prefix}_predictions.jsonl")
    if not tf.io.gfile.exists(path):
        return []
    with tf.io.gfile.GFile(path, "rb") as file:
        return [json.loads(line) for line in file.read().decode("utf-8").split("\n") if line]
