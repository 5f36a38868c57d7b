"""Early stopping: when training ends because no evaluation was better for a while."""

from bert_tf.runs.evaluations import Evaluations


def stopped_at(found: Evaluations) -> int | None:
    """Returns the step at which the patience ended; None if it has not, or if there is no early stopping."""
    steps = list(found.scores)
    if not found.patience or not steps:
        return None
    return steps[-1] if len(steps) - 1 - steps.index(found.best_step) >= found.patience else None
