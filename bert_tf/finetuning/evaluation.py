"""Runs a model over all rows of a split, for evaluation and for prediction."""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from bert_tf.core.progress_bar import ProgressBar
from bert_tf.finetuning.batches import row_columns
from bert_tf.finetuning.model import FineTuningObjective
from bert_tf.training.batch_parts import side_by_side


def evaluate_rows(
    objective: FineTuningObjective,
    prediction: Callable[[tf.Tensor, Mapping[str, tf.Tensor]], tf.Tensor],
    strategy: tf.distribute.Strategy,
    make_batches: Callable[[tf.distribute.InputContext], tf.data.Dataset],
    num_rows: int,
    parts: int = 1,
    what: str = "predicting",
) -> tuple[np.ndarray, dict[str, float]]:
    """Computes the predictions and the mean loss of all rows.
    `prediction`: function that converts logits and a batch to predictions; see `Task.prediction`.
    `make_batches`: function that returns the batches of a worker; see `batches.row_batches`.
    `num_rows`: number of rows, N.
    `parts`: number of parts of a per-replica batch that are computed at the same time; see `batch_parts`.
    Returns the predictions [N, ...] in the order of the rows, and the mean loss as "loss". If labels are unknown, the
    loss has no meaning. There is no loss if no row has a weight, or if the loss compares the rows of a batch."""
    if objective.evaluation_step is None:
        objective.evaluation_step = _make_step(objective, prediction, strategy, parts)
    result, loss, weight = None, 0.0, 0.0
    with ProgressBar(what, num_rows, "rows", compiles=True) as shown:
        for batch in strategy.distribute_datasets_from_function(make_batches):
            row_ids, predictions, losses, weights = (values.numpy() for values in objective.evaluation_step(batch))
            if result is None:
                result = np.zeros((num_rows, *predictions.shape[1:]), predictions.dtype)
            real = row_ids < num_rows
            result[row_ids[real]] = predictions[real]
            loss, weight = loss + float(losses.sum()), weight + float(weights.sum())
            shown.update(int(real.sum()))
    return result, {"loss": loss / weight} if weight and not objective.couples_rows else {}


def _make_step(
    objective: FineTuningObjective, prediction: Callable, strategy: tf.distribute.Strategy, parts: int
) -> Callable:
    """Returns a step function, which is traced once and used for all evaluations and predictions of an objective."""

    # This function has no Python control flow, and AutoGraph's analysis would take half of the tracing time.
    @tf.function(autograph=False)
    def step(batch):
        def of_part(local):
            logits = objective.model(local)["logits"]
            loss = objective.weighted_sums(logits, local)["loss"]
            weight = objective.denominators(local)["loss"]["loss"]
            rows = row_columns(local)
            return rows["row_ids"], prediction(logits, rows), loss[tf.newaxis], weight[tf.newaxis]

        @tf.autograph.experimental.do_not_convert
        def on_replica(local):
            if parts == 1:
                return of_part(local)
            results = zip(*side_by_side(of_part, local, parts), strict=True)
            return tuple(tf.concat(values, axis=0) for values in results)

        return [strategy.gather(values, axis=0) for values in strategy.run(on_replica, args=(batch,))]

    return step
