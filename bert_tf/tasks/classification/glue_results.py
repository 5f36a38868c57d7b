"""Collects the scores of Table 1 from the folders of several runs, and writes the zip file for GLUE's server.

Paper: section 4.1, Table 1.
"""

import io
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.finetuning import description, sweep_results
from bert_tf.tasks.classification import glue, submission
from bert_tf.training import metrics_file

# Maps each column of Table 1 to its task and its metric.
COLUMNS: Mapping[str, tuple[str, str]] = {
    "MNLI-m": ("MNLI", "accuracy"),
    "MNLI-mm": ("MNLI", "accuracy_mismatched"),
    "QQP": ("QQP", "f1"),
    "QNLI": ("QNLI", "accuracy"),
    "SST-2": ("SST-2", "accuracy"),
    "CoLA": ("CoLA", "matthews_correlation"),
    "STS-B": ("STS-B", "spearman"),
    "MRPC": ("MRPC", "f1"),
    "RTE": ("RTE", "accuracy"),
}


def average(columns: Mapping[str, float]) -> float:
    """Averages the columns of Table 1 as in the paper: MNLI counts twice, and WNLI is left out.
    `columns`: maps the name of each column in `COLUMNS` to a score."""
    if missing := [name for name in COLUMNS if name not in columns]:
        raise InputError(f"the average of Table 1 needs all columns; {', '.join(missing)} are missing")
    return sum(columns[name] for name in COLUMNS) / len(COLUMNS)


def dev_scores(run_dirs: Sequence[str]) -> dict[str, float]:
    """Reads the columns of Table 1 from the evaluations of runs; leaves out columns without an evaluation."""
    folders: dict[str, str] = {}
    for folder in _runs(run_dirs):
        task = description.read(folder).task_name
        if task not in glue.TASK_NAMES:
            raise InputError(f"{folder}: holds a run of {task}, which is not a task of GLUE; leave the folder out")
        if task in folders:
            raise InputError(f"{folder}: holds a run of {task}, as does {folders[task]}; give only one folder")
        folders[task] = folder
    scores = {}
    for column, (task, metric) in COLUMNS.items():
        if task not in folders or not (results := metrics_file.read_results(folders[task])):
            continue
        if f"eval_{metric}" not in results:
            raise InputError(f"{folders[task]}: its last evaluation has no {metric}; evaluate --task_name={task} again")
        scores[column] = results[f"eval_{metric}"]
    return scores


def assemble(output_file: str, run_dirs: Sequence[str], glue_dir: str = "") -> None:
    """Writes the zip file for GLUE's server atomically.
    `run_dirs`: folders that together contain the prediction files of all tasks.
    `glue_dir`: folder of GLUE's data, or "". If a folder is given and no run has WNLI.tsv, the majority class of the
      WNLI training data is the prediction for WNLI."""
    with tempfile.TemporaryDirectory() as temporary:
        folders = _runs(run_dirs)
        if glue_dir and not any(tf.io.gfile.exists(f"{folder}/WNLI.tsv") for folder in folders):
            _write_majority(os.path.join(glue_dir, "WNLI"), temporary)
            folders.append(temporary)
        texts = {name: submission.read(_only(name, folders)) for name in submission.SIZES}
    content = io.BytesIO()  # zipfile must seek while it writes, but gs:// does not support seeking
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.tsv"), text, zipfile.ZIP_DEFLATED)
    with storage.atomic_path(output_file) as path, tf.io.gfile.GFile(path, "wb") as file:
        file.write(content.getvalue())
    logging.info("wrote %s with %d files", output_file, len(texts))


def _runs(folders: Sequence[str]) -> list[str]:
    """Returns the folders; the folder of the best trial replaces the folder of a sweep."""
    return [sweep_results.best_folder(folder, allow_unfinished=False) for folder in folders]


def _write_majority(data_dir: str, folder: str) -> None:
    task = glue.task("WNLI", data_dir)
    examples = task.data.read("test")
    no_logits = np.zeros([len(examples), len(task.labels)], np.float32)
    task.submit(folder, examples, no_logits)
    logging.info("WNLI.tsv has the majority class of %s/train.tsv for all examples", data_dir)


def _only(name: str, folders: Sequence[str]) -> str:
    paths = [os.path.join(folder, f"{name}.tsv") for folder in folders]
    there = [path for path in paths if tf.io.gfile.exists(path)]
    if not there:
        hint = "; or give --glue_dir to submit the majority class" if name == "WNLI" else ""
        task = name.removesuffix("-m").removesuffix("-mm")
        raise InputError(f"{name}.tsv: not in --run_dirs; run --do_predict for {task}, and add the run's folder{hint}")
    if len(there) > 1:
        raise InputError(f"{there[1]}: {there[0]} exists too; give only one of the folders")
    return there[0]
