"""Writes and reads `results.json` in a sweep's folder: the trials, the metrics of each trial, and the best trial.

Paper: appendix A.3 (choice on the dev set).
"""

import dataclasses
import itertools
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence

import tensorflow as tf

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.runs import latest, run_checkpoints, run_record
from bert_tf.runs.evaluations import rank
from bert_tf.settings import FineTuningSettings

NAME = "results.json"
TRIALS = "trials"
PENDING, FINISHED, FAILED = "pending", "finished", "failed"
# Settings that differ between trials. Trials also differ in the restart and the initial checkpoint.
VARIED = ("learning_rate", "train_batch_size", "num_train_epochs")
PRETRAINED, TRANSFERRED = "pretrained_steps", "transfer_layers"
# Further settings that a sweep may vary, and their names in tables.
EXTRA = {PRETRAINED: "pre-training steps", TRANSFERRED: "layers transferred"}


@dataclasses.dataclass(frozen=True)
class Trial:
    """A trial of a sweep: one training with one combination of settings.

    Attributes:
      name: name of the trial's folder below `trials/`.
      learning_rate: see the flag.
      train_batch_size: see the flag.
      num_train_epochs: see the flag.
      restart: number of this training among the trainings with the same settings, counted from 1.
      random_seed: see the flag.
      state: PENDING, FINISHED, or FAILED if the training diverged.
      scores: metrics of a finished trial on the dev data, the main metric first.
      error: why the trial failed; "" if it did not fail.
      seconds: duration in seconds from the last start or resumption of the trial to its end; None before the end.
      pretrained_steps: step of the initial checkpoint; None if the trial starts from the command's `init_checkpoint`.
      transfer_layers: see the flag; None if the sweep does not vary this setting.
    """

    name: str
    learning_rate: float
    train_batch_size: int
    num_train_epochs: float
    restart: int
    random_seed: int
    state: str = PENDING
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    error: str = ""
    seconds: float | None = None
    pretrained_steps: int | None = None
    transfer_layers: int | None = None

    @property
    def varied(self) -> dict[str, float]:
        """The settings in `VARIED`; they do not include the restart and the settings in `EXTRA`."""
        return {name: getattr(self, name) for name in VARIED}

    @property
    def combination(self) -> dict[str, float]:
        """The settings in `VARIED` and in `EXTRA`; all restarts of a combination have the same values."""
        extra = {name: getattr(self, name) for name in EXTRA}
        return {name: value for name, value in extra.items() if value is not None} | self.varied


@dataclasses.dataclass(frozen=True)
class Results:
    """The state of a sweep.

    Attributes:
      task: name of the task.
      facts: the facts that all trials have in common, such as the model and the data; see `sweep.facts_of`.
      trials: the trials in the order of training.
      higher_is_better: whether a higher value of the main metric is better.
    """

    task: str
    facts: Mapping
    trials: tuple[Trial, ...]
    higher_is_better: bool = True

    @property
    def metric(self) -> str:
        """Name of the main metric; "" until the first trial is finished."""
        return next((next(iter(trial.scores)) for trial in self.trials if trial.scores), "")

    @property
    def best(self) -> Trial | None:
        """The finished trial with the best main metric; None if no trial is finished.

        If several trials have the best value, the trial with the lowest loss is chosen; if these losses are equal too,
        the first of these trials is chosen.
        """
        finished = [trial for trial in self.trials if trial.state == FINISHED]
        return max(finished, key=lambda trial: rank(trial.scores, self.metric, self.higher_is_better), default=None)

    def with_trial(self, changed: Trial) -> "Results":
        """Returns the results in which `changed` replaces the trial with the same name."""
        return dataclasses.replace(self, trials=tuple(changed if t.name == changed.name else t for t in self.trials))

    def combinations(self) -> list[dict]:
        """Summarizes the restarts of each combination.

        Returns:
          A dict for each combination, with these keys:

          - The names of the settings in `Trial.combination`.
          - "finished", "failed" and "pending": the numbers of these trials.
          - "mean", "deviation" and "best": mean, sample standard deviation and best value of the main metric of the
            finished trials. A value that cannot be computed is None.
        """
        groups: dict[tuple, list[Trial]] = {}
        for trial in self.trials:
            groups.setdefault(tuple(trial.combination.items()), []).append(trial)
        rows = []
        for varied, trials in groups.items():
            values = [trial.scores[self.metric] for trial in trials if trial.state == FINISHED]
            summary = {
                "mean": statistics.fmean(values) if values else None,
                "deviation": statistics.stdev(values) if len(values) > 1 else None,
                "best": (max if self.higher_is_better else min)(values, default=None),
            }
            counts = {state: sum(trial.state == state for trial in trials) for state in (FINISHED, FAILED, PENDING)}
            rows.append(dict(varied) | counts | summary)
        return rows

    def best_by(self, name: str) -> list[tuple[int, float]]:
        """Compares the values of a setting in `EXTRA`.

        Returns:
          Each value of the setting and the best mean of the main metric, sorted by value; [] if the sweep does not vary
          the setting. Each combination with this value has one mean, over its finished restarts.
        """
        best: dict[int, float] = {}
        choose = max if self.higher_is_better else min
        for row in self.combinations():
            if name in row and row["mean"] is not None:
                best[row[name]] = choose(best.get(row[name], row["mean"]), row["mean"])
        return sorted(best.items())


