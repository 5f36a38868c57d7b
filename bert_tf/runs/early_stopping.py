"""Finds the step at which early stopping ends training, after several evaluations without improvement."""

from bert_tf.runs.evaluations import Evaluations


def stopped_at(found: Evaluations) -> int | None:
    """Returns the step at which early stopping ended training; None if early stopping did not end training."""
    steps = list(found.scores)
    if not found.patience or not steps:
        return None
    return steps[-1] if len(steps) - 1 - steps.index(found.best_step) >= found.patience else None
