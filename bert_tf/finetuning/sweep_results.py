"""Writes and reads `results.json` in a sweep's folder: the trials, the metrics of each trial, and the best trial.

Paper: appendix A.3 (choice on the dev set).
"""

import dataclasses
import os
import statistics
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.runs.evaluations import rank

NAME = "results.json"
TRIALS = "trials"
# The settings that a sweep may vary, and their names in tables.
PRETRAINED, TRANSFERRED = "pretrained_steps", "transfer_layers"
TITLES = {
    PRETRAINED: "pre-training steps", TRANSFERRED: "layers transferred",
    "learning_rate": "learning rate", "train_batch_size": "batch size", "num_train_epochs": "epochs",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Trial:
    """A trial of a sweep: one training with one combination of settings."""

    name: str  # name of the trial's folder below `trials/`
    # the settings that the sweep varies, by the keys of `TITLES`. All restarts have the same values.
    combination: Mapping[str, float]
    restart: int  # number of this training among the trainings with the same settings, counted from 1
    # metrics of a finished trial on the dev data, the main metric first
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    error: str = ""  # why the training diverged; "" if it did not

    @property
    def is_trained(self) -> bool:
        return bool(self.scores or self.error)


@dataclasses.dataclass(frozen=True)
class Results:
    """The state of a sweep."""

    task: str
    trials: tuple[Trial, ...]  # the trials in the order of training
    higher_is_better: bool = True  # whether a higher value of the main metric is better

    @property
    def metric(self) -> str:
        """Name of the main metric; "" until the first trial is finished."""
        return next((next(iter(trial.scores)) for trial in self.trials if trial.scores), "")

    @property
    def best(self) -> Trial | None:
        """The finished trial with the best main metric, then the lowest loss; None if no trial is finished."""
        finished = [trial for trial in self.trials if trial.scores]
        return max(finished, key=lambda trial: rank(trial.scores, self.metric, self.higher_is_better), default=None)

    def combinations(self) -> list[dict]:
        """Summarizes the restarts of each combination, the best mean first. Returns a dict for each combination with a
        finished trial: the settings in `Trial.combination`; the number of `finished` trials; and mean, sample standard
        `deviation` (None for one trial) and `best` value of their main metric."""
        scores: dict[tuple, list[float]] = {}
        for trial in self.trials:
            if trial.scores:
                scores.setdefault(tuple(trial.combination.items()), []).append(trial.scores[self.metric])
        best = max if self.higher_is_better else min
        rows = [
            dict(combination) | {"finished": len(values), "mean": statistics.fmean(values),
                                 "deviation": statistics.stdev(values) if len(values) > 1 else None,
                                 "best": best(values)}
            for combination, values in scores.items()
        ]  # fmt: skip
        return sorted(rows, key=lambda row: row["mean"], reverse=self.higher_is_better)

    def best_by(self, name: str) -> list[tuple[int, float]]:
        """Returns each value of PRETRAINED or TRANSFERRED with its best combination's mean of the main metric."""
        rows = [row for row in self.combinations() if name in row]
        return sorted({row[name]: row["mean"] for row in reversed(rows)}.items())  # of each value, the best is last

    def table(self) -> list[list[str]]:
        """Returns a table: the header, then a row for each combination with a finished trial, the best first."""
        rows = self.combinations()
        names = [name for name in TITLES if any(name in row for row in rows)]
        head = [*map(TITLES.get, names), "trials", f"{self.metric} mean", "deviation", "best"]
        return [head, *(
            [*(f"{row[name]:g}" if name in row else "-" for name in (*names, "finished")),
             *("-" if row[name] is None else f"{row[name]:.4f}" for name in ("mean", "deviation", "best"))]
            for row in rows
        )]  # fmt: skip


def folder_of(folder: str, trial: Trial) -> str:
    """Returns the folder of a trial; `folder` is the sweep's folder."""
    return os.path.join(folder, TRIALS, trial.name)


def exists(folder: str) -> bool:
    return tf.io.gfile.exists(os.path.join(folder, NAME))


def read(folder: str) -> Results:
    path = os.path.join(folder, NAME)
    with storage.json_file(path, "give another folder", "does not belong to a sweep, or is damaged") as entries:
        trials = tuple(storage.of_entries(Trial, entry) for entry in entries["trials"])
        return Results(entries["task"], trials, bool(entries["higher_is_better"]))


def write(folder: str, results: Results) -> None:
    """Writes the results into a sweep's folder atomically."""
    best = results.best
    entries = dataclasses.asdict(results) | {
        "metric": results.metric,
        "best": best and {"trial": best.name, "folder": f"{TRIALS}/{best.name}", "scores": dict(best.scores)},
        "combinations": results.combinations(),
    }
    storage.write_json(os.path.join(folder, NAME), entries)


def best_folder(folder: str, allow_unfinished: bool) -> str:
    """Returns the folder of a sweep's best trial; if `folder` has no sweep, returns `folder`."""
    if not exists(folder):
        return folder
    results = read(folder)
    missing = sum(not trial.is_trained for trial in results.trials)
    if missing and not allow_unfinished:
        raise InputError(
            f"{folder}: {missing} of {len(results.trials)} trials of this sweep are not trained yet; run the "
            "sweep's command again to train them, or give --allow_unfinished to use the best trial so far"
        )
    if not results.best:
        raise InputError(f"{folder}: no trial of this sweep has succeeded; see {os.path.join(folder, NAME)}")
    return folder_of(folder, results.best)
