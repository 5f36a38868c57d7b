"""Files of metrics in a run's folder, for curves and for other programs.

Each loop of training and each evaluation adds a line to `metrics.jsonl`, or to `metrics-eval.jsonl` if another process
trains. Each evaluation writes `eval_results.txt`. A line of an evaluation names its data, and no other data has lines
of the same split.
"""

import json
import os
import re
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.core import storage
from bert_tf.core.errors import InputError

METRICS_NAME, RESULTS_NAME = "metrics.jsonl", "eval_results.txt"
# Splits of lines. An evaluation on training data must never look like one on held-out data.
START, TRAIN, HELD_OUT, TRAINING_DATA = "start", "train", "eval", "eval_on_training_data"
# The split of a fine-tuning's dev data.
DEV = "dev"
_RESERVED = (START, TRAIN, HELD_OUT, TRAINING_DATA, DEV)
# Folder of the files of evaluations on other data than the run's own dev or held-out data.
OTHER_DATA = "evaluations"
# A process that only evaluates writes this one, since another that trains may be writing the one above.
EVALUATOR_METRICS_NAME = "metrics-eval.jsonl"


def record(output_dir: str, split: str, step: int, values: Mapping, name: str = METRICS_NAME) -> None:
    """Adds a line to a metrics file.

    Args:
      output_dir: the run's folder.
      split: TRAIN, START where training starts or resumes, HELD_OUT, TRAINING_DATA, or another name of evaluated data.
      step: steps trained so far.
      values: metrics by name, or facts about a start.
      name: of the file. No two processes may write the same one.
    """
    tf.io.gfile.makedirs(output_dir)
    path = os.path.join(output_dir, name)
    line = json.dumps({"split": split, "step": step, **values}) + "\n"
    if _is_torn(path):
        line = "\n" + line
    with tf.io.gfile.GFile(path, "a") as file:
        file.write(line)


def series_of(output_dir: str, data: str, own: str = "") -> str:
    """Returns the split of evaluated data: the one that it had before, else one that no other data has.

    Args:
      output_dir: the run's folder.
      data: identifies the data: name, number of examples or bytes, and hash, separated by ", ".
      own: the split of the first data that is evaluated; "" to name also that by its data.
    """
    known = read(output_dir, METRICS_NAME, EVALUATOR_METRICS_NAME)
    contents = {entry["split"]: content_of(entry.get("data", "")) for entry in known}
    if own and contents.get(own, content_of(data)) == content_of(data):
        return own
    before = [split for split, content in contents.items() if content == content_of(data) and split not in _RESERVED]
    if before:
        return before[0]
    name = name_of(data)
    return f"{name} {content_of(data)[-1][:8]}" if name in (*_RESERVED, *contents) else name


def name_of(data: str) -> str:
    """Returns the name of evaluated data from what identifies it."""
    return data.rsplit(", ", 2)[0]


def content_of(data: str) -> list[str]:
    """Returns the size and the hash of evaluated data from what identifies it."""
    return data.rsplit(", ", 2)[1:]


def folder_of(output_dir: str, series: str) -> str:
    """Returns the folder of evaluations on other data than the run's own, given its split."""
    return os.path.join(output_dir, OTHER_DATA, re.sub(r"[^\w.,()-]+", "_", series)[:100])


def other_data(output_dir: str) -> dict[str, str]:
    """Returns the folders of evaluations on other data than the run's own dev data, by its split in metrics files."""
    parent = os.path.join(output_dir, OTHER_DATA)
    names = sorted(tf.io.gfile.listdir(parent)) if tf.io.gfile.isdir(parent) else []
    splits = {entry["split"] for entry in read(output_dir, METRICS_NAME, EVALUATOR_METRICS_NAME)}
    known = {folder_of(output_dir, split): split for split in splits}
    folders = [os.path.join(parent, name.rstrip("/")) for name in names]
    return {known.get(folder, os.path.basename(folder)): folder for folder in folders}


def _is_torn(path: str) -> bool:
    """Whether a kill left half a line at the end of a file."""
    size = tf.io.gfile.stat(path).length if tf.io.gfile.exists(path) else 0
    if not size:
        return False
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(size - 1)
        return file.read(1) != b"\n"


def read(output_dir: str, *names: str) -> list[dict]:
    """Reads the lines that `record` wrote, without those that no longer hold.

    A resumed run trains again the steps after its checkpoint, so the earlier lines of those steps no longer hold. If a
    checkpoint is evaluated twice, the later evaluation holds. A line that is damaged, or that another process is just
    writing, is skipped.

    Args:
      output_dir: the run's folder.
      *names: files, which may be missing; later ones are taken as written later.

    Returns:
      The lines' entries, those of each split by their steps.
    """
    by_split: dict[str, dict[int, dict]] = {}
    for name in names:
        for entry in filter(None, map(_parsed, _lines(os.path.join(output_dir, name)))):
            split, step = entry["split"], entry["step"]
            if split == START:
                by_split[TRAIN] = {s: e for s, e in by_split.get(TRAIN, {}).items() if s <= step}
            by_split.setdefault(split, {})[step] = entry
    return [steps[step] for steps in by_split.values() for step in sorted(steps)]


def check_whole(output_dir: str, *names: str) -> None:
    """Refuses a file most of whose lines cannot be read; half a line where a process was killed is harmless.

    Raises:
      InputError: names the file.
    """
    for name in names:
        path = os.path.join(output_dir, name)
        *lines, last = _lines(path)
        lines += [last] * bool(last and not last.startswith("{"))  # it may be half-written
        damaged = sum(bool(line) and _parsed(line) is None for line in lines)
        if damaged > len(lines) - lines.count("") - damaged:
            raise InputError(
                f"{path}: is damaged (lines that cannot be read: {damaged:,}); copy the run's folder again"
            )


def _lines(path: str) -> list[str]:
    """Returns the lines of a metrics file, which may be missing; the last one is "" if it is whole."""
    if not tf.io.gfile.exists(path):
        return [""]
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
    """Writes `eval_results.txt`, a "name = value" a line, sorted, as the original does."""
    tf.io.gfile.makedirs(output_dir)
    lines = [f"{name} = {value}\n" for name, value in sorted(results.items())]
    storage.write_text(os.path.join(output_dir, RESULTS_NAME), "".join(lines))


def evaluated_step(folder: str) -> int | None:
    """Returns the step of the last evaluation whose files are in a folder; None if there is none, or it has no step."""
    step = read_results(folder).get("global_step")
    return None if step is None else int(step)


def read_results(output_dir: str) -> dict[str, float]:
    """Reads what `write_results` wrote; {} if there is nothing.

    Raises:
      InputError: the file is damaged.
    """
    path = os.path.join(output_dir, RESULTS_NAME)
    if not tf.io.gfile.exists(path):
        return {}
    with tf.io.gfile.GFile(path) as file:
        pairs = [line.partition(" = ") for line in file.read().splitlines()]
    try:
        return {name: float(value) for name, _, value in pairs}
    except ValueError as error:
        raise InputError(f"{path}: is damaged ({error}); evaluate again") from error
