"""Finds out whether an evaluation uses a run's dev data or other data, and writes the evaluation's scores and files.

The dev data of a run is the data on which the model is evaluated during training. Without such evaluations, the dev
data is the data of the first `--do_eval`. `evaluations.json` names the dev data. Checkpoints and thresholds are chosen
only on the dev data. Any other data, such as a test set, has its own split in `metrics.jsonl` and its own folder below
`evaluations`.

Paper: appendix A.3 (choice on the dev set).
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.finetuning import prediction_files
from bert_tf.finetuning.task import Split, Task
from bert_tf.runs import evaluations
from bert_tf.settings import FineTuningSettings
from bert_tf.training import metrics_file, progress

DEV = metrics_file.DEV
# Prefixes of the names of a task's evaluation files; the key is `EvaluatedData.is_dev`.
_PREFIXES = {True: "dev", False: "eval"}
# If an evaluation is repeated with other batches, its scores differ by less than this.
_TOLERANCE = 1e-4
_MOST_LOGGED = 4


@dataclasses.dataclass(frozen=True)
class EvaluatedData:
    """The data of an evaluation.

    Attributes:
      id: identity of the data; see `identify`.
      series: name of the split in `metrics.jsonl`: DEV for dev data, else the data's name.
      folder: folder of the evaluation's files: the run's folder for dev data, else a separate folder.
      dev: the `id` of the run's dev data; "" if unknown.
    """

    id: str
    series: str
    folder: str
    dev: str = ""

    @property
    def is_dev(self) -> bool:
        """Whether this is the run's dev data."""
        return self.series == DEV

    @property
    def shown(self) -> str:
        """The data's name in messages: `series`, or the new name and `series` if the data's file was renamed."""
        name, (_, digest) = metrics_file.name_of(self.id), metrics_file.content_of(self.id)
        first = metrics_file.name_of(self.dev or self.id) if self.is_dev else self.series
        return self.series if first in (name, f"{name} {digest[:8]}") else f"{name} (the same data as {self.series})"


def without_tuning(task: Task, settings: FineTuningSettings) -> Task:
    """Returns the task without threshold tuning, so that an evaluation uses the thresholds from the dev data."""
    tuned = dict.fromkeys(_tuning_flags(settings), False)
    return dataclasses.replace(task, **tuned) if tuned else task


def _tuning_flags(settings: FineTuningSettings) -> list[str]:
    return [name for name in settings.tuned_on_dev if getattr(settings, name)]


def identify(task: Task, split: str, examples: Sequence[Any]) -> str:
    """Returns the identity of evaluated data: its name, its number of examples, and a hash of the examples' content."""
    return f"{task.data_name(split)}, {len(examples):,} examples, {task.digest(examples)[:16]}"


def is_same(one: str, other: str) -> bool:
    """Returns whether two results of `identify` belong to the same examples; the data's names may differ."""
    return metrics_file.content_of(one) == metrics_file.content_of(other)


def find(output_dir: str, data: str, settings: FineTuningSettings, dev: str = "") -> EvaluatedData:
    """Returns the data of an evaluation.

    Args:
      output_dir: the run's folder.
      data: identity of the data; see `identify`.
      settings: settings of the command.
      dev: identity of the dev data; used only if `output_dir` has no record of dev data.

    Raises:
      InputError: a flag would tune thresholds on data that is not the dev data.
    """
    known = evaluations.read(output_dir).data or dev or data
    if is_same(data, known):
        return EvaluatedData(data, DEV, output_dir, known)
    refuse_tuning(data, known, settings)
    return _apart(output_dir, data, known)


def find_test(output_dir: str, data: str, dev: str = "") -> EvaluatedData:
    """Returns the data of a prediction with known labels.

    The data is treated as dev data only if it is the same as the recorded dev data or as `dev`.
    """
    known = evaluations.read(output_dir).data or dev
    is_dev = known and is_same(data, known)
    return EvaluatedData(data, DEV, output_dir, known) if is_dev else _apart(output_dir, data, known)


def _apart(output_dir: str, data: str, dev: str) -> EvaluatedData:
    series = metrics_file.series_of(output_dir, data)
    return EvaluatedData(data, series, metrics_file.folder_of(output_dir, series), dev)


