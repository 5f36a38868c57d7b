"""What a person sees of a run: a bar or lines while it lasts, and figures kept for the curves.

Each loop of training and each evaluation adds a line to `metrics.jsonl` in the run's folder.
"""

import json
import math
import os
import sys
import time
from collections.abc import Mapping

import tensorflow as tf
import tqdm
from absl import logging

from tfrecords import writer
from tfrecords.errors import InputError

METRICS_NAME = "metrics.jsonl"
_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Shows training: a tqdm bar on a terminal, else a line every ten seconds; keeps every loop's figures.

    Args:
      output_dir: where `metrics.jsonl` stands.
      first_step: step that training starts from.
      last_step: step that it ends at.
    """

    def __init__(self, output_dir: str, first_step: int, last_step: int):
        self._output_dir = output_dir
        self._start = self._last_line = time.monotonic()
        self._first_step, self._last_step = first_step, last_step
        self._bar = tqdm.tqdm(
            total=last_step, initial=first_step, unit="step", desc="train", disable=not sys.stderr.isatty()
        )

    def update(self, step: int, figures: Mapping[str, float]) -> None:
        """Reports a loop of training.

        Args:
          step: steps done so far.
          figures: name to value, averaged over the loop.

        Raises:
          InputError: a figure is not finite: the weights are beyond repair.
        """
        record(self._output_dir, "train", step, figures)
        self._bar.update(step - self._bar.n)
        self._bar.set_postfix_str(describe(figures))
        now = time.monotonic()
        if self._bar.disable and (now - self._last_line > _SECONDS_BETWEEN_LINES or step == self._last_step):
            rate = (step - self._first_step) / (now - self._start)
            left = (self._last_step - step) / rate
            logging.info(
                "step %d/%d  %s  %.3g steps/s  %d:%02d left",
                step, self._last_step, describe(figures), rate, left // 60, left % 60,
            )  # fmt: skip
            self._last_line = now
        for name, value in figures.items():
            if not math.isfinite(value):
                raise InputError(
                    f"{name} is {value} at or before step {step}: training diverged; the checkpoints saved before "
                    "are whole; lower --learning_rate or raise the warm-up, in another --output_dir"
                )

    def close(self) -> None:
        """Ends the bar."""
        self._bar.close()


def describe(figures: Mapping[str, float]) -> str:
    """Figures on one line."""
    return "  ".join(f"{name} {value:.4g}" for name, value in figures.items())


def record(output_dir: str, split: str, step: int, figures: Mapping[str, float]) -> None:
    """Adds a line of figures to `metrics.jsonl`.

    Args:
      output_dir: the run's folder.
      split: "train", or the name of the evaluated data.
      step: steps trained so far.
      figures: name to value.
    """
    tf.io.gfile.makedirs(output_dir)
    line = json.dumps({"split": split, "step": step, **figures})
    with tf.io.gfile.GFile(os.path.join(output_dir, METRICS_NAME), "a") as file:
        file.write(line + "\n")


def write_results(output_dir: str, results: dict[str, float]) -> None:
    """Writes `eval_results.txt`, a "name = value" a line, sorted, as the original does."""
    lines = [f"{name} = {value}\n" for name, value in sorted(results.items())]
    writer.write_text(os.path.join(output_dir, "eval_results.txt"), "".join(lines))
