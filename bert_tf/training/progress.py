"""What a person sees of a run: a bar or lines while it lasts, and figures kept for the curves.

Each loop of training and each evaluation adds a line to `metrics.jsonl` in the run's folder, or to
`metrics-eval.jsonl` where another process trains.
"""

import json
import math
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence

import tensorflow as tf
import tqdm
from absl import logging

from bert_tf.training import metrics
from bert_tf.training.metrics import Form, Metric
from tfrecords import writer

METRICS_NAME = "metrics.jsonl"
# What a process that only evaluates leaves; another one that trains may be writing the one above.
EVALUATOR_METRICS_NAME = "metrics-eval.jsonl"
_SECONDS_BETWEEN_LINES = 10.0
# "1.20e-04" says no more than "1.2e-4"
_ZEROS = re.compile(r"\.?0*e-0?")


class Progress:
    """Shows training: a tqdm bar on a terminal, else a line every ten seconds; keeps every loop's figures.

    Args:
      output_dir: where `metrics.jsonl` stands.
      first_step: step that training starts from.
      last_step: step that it ends at.
      facts: what is kept beside the metrics of where and how is trained.
      declared: the objective's metrics.
    """

    def __init__(
        self,
        output_dir: str,
        first_step: int,
        last_step: int,
        facts: Mapping | None = None,
        declared: Sequence[Metric] = (),
    ):
        self._output_dir, self._declared = output_dir, declared
        record(output_dir, "start", first_step, facts or {})
        self._start = self._last_line = time.monotonic()
        self._first_step, self._last_step = first_step, last_step
        self._bar = tqdm.tqdm(
            total=last_step, initial=first_step, unit="step", desc="train", dynamic_ncols=True,
            disable=not sys.stderr.isatty(),
        )  # fmt: skip

    def update(self, step: int, figures: Mapping[str, float]) -> None:
        """Reports a loop of training.

        Args:
          step: steps done so far.
          figures: name to value, averaged over the loop.
        """
        record(self._output_dir, "train", step, figures)
        self._bar.update(step - self._bar.n)
        self._bar.set_postfix_str(describe(figures, self._declared))
        now = time.monotonic()
        if self._bar.disable and (now - self._last_line > _SECONDS_BETWEEN_LINES or step == self._last_step):
            rate = (step - self._first_step) / (now - self._start)
            left = (self._last_step - step) / rate
            described = describe(figures, self._declared)
            logging.info("step %d/%d  %s  %s left", step, self._last_step, described, _clock(left))
            self._last_line = now

    def close(self) -> None:
        """Ends the bar."""
        self._bar.close()


def describe(figures: Mapping[str, float], declared: Sequence[Metric] = ()) -> str:
    """Writes metrics on one line of about a hundred columns.

    Args:
      figures: name to value.
      declared: the objective's metrics, which say the short names; a metric that is not declared keeps its own name.
    """
    known, groups = metrics.by_name(declared), {}
    for name, metric in known.items():
        if name in figures and metric.short_name:
            groups.setdefault(metric.group, []).append(_in_words(metric, figures[name]))
    others = [f"{name} {value:.4g}" for name, value in figures.items() if name not in known]
    return " | ".join(" ".join(part) for part in (*groups.values(), others) if part)


def _in_words(metric: Metric, value: float) -> str:
    """A value as people say it: "acc 0.123", "lr 1e-4", "41k tok/s", "mfu 31%"."""
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
    """Three digits, thousands and beyond by letters: "41.2k"; `space` stands before the letter."""
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if 0.9995 * unit <= abs(value) < 1e15:
            return f"{value / unit:#.3g}".rstrip(".") + space + letter
    return f"{value:.3g}"


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds: "1:02:03", "2:03"."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def record(output_dir: str, split: str, step: int, figures: Mapping, name: str = METRICS_NAME) -> None:
    """Adds a line to a file of figures.

    Args:
      output_dir: the run's folder.
      split: "train", "start" where a training starts or goes on, or the name of the evaluated data.
      step: steps trained so far.
      figures: name to value.
      name: of the file. No two processes may write the same one.
    """
    tf.io.gfile.makedirs(output_dir)
    path = os.path.join(output_dir, name)
    line = json.dumps({"split": split, "step": step, **figures}) + "\n"
    if _is_torn(path):
        line = "\n" + line
    with tf.io.gfile.GFile(path, "a") as file:
        file.write(line)


def _is_torn(path: str) -> bool:
    """Whether a kill left half a line at the end of a file."""
    size = tf.io.gfile.stat(path).length if tf.io.gfile.exists(path) else 0
    if not size:
        return False
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(size - 1)
        return file.read(1) != b"\n"


def read(output_dir: str, *names: str) -> list[dict]:
    """The lines that `record` left, without those that no longer hold.

    Where a run was resumed, what was trained after its checkpoint was trained again; where a checkpoint was
    evaluated again, the later evaluation holds. A line that another process is just writing is passed over.

    Args:
      output_dir: the run's folder.
      *names: files, as far as they are there; later ones are taken as written later.

    Returns:
      The lines' entries, those of each split by their steps.
    """
    by_split: dict[str, dict[int, dict]] = {}
    for name in names:
        path = os.path.join(output_dir, name)
        if not tf.io.gfile.exists(path):
            continue
        with tf.io.gfile.GFile(path) as file:
            lines = file.read().split("\n")
        for entry in filter(None, map(_parsed, lines)):
            split, step = entry["split"], entry["step"]
            if split == "start":
                by_split["train"] = {s: e for s, e in by_split.get("train", {}).items() if s <= step}
            by_split.setdefault(split, {})[step] = entry
    return [steps[step] for steps in by_split.values() for step in sorted(steps)]


def _parsed(line: str) -> dict | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and {"split", "step"} <= entry.keys() else None


def write_results(output_dir: str, results: dict[str, float]) -> None:
    """Writes `eval_results.txt`, a "name = value" a line, sorted, as the original does."""
    lines = [f"{name} = {value}\n" for name, value in sorted(results.items())]
    writer.write_text(os.path.join(output_dir, "eval_results.txt"), "".join(lines))
