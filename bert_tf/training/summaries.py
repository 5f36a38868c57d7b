"""Writes metrics to TensorBoard, in groups and under the same names in training and in evaluation."""

from collections.abc import Mapping, Sequence

import orbit
import tensorflow as tf

from bert_tf.training import metrics


def manager(
    folder: str | None, global_step: tf.Variable, declared: Sequence[metrics.Metric] = ()
) -> orbit.utils.SummaryManager:
    """Returns a writer of metrics, for orbit's controller or for direct calls.
    `folder`: folder of the event files; None writes no files.
    `declared`: the objective's metrics, which define names for TensorBoard; other metrics keep their own names."""
    tags = _tags(declared)

    def write(name, value, step):
        # Omit orbit's own rate of steps, because it includes the time of checkpoints and evaluations.
        if name != "steps_per_second":
            tf.summary.scalar(tags.get(name, name), value, step=step)

    return orbit.utils.SummaryManager(folder, write, global_step=global_step)


def write(folder: str, declared: Sequence[metrics.Metric], values: Mapping[str, float], step: int) -> None:
    """Writes the metrics of one evaluation; see `manager`."""
    tags = _tags(declared)
    with tf.summary.create_file_writer(folder).as_default(step):
        for name, value in values.items():
            tf.summary.scalar(tags.get(name, name), value)


def _tags(declared: Sequence[metrics.Metric]) -> dict[str, str]:
    return {name: metric.tag or name for name, metric in metrics.by_name(declared).items()}
