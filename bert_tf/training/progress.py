"""Shows the progress of training: a bar on a terminal, or log lines every ten seconds and at each tenth of a run."""

import math
import re
import time
from collections.abc import Mapping, Sequence

from absl import logging

from bert_tf.core.progress_bar import SECONDS_BETWEEN_LINES, ProgressBar
from bert_tf.training import metrics, metrics_file
from bert_tf.training.metrics import Form, Metric

# Matches superfluous zeros around the "e" of a number: "1.20e-04" becomes "1.2e-4".
_ZEROS = re.compile(r"\.?0*e-0?")


class TrainingProgress:
    """Shows the progress of training, and adds the metrics of every loop to `metrics.jsonl`.
    `output_dir`: the folder of `metrics.jsonl`.
    `first_step`: number of steps before this start of the run.
    `facts`: facts about this start of the run, which are recorded in `metrics.jsonl`."""

    def __init__(
        self,
        output_dir: str,
        first_step: int,
        last_step: int,
        facts: Mapping | None = None,
        declared: Sequence[Metric] = (),
    ):
        self._output_dir, self._last_step, self._declared = output_dir, last_step, declared
        metrics_file.record(output_dir, metrics_file.START, first_step, facts or {})
        self._bar = ProgressBar("train", last_step, "steps", first_step, compiles=True, leave=True)
        self._last_shown = time.monotonic()
        self._tenths = 10 * first_step // last_step  # log a line per tenth: a run may end within ten seconds

    def update(self, step: int, values: Mapping[str, float]) -> None:
        """Reports a loop of training.
        `step`: number of completed steps.
        `values`: metrics by name, averaged over the loop."""
        metrics_file.record(self._output_dir, metrics_file.TRAIN, step, values)
        self.show(step, values)

    def end_compilation(self, step: int) -> None:
        """Marks the end of the first step, which includes compilation, and starts to estimate the remaining time."""
        self._bar.end_compilation(step - self._bar.done)

    @property
    def is_due(self) -> bool:
        """Whether the last output is at least ten seconds old."""
        return time.monotonic() - self._last_shown > SECONDS_BETWEEN_LINES

    def show(self, step: int, values: Mapping[str, float]) -> None:
        """Shows the metrics of a loop or of a part of a loop; `update` also records the metrics."""
        self._last_shown = time.monotonic()
        described = describe(values, self._declared)
        before, self._tenths = self._tenths, 10 * step // self._last_step
        if self._bar.advance(step - self._bar.done, described, is_last=self._tenths > before):
            left = f", {self._bar.time_left} left" if self._bar.time_left else ""
            logging.info("step %d/%d%s  %s", step, self._last_step, left, described)

    def close(self) -> None:
        self._bar.close()


def describe(values: Mapping[str, float], declared: Sequence[Metric] = ()) -> str:
    """Formats metrics as one line of about a hundred columns.
    `declared`: the objective's metrics, which define short names; other metrics are shown with their full names."""
    by_name, groups = metrics.by_name(declared), {}
    for name, metric in by_name.items():
        if name in values and metric.short_name:
            groups.setdefault(metric.group, []).append(_in_words(metric, values[name]))
    others = [f"{name} {value:.4g}" for name, value in values.items() if name not in by_name]
    return " | ".join(" ".join(part) for part in (*groups.values(), others) if part)


def _in_words(metric: Metric, value: float) -> str:
    """Formats a metric with its short name: "acc 0.123", "lr 1e-4", "41k tok/s", "mfu 31%"."""
    short = metric.short_name
    if not math.isfinite(value):
        return f"{short} {value}"
    if metric.form is Form.RATE:
        return f"{abbreviated(value)} {short}"
    if metric.form is Form.PERCENT:
        return f"{short} {value:.{0 if value >= 0.1 else 1}%}"
    if metric.form is Form.FRACTION:
        return f"{short} {value:.3f}"
    if 0 < value < 1e-3:
        return f"{short} {_ZEROS.sub('e-', f'{value:.2e}')}"
    return f"{short} {abbreviated(value)}"


def abbreviated(value: float, space: str = "") -> str:
    """Formats a number with three digits and a unit letter, such as "41.2k"; `space` is inserted before the letter."""
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if 0.9995 * unit <= abs(value) < 1e15:
            return f"{value / unit:#.3g}".rstrip(".") + space + letter
    return f"{value:.3g}"
