"""TensorBoard: metrics in groups, under the same names for training and evaluation."""

from collections.abc import Sequence

import orbit
import tensorflow as tf

from bert_tf.training import metrics


def manager(
    folder: str | None, global_step: tf.Variable, declared: Sequence[metrics.Metric] = ()
) -> orbit.utils.SummaryManager:
    """Makes a writer of metrics, for orbit's controller or to be called directly.

    Args:
      folder: where to write; None writes nothing.
      global_step: the step that metrics are written at.
      declared: the objective's metrics, which say their names in TensorBoard; one that is not declared keeps its own.
    """
    tags = {name: metric.tag or name for name, metric in metrics.by_name(declared).items()}

    def write(name, value, step):
        # orbit's own rate includes checkpoints and evaluations
        if name != "steps_per_second":
            tf.summary.scalar(tags.get(name, name), value, step=step)

    return orbit.utils.SummaryManager(folder, write, global_step=global_step)
