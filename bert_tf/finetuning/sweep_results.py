"""Writes and reads `results.json` in a sweep's folder: the trials, the metrics of each trial, and the best trial.

Paper: appendix A.3 (choice on the dev set).
"""

import dataclasses
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence

import tensorflow as tf

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.runs.evaluations import rank

NAME = "results.json"
TRIALS = "trials"
PENDING, FINISHED, FAILED = "pending", "finished", "failed"
# The settings that a sweep may vary, and their names in tables.
PRETRAINED, TRANSFERRED = "pretrained_steps", "transfer_layers"
TITLES = {
    PRETRAINED: "pre-training steps", TRANSFERRED: "layers transferred",
    "learning_rate": "learning rate", "train_batch_size": "batch size", "num_train_epochs": "epochs",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Trial:
    """A trial of a sweep: one training with one combination of settings.

    Attributes:
      name: name of the trial's folder below `trials/`.
      combination: the settings that the sweep varies, by the keys of `TITLES`. All restarts have the same values.
      restart: number of this training among the trainings with the same settings, counted from 1.
      scores: metrics of a finished trial on the dev data, the main metric first.
      error: why the trial failed; "" if it did not fail.
      seconds: duration in seconds from the last start or resumption of the trial to its end; None before the end.
    """

    name: str
    combination: Mapping[str, float]
    restart: int
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    error: str = ""
    seconds: float | None = None

    @property
    def state(self) -> str:
        """PENDING, FINISHED, or FAILED if the training diverged."""
        return FINISHED if self.scores else FAILED if self.error else PENDING


@dataclasses.dataclass(frozen=True)
class Results:
    """The state of a sweep.

    Attributes:
      trials: the trials in the order of training.
      higher_is_better: whether a higher value of the main metric is better.
    """

    task: str
    trials: tuple[Trial, ...]
    higher_is_better: bool = True

    @property
    def metric(self) -> str:
        """Name of the main metric; "" until the first trial is finished."""
        return next((next(iter(trial.scores)) for trial in self.trials if trial.scores), "")

    @property
    def best(self) -> Trial | None:
        """The finished trial with the best main metric, then the lowest loss; None if no trial is finished."""
        finished = [trial for trial in self.trials if trial.scores]
        return max(finished, key=lambda trial: rank(trial.scores, self.metric, self.higher_is_better), default=None)

    def with_trial(self, changed: Trial) -> "Results":
        """Returns the results in which `changed` replaces the trial with the same name."""
        return dataclasses.replace(self, trials=tuple(changed if t.name == changed.name else t for t in self.trials))

    def groups(self) -> list[tuple[dict[str, float], list[Trial], list[float]]]:
        """Returns each combination with its trials, and with the main metric of its finished trials."""
        groups: dict[tuple, list[Trial]] = {}
        for trial in self.trials:
            groups.setdefault(tuple(trial.combination.items()), []).append(trial)
        return [(dict(key), group, [t.scores[self.metric] for t in group if t.scores]) for key, group in groups.items()]

    def combinations(self) -> list[dict]:
        """Summarizes the restarts of each combination.

        Returns:
          A dict for each combination, with these keys:

          - The names of the settings in `Trial.combination`.
          - "finished", "failed" and "pending": the numbers of these trials.
          - "mean", "deviation" and "best": mean, sample standard deviation and best value of the main metric of the
            finished trials. A value that cannot be computed is None.
        """
        rows = []
        for combination, trials, values in self.groups():
            counts = {state: sum(trial.state == state for trial in trials) for state in (FINISHED, FAILED, PENDING)}
            summary = {
                "mean": statistics.fmean(values) if values else None,
                "deviation": statistics.stdev(values) if len(values) > 1 else None,
                "best": (max if self.higher_is_better else min)(values, default=None),
            }
            rows.append(combination | counts | summary)
        return rows

    def best_by(self, name: str) -> list[tuple[int, float]]:
        """Returns each value of PRETRAINED or TRANSFERRED with its best combination's mean of the main metric."""
        best: dict[int, float] = {}
        choose = max if self.higher_is_better else min
        for row in self.combinations():
            if name in row and row["mean"] is not None:
                best[row[name]] = choose(best.get(row[name], row["mean"]), row["mean"])
        return sorted(best.items())


def folder_of(folder: str, trial: Trial) -> str:
    """Returns the folder of a trial; `folder` is the sweep's folder."""
    return os.path.join(folder, TRIALS, trial.name)


def exists(folder: str) -> bool:
    return tf.io.gfile.exists(os.path.join(folder, NAME))


def read(folder: str) -> Results:
    path = os.path.join(folder, NAME)
    with storage.json_file(path, "give another folder", "does not belong to a sweep, or is damaged") as entries:
        trials = tuple(Trial(**entry) for entry in entries["trials"])
        return Results(entries["task"], trials, bool(entries["higher_is_better"]))


def write(folder: str, results: Results) -> None:
    """Writes the results into a sweep's folder atomically."""
    best = results.best
    entries = {
        "task": results.task,
        "metric": results.metric,
        "higher_is_better": results.higher_is_better,
        "best": best and {"trial": best.name, "folder": f"{TRIALS}/{best.name}", "scores": dict(best.scores)},
        "combinations": results.combinations(),
        "trials": [dataclasses.asdict(trial) for trial in results.trials],
    }
    storage.write_text(os.path.join(folder, NAME), json.dumps(entries, indent=2) + "\n")


def best_folder(folder: str, allow_unfinished: bool) -> str:
    """Returns the folder of a sweep's best trial; if `folder` has no sweep, returns `folder`."""
    if not exists(folder):
        return folder
    results = read(folder)
    pending = sum(trial.state == PENDING for trial in results.trials)
    if pending and not allow_unfinished:
        raise InputError(
            f"{folder}: {pending} of {len(results.trials)} trials of this sweep are not trained yet; run the "
            "sweep's command again to train them, or give --allow_unfinished to use the best trial so far"
        )
    if not results.best:
        raise InputError(f"{folder}: no trial of this sweep has succeeded; see {os.path.join(folder, NAME)}")
    return folder_of(folder, results.best)


def table(results: Results) -> list[list[str]]:
    """Returns a table: the header, then a row for each combination of settings. The best combination comes first."""
    sign = -1 if results.higher_is_better else 1
    rows = sorted(results.combinations(), key=lambda row: math.inf if row["mean"] is None else sign * row["mean"])
    names = [name for name in TITLES if any(name in row for row in rows)]
    head = [*map(TITLES.get, names), "trials", f"{results.metric} mean", "deviation", "best", "failed"]
    return [head, *([*(f"{row[name]:g}" if name in row else "-" for name in names), *_cells(row)] for row in rows)]


def _cells(row: Mapping) -> list[str]:
    scores = ["-" if row[name] is None else f"{row[name]:.4f}" for name in ("mean", "deviation", "best")]
    return [str(row[FINISHED]), *scores, str(row[FAILED])]


def text_of(rows: Sequence[Sequence[str]]) -> str:
    """Formats a table as text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