def planned_trials(settings: FineTuningSettings) -> list[Trial]:
    """Returns the trials of a sweep: the first restarts of all combinations, then the second restarts, and so on.

    Raises:
      InputError: `sweep_checkpoints` is true, but the folder of `init_checkpoint` has no numbered checkpoints.
    """
    trials = []
    for restart, steps, layers, values in itertools.product(
        range(settings.sweep_restarts), _pretrained_steps(settings), settings.transferred,
        itertools.product(*settings.grid.values()),
    ):  # fmt: skip
        varied = dict(zip(settings.grid, values, strict=True))
        rate, batch, epochs = (f"{varied[name]:.15g}" for name in VARIED)
        start = ("" if steps is None else f"step{steps}_") + ("" if layers is None else f"layers{layers}_")
        name = f"{start}lr{rate}_batch{batch}_epochs{epochs}_restart{restart + 1}"
        seed = settings.random_seed + restart
        extra = {PRETRAINED: steps, TRANSFERRED: layers}
        trials.append(Trial(name, **varied, restart=restart + 1, random_seed=seed, **extra))
    return trials


def _pretrained_steps(settings: FineTuningSettings) -> list[int | None]:
    """Returns the steps of the initial checkpoints; [None] if the only initial checkpoint is `init_checkpoint`."""
    if not settings.sweep_checkpoints:
        return [None]
    steps = sorted(latest.numbered(_pretrained_folder(settings)))
    if not steps or steps[0] < 0:
        raise InputError(
            f"--sweep_checkpoints: {settings.init_checkpoint} holds no numbered checkpoints; give the folder of a "
            "pre-training run (--keep_checkpoint_max makes this run keep more checkpoints)"
        )
    return steps


def _pretrained_folder(settings: FineTuningSettings) -> str:
    path = settings.init_checkpoint
    return path if tf.io.gfile.isdir(path) else os.path.dirname(path) or "."


def initial_checkpoint(settings: FineTuningSettings, trial: Trial) -> str:
    """Returns the checkpoint that a trial starts from."""
    if trial.pretrained_steps is None:
        return settings.init_checkpoint
    return run_checkpoints.at_step(_pretrained_folder(settings), trial.pretrained_steps)


def folder_of(folder: str, trial: Trial) -> str:
    """Returns the folder of a trial; `folder` is the sweep's folder."""
    return os.path.join(folder, TRIALS, trial.name)


def exists(folder: str) -> bool:
    """Returns whether a folder contains the results of a sweep."""
    return tf.io.gfile.exists(os.path.join(folder, NAME))


def refuse_lost(folder: str) -> None:
    """Refuses a sweep's folder that has trials but lacks its results.

    The results are written before the first trial, so a kill never leaves such a folder.

    Raises:
      InputError: the file with the results is missing.
    """
    trials = os.path.join(folder, TRIALS)
    names = tf.io.gfile.listdir(trials) if tf.io.gfile.isdir(trials) and not exists(folder) else []
    if any(run_record.exists(os.path.join(trials, name)) for name in names):
        raise InputError(
            f"{os.path.join(folder, NAME)}: no such file, although {trials} has trials of a sweep; copy the folder "
            f"again, or delete {trials} to train the trials again"
        )


def read(folder: str) -> Results:
    """Reads the results of a sweep's folder.

    Raises:
      InputError: the file is missing or damaged.
    """
    path = os.path.join(folder, NAME)
    if not exists(folder):
        raise InputError(f"{path}: no such file; give the --output_dir of a sweep")
    with storage.json_file(path, "give another folder", "does not belong to a sweep, or is damaged") as entries:
        trials = tuple(Trial(**entry) for entry in entries["trials"])
        found = Results(entries["task"], dict(entries["facts"]), trials, bool(entries["higher_is_better"]))
        for trial in trials:
            if trial.state == FINISHED and not math.isfinite(trial.scores[found.metric]):
                raise ValueError(f"{found.metric} of {trial.name} is not finite")
        return found


def write(folder: str, results: Results) -> None:
    """Writes the results into a sweep's folder atomically."""
    best = results.best
    entries = {
        "task": results.task,
        "metric": results.metric,
        "higher_is_better": results.higher_is_better,
        "best": best and {"trial": best.name, "folder": f"{TRIALS}/{best.name}", "scores": dict(best.scores)},
        "combinations": results.combinations(),
        "by_pretrained_steps": [{"steps": steps, "mean": mean} for steps, mean in results.best_by(PRETRAINED)],
        "by_transfer_layers": [{"layers": layers, "mean": mean} for layers, mean in results.best_by(TRANSFERRED)],
        "trials": [dataclasses.asdict(trial) for trial in results.trials],
        "facts": results.facts,
    }
    storage.write_text(os.path.join(folder, NAME), json.dumps(entries, indent=2) + "\n")


def best_folder(folder: str, allow_unfinished: bool) -> str:
    """Returns the folder of a sweep's best trial; if `folder` has no sweep, returns `folder`.

    Args:
      folder: folder of a run or of a sweep.
      allow_unfinished: whether the sweep may have trials that are not trained yet.

    Raises:
      InputError: the sweep is not finished, all of its trials failed, or its results are missing.
    """
    refuse_lost(folder)
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
    extra = [name for name in EXTRA if any(name in trial.combination for trial in results.trials)]
    scores = [f"{results.metric} mean", "deviation", "best"]
    head = [*map(EXTRA.get, extra), "learning rate", "batch size", "epochs", "trials", *scores, "failed"]
    rows = sorted(results.combinations(), key=lambda row: math.inf if row["mean"] is None else sign * row["mean"])
    return [head, *([*(f"{row.get(name, '-')}" for name in extra), *_cells(row)] for row in rows)]


def _cells(row: Mapping) -> list[str]:
    scores = ["-" if row[name] is None else f"{row[name]:.4f}" for name in ("mean", "deviation", "best")]
    return [*(f"{row[name]:g}" for name in VARIED), str(row[FINISHED]), *scores, str(row[FAILED])]


def text_of(rows: Sequence[Sequence[str]]) -> str:
    """Formats a table as text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
