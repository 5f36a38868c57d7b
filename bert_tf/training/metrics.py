"""Declarations of metrics: the name, the derivation and the appearance of each metric.

An objective declares the metrics of its task, and `TRAINING` declares the metrics of every training run. The trainer,
the progress line, TensorBoard and the report use these declarations, and contain no code for individual metrics.
"""

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from bert_tf.core.errors import InputError

_LARGEST_EXPONENT = 88.0  # the exponential of 89 overflows float32


class NotFinite(InputError):
    """Training diverged: a loss, a gradient, a weight or an evaluation is not finite."""


class Form(enum.Enum):
    """The format of a metric's value in texts for people."""

    NUMBER = "number"  # "6.02", "41.2k"
    FRACTION = "fraction"  # "0.123" on the progress line, "12.3%" in the report
    PERCENT = "percent"  # "12%" on the progress line, "12.3%" in the report
    RATE = "rate"  # "41.2k tok/s": the short name is the unit


def perplexity(losses: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the exponential of one mean loss, float32 []; the result is finite for every finite loss."""
    (loss,) = losses
    return tf.exp(tf.minimum(loss, _LARGEST_EXPONENT))


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric and its appearance."""

    name: str  # name in `metrics.jsonl` and `eval_results.txt`
    short_name: str = ""  # name on the progress line; if it is "", the progress line omits the metric
    group: str = ""  # name of the metric's group; the progress line shows metrics of one group next to each other
    tag: str = ""  # name in TensorBoard; "" means `name`
    title: str = ""  # title of the curve in the report; if it is "", the report has no curve of the metric
    form: Form = Form.NUMBER  # how the value is written
    higher_is_better: bool = False  # whether the best evaluation is the one with the highest value
    log_scale: bool = False  # whether the curve has a logarithmic axis
    from_zero: bool = False  # whether the axis of the curve begins at 0
    # whether the report states the metric in a line of text, under its title, instead of a curve
    is_speed: bool = False
    is_only_evaluated: bool = False  # whether evaluations compute the metric, but training does not
    # names of the metrics from which `derive` computes this metric; () if this metric is measured
    derived_from: tuple[str, ...] = ()
    # function that computes the metric from the available values of `derived_from`, float32 [] each. The values are
    # means over the whole loop or evaluation, since a mean of exponentials is not the exponential of the mean.
    derive: Callable[[Sequence[tf.Tensor]], tf.Tensor] | None = None

    @property
    def is_trained(self) -> bool:
        """Whether each training step measures the metric."""
        return not (self.derived_from or self.is_only_evaluated)


TRAINING = (
    Metric("learning_rate", "lr", "learning_rate", "optimizer/learning_rate", "learning rate", from_zero=True),
    Metric(
        "gradient_norm", "grad", "gradient_norm", "optimizer/gradient_norm", "gradient norm, before clipping",
        log_scale=True,
    ),
    Metric(
        "sequences_per_second", "seq/s", "speed", "speed/sequences_per_second", "sequences per second",
        form=Form.RATE, higher_is_better=True, is_speed=True,
    ),
    Metric(
        "tokens_per_second", "tok/s", "speed", "speed/tokens_per_second", "tokens per second without padding",
        form=Form.RATE, higher_is_better=True, is_speed=True,
    ),
    Metric(
        "model_flop_utilization", "mfu", "utilization", "speed/model_flop_utilization", "model FLOP utilization",
        form=Form.PERCENT, higher_is_better=True, is_speed=True,
    ),
)  # fmt: skip


def by_name(declared: Sequence[Metric]) -> dict[str, Metric]:
    """Maps names to metrics: first the metrics of an objective, then the metrics of every training run."""
    return {metric.name: metric for metric in (*declared, *TRAINING)}


def require_finite(values: Mapping[str, float], checkpoint: str) -> None:
    """Raises an error if a metric of an evaluation is not finite, since the evaluated weights are then unusable.
    Raises NotFinite: names the metrics."""
    bad = [name for name, value in values.items() if not math.isfinite(value)]
    if bad:
        raise NotFinite(
            f"{checkpoint} is unusable: its evaluation is not finite ({', '.join(bad)}); training diverged, or the "
            "evaluated data is damaged; use an earlier checkpoint, or lower --learning_rate in another --output_dir"
        )


def add_derived(values: Mapping[str, tf.Tensor], declared: Sequence[Metric]) -> dict[str, tf.Tensor]:
    """Adds derived metrics to measured metrics.
    `values`: metrics by name, float32 [] each.
    Returns all metrics by name: first the declared metrics in the order of `declared`, then the other metrics."""
    results = {}
    for metric in declared:
        sources = [values[name] for name in metric.derived_from if name in values]
        if sources:
            results[metric.name] = metric.derive(sources)
        elif metric.name in values:
            results[metric.name] = values[metric.name]
    return results | {name: value for name, value in values.items() if name not in results}
