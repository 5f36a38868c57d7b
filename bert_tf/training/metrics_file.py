"""Reads and writes the metrics files in a run's folder, for curves and for other programs.

Each loop of training and each evaluation adds a line to `metrics.jsonl`. Each evaluation writes `eval_results.txt`. The
line of an evaluation identifies the evaluated data. Evaluations of different data have different values of `split`.
"""

import json
import os
import re
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.core import storage
from bert_tf.core.errors import InputError

METRICS_NAME, RESULTS_NAME = "metrics.jsonl", "eval_results.txt"
# Values of `split`. An evaluation on training data must not be mistaken for an evaluation on held-out data.
START, TRAIN, HELD_OUT, TRAINING_DATA = "start", "train", "eval", "eval_on_training_data"
# The split of the dev data in fine-tuning.
DEV = "dev"
# This folder contains the files of evaluations on data other than the run's own dev or held-out data.
OTHER_DATA = "evaluations"


def record(output_dir: str, split: str, step: int, values: Mapping, name: str = METRICS_NAME) -> None:
    """Adds a line to a metrics file.
    `split`: TRAIN, HELD_OUT, TRAINING_DATA or the name of other evaluated data; START if training starts or resumes.
    `step`: number of completed steps.
    `values`: metrics by name, or facts about a start."""
    tf.io.gfile.makedirs(output_dir)
    path = os.path.join(output_dir, name)
    line = json.dumps({"split": split, "step": step, **values}) + "\n"
    if _is_torn(path):
        line = "\n" + line
    with tf.io.gfile.GFile(path, "a") as file:
        file.write(line)


def series_of(data: str) -> str:
    """Returns the value of `split` for data that is not a run's own: the data's name and the beginning of its hash.
    `data`: identification of the data: name, number of examples or bytes, and hash, separated by ", "."""
    name, _, content = data.rsplit(", ", 2)
    return f"{name}-{content[:4]}"


def content_of(data: str) -> list[str]:
    """Returns the size and the hash in the identification of evaluated data."""
    return data.rsplit(", ", 2)[1:]


def folder_of(output_dir: str, series: str) -> str:
    """Returns the folder of evaluations on data that is not the run's own; `series` is the data's split."""
    return os.path.join(output_dir, OTHER_DATA, re.sub(r"[^\w.,()-]+", "_", series)[-100:])


def other_data(output_dir: str) -> dict[str, str]:
    """Maps splits to the folders of their evaluations, for all evaluated data except the run's own data."""
    parent = os.path.join(output_dir, OTHER_DATA)
    names = sorted(tf.io.gfile.listdir(parent)) if tf.io.gfile.isdir(parent) else []
    splits = {entry["split"] for entry in read(output_dir)}
    split_of = {folder_of(output_dir, split): split for split in splits}
    folders = [os.path.join(parent, name.rstrip("/")) for name in names]
    return {split_of.get(folder, os.path.basename(folder)): folder for folder in folders}


def _is_torn(path: str) -> bool:
    """Returns whether the last line of a file is incomplete, for example because the writing process was killed."""
    size = tf.io.gfile.stat(path).length if tf.io.gfile.exists(path) else 0
    if not size:
        return False
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(size - 1)
        return file.read(1) != b"\n"


def read(output_dir: str, name: str = METRICS_NAME) -> list[dict]:
    """Reads the lines that `record` wrote, without outdated lines. A resumed run repeats the steps after its
    checkpoint, so earlier lines of these steps are outdated. If a checkpoint is evaluated twice, only the later line is
    returned. Lines that are damaged, or that another process is still writing, are skipped. Returns the entries of the
    lines, ordered by step within each split."""
    by_split: dict[str, dict[int, dict]] = {}
    for entry in filter(None, map(_parsed, _lines(os.path.join(output_dir, name)))):
        split, step = entry["split"], entry["step"]
        if split == START:
            by_split = {key: {s: e for s, e in steps.items() if s <= step} for key, steps in by_split.items()}
        by_split.setdefault(split, {})[step] = entry
    return [steps[step] for steps in by_split.values() for step in sorted(steps)]


def _lines(path: str) -> list[str]:
    if not tf.io.gfile.exists(path):
        return []
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read().decode("utf-8", errors="replace").split("\n")


def _parsed(line: str) -> dict | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(entry, dict) and isinstance(entry.get("split"), str) and isinstance(entry.get("step"), int)
    return entry if whole else None


def write_results(output_dir: str, results: dict[str, float]) -> None:
    """Writes `eval_results.txt` with sorted lines "name = value", like google-research/bert."""
    tf.io.gfile.makedirs(output_dir)
    lines = [f"{name} = {value}\n" for name, value in sorted(results.items())]
    storage.write_text(os.path.join(output_dir, RESULTS_NAME), "".join(lines))


def evaluated_step(folder: str) -> int | None:
    """Returns the step of the evaluation whose files are in a folder; None if there is no evaluation or no step."""
    step = read_results(folder).get("global_step")
    return None if step is None else int(step)


def read_results(output_dir: str) -> dict[str, float]:
    """Reads the file that `write_results` wrote; {} if it is missing."""
    path = os.path.join(output_dir, RESULTS_NAME)
    if not tf.io.gfile.exists(path):
        return {}
    with tf.io.gfile.GFile(path) as file:
        pairs = [line.partition(" = ") for line in file.read().splitlines()]
    try:
        return {name: float(value) for name, _, value in pairs}
    except ValueError as error:
        raise InputError(f"{path}: is damaged ({error}); evaluate again") from error