def refuse_tuning(data: str, dev: str, settings: FineTuningSettings) -> None:
    """Refuses flags that would tune thresholds on data that is not the dev data.

    Raises:
      InputError: a flag would tune thresholds; the message names the flag and the data.
    """
    if flags := _tuning_flags(settings):
        raise InputError(
            f"--{flags[0]}: chooses thresholds on the run's dev data ({dev}), but this is other data ({data}); drop "
            "the flag, or evaluate on the dev data"
        )


def become_dev(output_dir: str, data: EvaluatedData) -> None:
    """Records dev data in `evaluations.json`. Does nothing for other data, or if the file already names dev data."""
    recorded = evaluations.read(output_dir)
    if data.is_dev and not recorded.data:
        logging.info("the run's dev data is %s", data.id)
        evaluations.write(output_dir, dataclasses.replace(recorded, data=data.id))


def _announce(
    data: EvaluatedData, task: Task, split: Split, predictions: np.ndarray, scores: Mapping, step: int | None
) -> dict:
    """Logs an evaluation and the best constant answer; returns the constant answer as an entry for `metrics.jsonl`."""
    who = "ensemble" if step is None else f"step {step}"
    baseline, told = task.baseline(split), ""
    if baseline:
        values = list(baseline.scores.items())[:_MOST_LOGGED]
        told = f" (always {baseline.answer}: {', '.join(f'{name} {value:.4g}' for name, value in values)})"
    logging.info("%s %s, %s: %s%s", task.name, data.shown, who, progress.describe(scores, task.metrics), told)
    if not data.is_dev:
        logging.info("%s %s; its results are in %s", data.shown, _difference(data), data.folder)
    if all(map(math.isfinite, scores.values())) and (only := task.only_answer(split, predictions)):
        logging.warning(
            "%s, %s: every prediction is %s, so the model does not distinguish the examples; train it longer, or with "
            "another --learning_rate", data.shown, who, only,
        )  # fmt: skip
    return {"always": {"answer": baseline.answer, "scores": dict(baseline.scores)}} if baseline else {}


def _difference(data: EvaluatedData) -> str:
    """Returns a phrase for messages that states why the data is not the dev data."""
    name = metrics_file.name_of(data.id)
    if not data.dev or metrics_file.name_of(data.dev) != name:
        return "is not the run's dev data"
    then, now = (metrics_file.content_of(one)[0] for one in (data.dev, data.id))
    return (
        f"has changed since it became the run's dev data, or is another file with the same name ({then} then, "
        f"{now.removesuffix(' examples')} now)"
    )


def _record(output_dir: str, data: EvaluatedData, step: int, scores: Mapping[str, float], more: Mapping) -> None:
    """Adds a line to `metrics.jsonl`, unless the file already has the same scores for this data at this step."""
    known = metrics_file.read(output_dir)
    before = next((entry for entry in known if (entry["split"], entry["step"]) == (data.series, step)), {})
    is_known = all(
        math.isclose(before.get(name, math.inf), value, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
        for name, value in scores.items()
    )
    if not is_known:
        metrics_file.record(output_dir, data.series, step, {"data": data.id, **scores, **more})


def keep(
    output_dir: str,
    data: EvaluatedData,
    task: Task,
    name: str,
    split: Split,
    predictions: np.ndarray,
    scores: Mapping[str, float],
    step: int | None,
    is_new: bool = True,
) -> None:
    """Logs an evaluation, and writes its results to `metrics.jsonl`, `eval_results.txt` and the task's files.

    Args:
      output_dir: folder of the results.
      data: the evaluated data.
      task: the task that was evaluated.
      name: name of the split, "dev" or "test".
      split: the split that `Task.by_example` returned.
      predictions: the predictions that `Task.by_example` returned.
      scores: scores of the predictions.
      step: step of the weights; None for an ensemble, which has no `metrics.jsonl`.
      is_new: whether to log the evaluation and to write it to `metrics.jsonl`; false if this command has already done
        both.
    """
    if is_new:
        always = _announce(data, task, split, predictions, scores, step)
        if step is not None:
            _record(output_dir, data, step, scores, always)
    results = {f"eval_{metric}": value for metric, value in scores.items()}
    metrics_file.write_results(data.folder, results | ({} if step is None else {"global_step": step}))
    files = task.evaluation_predictions if data.is_dev else ()  # evaluations of other data have separate folders
    if files:
        prediction_files.set_aside(data.folder, task.fingerprint(name), task)
    task.keep_evaluation(data.folder, split, predictions, step, _PREFIXES[data.is_dev])
    if files:
        prediction_files.record(data.folder, task.fingerprint(name), files)
