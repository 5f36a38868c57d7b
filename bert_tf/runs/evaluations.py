"""Records the evaluations during training. These evaluations determine the best checkpoint.

Each evaluation atomically replaces `evaluations.json`. The best checkpoint and the decision to stop early depend
only on this file, so both agree with the evaluations even if the run is killed.
"""

import dataclasses
import os
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.core import storage

NAME = "evaluations.json"


@dataclasses.dataclass(frozen=True)
class Evaluations:
    """The results of a run's evaluations on its dev data."""

    metric: str = ""  # name of the main metric; "" before the first evaluation
    higher_is_better: bool = True  # whether a higher value of the main metric is better
    # number of consecutive evaluations without improvement that ends training; 0 turns off early stopping
    patience: int = 0
    data: str = ""  # name, number of examples and hash of the dev data; "" if the run has no dev data yet
    # maps the step of each evaluated checkpoint to the metrics by name; the steps are in ascending order
    scores: Mapping[int, Mapping[str, float]] = dataclasses.field(default_factory=dict)

    @property
    def best_step(self) -> int | None:
        """The step with the highest `rank`, the earliest if several are equal; None before the first evaluation."""
        ranks = {step: rank(values, self.metric, self.higher_is_better) for step, values in self.scores.items()}
        return max(ranks, key=ranks.__getitem__, default=None)

    @property
    def stopped_at(self) -> int | None:
        """The step at which early stopping ended training; None if early stopping did not end training."""
        steps = list(self.scores)
        if not self.patience or not steps:
            return None
        return steps[-1] if len(steps) - 1 - steps.index(self.best_step) >= self.patience else None

    def up_to(self, step: int) -> "Evaluations":
        """Returns the evaluations up to a step; their best step is the best one until then."""
        return dataclasses.replace(self, scores={s: values for s, values in self.scores.items() if s <= step})


def rank(scores: Mapping[str, float], metric: str, higher_is_better: bool) -> tuple[float, float]:
    """Returns the sort key of an evaluation: first the metric, then the loss; better evaluations have larger keys."""
    return (scores[metric] if higher_is_better else -scores[metric]), -scores.get("loss", 0.0)


def exists(folder: str) -> bool:
    return tf.io.gfile.exists(os.path.join(folder, NAME))


def read(folder: str) -> Evaluations:
    """Reads the evaluations in a run's folder; the result is empty if the run has no dev data."""
    if not exists(folder):
        return Evaluations()
    remedy = "copy the run's folder again, or train in a new folder"
    with storage.json_file(os.path.join(folder, NAME), remedy) as entries:
        scores = {int(entry["step"]): entry["scores"] for entry in entries["evaluations"]}
        metric, data = entries["metric"], str(entries["data"])
        if any(not isinstance(values[metric], (int, float)) for values in scores.values()):
            raise TypeError(f"{metric} is not a number")
        ascending = dict(sorted(scores.items()))
        return Evaluations(metric, bool(entries["higher_is_better"]), int(entries["patience"]), data, ascending)


def write(folder: str, evaluations: Evaluations) -> None:
    """Writes the evaluations into a run's folder, atomically."""
    entries = {
        "metric": evaluations.metric,
        "higher_is_better": evaluations.higher_is_better,
        "patience": evaluations.patience,
        "data": evaluations.data,
        "best_step": evaluations.best_step,  # for people; programs compute the step from the scores
        "evaluations": [{"step": step, "scores": dict(values)} for step, values in evaluations.scores.items()],
    }
    storage.write_json(os.path.join(folder, NAME), entries)
