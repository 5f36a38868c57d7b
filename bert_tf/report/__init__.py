"""Writes report.html from the files in a run's folder."""

import os
from collections.abc import Mapping

from absl import logging

NAME = "report.html"


def write(output_dir: str) -> None:
    """Writes the report of a run; see `run_report.write`. The plotting library is imported only here, since predictions
    do not need it."""
    from bert_tf.report import run_report

    run_report.write(output_dir)


def conclude(output_dir: str, scores: Mapping[str, float], following: str) -> None:
    """Logs the last line of a training: the main score and its step, the report, and what usually follows."""
    from bert_tf.training import metrics_file  # imports TensorFlow

    step = metrics_file.evaluated_step(output_dir)
    score = "".join(f"{name} {value:.4g}, " for name, value in list(scores.items())[:1])
    at = "" if step is None or not scores else f"step {step}, "
    logging.info("finished: %s%sreport %s; next: %s", score, at, os.path.join(output_dir, NAME), following)
