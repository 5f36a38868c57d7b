"""Finds out whether an evaluation uses a run's dev data or other data, and writes the evaluation's scores and files.

The dev data of a run is the data on which the model is evaluated during training. Without such evaluations, the dev
data is the data of the first `--do_eval`. `evaluations.json` names the dev data. Checkpoints and thresholds are chosen
only on the dev data. Any other data, such as a test set, has its own split in `metrics.jsonl` and its own folder
below `evaluations`, whose names are the data's name and the beginning of its hash.

Paper: appendix A.3 (choice on the dev set).
"""

import dataclasses
import math
import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.finetuning.task import Split, Task
from bert_tf.runs import evaluations
from bert_tf.settings import FineTuningSettings
from bert_tf.training import metrics_file, progress, summaries

# The log names this many scores of the best constant answer.
_MOST_LOGGED = 4


@dataclasses.dataclass(frozen=True)
class EvaluatedData:
    """The data of an evaluation or a prediction."""

    id: str  # identity of the data; see `task_data.fingerprint_of`
    # name of the split in `metrics.jsonl` and in messages: "dev" for dev data, else `metrics_file.series_of`
    series: str
    folder: str  # folder of the evaluation's files: the run's folder for dev data, else a separate folder

    @property
    def is_dev(self) -> bool:
        return self.series == metrics_file.DEV


def is_same(one: str, other: str) -> bool:
    """Returns whether two results of `fingerprint_of` belong to the same examples; the data's names may differ."""
    return metrics_file.content_of(one) == metrics_file.content_of(other)


def in_folder(output_dir: str, data: str, dev: str = "") -> EvaluatedData:
    """Returns the data of an evaluation or a prediction.
    `data`: identity of the data; see `task_data.fingerprint_of`.
    `dev`: identity of the dev data; used only if `output_dir` has no record of dev data. "" if unknown."""
    dev = evaluations.read(output_dir).data or dev
    if dev and is_same(data, dev):
        return EvaluatedData(data, metrics_file.DEV, output_dir)
    series = metrics_file.series_of(data)
    return EvaluatedData(data, series, metrics_file.folder_of(output_dir, series))


def refuse_tuning(settings: FineTuningSettings) -> None:
    """Refuses flags that would tune thresholds on data that is not the dev data."""
    if flags := [name for name in settings.tuned_on_dev if getattr(settings, name)]:
        raise InputError(
            f"--{flags[0]}: chooses thresholds on the run's dev data, but this is other data; drop the flag, or "
            "evaluate on the dev data"
        )


def become_dev(output_dir: str, data: EvaluatedData) -> None:
    """Records dev data in `evaluations.json`. Does nothing for other data, or if the file already names dev data."""
    recorded = evaluations.read(output_dir)
    if data.is_dev and not recorded.data:
        logging.info("the run's dev data is %s", data.id)
        evaluations.write(output_dir, dataclasses.replace(recorded, data=data.id))


def record(
    output_dir: str, data: EvaluatedData, task: Task, split: Split, predictions: np.ndarray,
    scores: Mapping[str, float], step: int | None, is_new: bool = True,
) -> None:  # fmt: skip
    """Logs an evaluation, and writes the results to `metrics.jsonl`, TensorBoard, `eval_results.txt` and other files.
    `split`: the split that `Task.by_example` returned.
    `predictions`: the predictions that `Task.by_example` returned.
    `step`: step of the weights; None for an ensemble, which has no `metrics.jsonl`.
    `is_new`: whether to log the evaluation and to write it to `metrics.jsonl`; false if this command has already done
      both."""
    if is_new:
        always = _announce(data, task, split, predictions, scores, step)
        if step is not None:
            metrics_file.record(output_dir, data.series, step, {"data": data.id, **scores, **always})
            summaries.write(os.path.join(data.folder, metrics_file.HELD_OUT), task.metrics, scores, step)
    results = {f"eval_{metric}": value for metric, value in scores.items()}
    metrics_file.write_results(data.folder, results | ({} if step is None else {"global_step": step}))
    task.write_evaluation(data.folder, split, predictions, step, "dev" if data.is_dev else "eval")


def write_predictions(output_dir: str, data: EvaluatedData, task: Task, split: Split, predictions: np.ndarray) -> None:
    """Writes the prediction files of a test set into the run's folder, and a copy into the data's own folder. The run's
    folder has the newest predictions under the names of google-research/bert. The copies of different data sets do not
    overwrite each other."""
    for path in task.write_predictions(output_dir, split, predictions):
        logging.info("wrote the predictions of %d examples to %s", len(split.examples), path)
        if not data.is_dev:
            tf.io.gfile.makedirs(data.folder)
            tf.io.gfile.copy(path, os.path.join(data.folder, os.path.basename(path)), overwrite=True)


def _announce(
    data: EvaluatedData, task: Task, split: Split, predictions: np.ndarray, scores: Mapping, step: int | None
) -> dict:
    """Logs an evaluation and the best constant answer; returns the constant answer as an entry for `metrics.jsonl`."""
    who = "ensemble" if step is None else f"step {step}"
    baseline, told = task.baseline(split), ""
    if baseline:
        values = list(baseline.scores.items())[:_MOST_LOGGED]
        told = f" (always {baseline.answer}: {', '.join(f'{name} {value:.4g}' for name, value in values)})"
    logging.info("%s %s, %s: %s%s", task.name, data.series, who, progress.describe(scores, task.metrics), told)
    if not data.is_dev:
        logging.info("%s is not the run's dev data; its results are in %s", data.series, data.folder)
    if all(map(math.isfinite, scores.values())) and (only := task.only_answer(split, predictions)):
        logging.warning(
            "%s, %s: every prediction is %s, so the model does not distinguish the examples; train it longer, or with "
            "another --learning_rate", data.series, who, only,
        )  # fmt: skip
    return {"always": {"answer": baseline.answer, "scores": dict(baseline.scores)}} if baseline else {}
