import io
import itertools
import logging
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.core import progress_bar
from bert_tf.pretraining import objective
from bert_tf.tasks.classification.classes import Classes
from bert_tf.training import metrics, metrics_file, progress

RESULTS = {
    "loss": 6.71, "masked_lm_loss": 6.02, "next_sentence_loss": 0.69, "masked_lm_accuracy": 0.1234,
    "next_sentence_accuracy": 0.71, "gradient_norm": 1.31, "masked_lm_perplexity": 411.6, "learning_rate": 1e-4,
    "sequences_per_second": 512.2, "tokens_per_second": 41234.0, "model_flop_utilization": 0.312,
}  # fmt: skip


def test_the_line_is_short_and_in_a_readers_order():
    assert progress.describe(RESULTS, objective.METRICS) == (
        "mlm loss 6.02 acc 0.123 ppl 412 | nsp acc 0.710 | lr 1e-4 | grad 1.31 | 512 seq/s 41.2k tok/s | mfu 31%"
    )


def test_undeclared_metrics_keep_their_names():
    values = {"accuracy": 0.5, "f1": 0.25, "loss": 1.5}
    assert progress.describe(values, Classes.metrics) == "loss 1.5 acc 0.500 | f1 0.25"
    assert progress.describe(values) == "accuracy 0.5 f1 0.25 loss 1.5"
    diverged = {"masked_lm_loss": float("nan"), "masked_lm_perplexity": float("inf"), "learning_rate": 0.0}
    assert progress.describe(diverged, objective.METRICS) == "mlm loss nan ppl inf | lr 0"


def test_short_runs_log_every_tenth(tmp_path, caplog, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: next(ticks) * 1e-6)
    for last_step, every in ((7, 1), (30, 1), (100_000, 50)):
        shown = progress.TrainingProgress(str(tmp_path), 0, last_step)
        caplog.clear()
        with caplog.at_level(logging.INFO):
            for step in range(every, last_step + 1, every):
                shown.update(step, {"loss": 1.0})
        shown.close()
        steps = [int(message.split("/")[0].split()[-1]) for message in caplog.messages]
        assert len(steps) == min(last_step, 10) and steps[-1] == last_step and len(set(steps)) == len(steps)


def test_narrow_terminal_shows_most_important_values(tmp_path, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("tqdm.std._screen_shape_wrapper", lambda: lambda file: (80, 24))
    shown = progress.TrainingProgress(str(tmp_path), 0, 1_000_000, declared=objective.METRICS)
    shown.show(1000, RESULTS)
    shown.close()
    line = terminal.getvalue().split("\r")[-1].rstrip()
    assert line.startswith("train 1000/1000000 ") and "mlm loss 6.02 acc 0.123" in line and len(line) <= 80
    assert not metrics_file.read(str(tmp_path), "metrics.jsonl")[1:], "a part of a loop is not recorded"


@pytest.mark.parametrize("kept", [0, 1, 25, -1])
def test_partial_line_leaves_other_lines_readable(tmp_path, kept):
    path = tmp_path / "metrics.jsonl"
    metrics_file.record(str(tmp_path), "train", 1, {"loss": 1.0})
    whole = path.read_bytes()
    metrics_file.record(str(tmp_path), "train", 2, {"loss": 2.0})
    path.write_bytes(whole + path.read_bytes()[len(whole) :][:kept])
    metrics_file.record(str(tmp_path), "train", 3, {"loss": 3.0})
    assert steps(metrics_file.read(str(tmp_path), "metrics.jsonl"), "train") == [
        (step, float(step)) for step in ((1, 2, 3) if kept == -1 else (1, 3))
    ]


def steps(entries, split):
    return [(entry["step"], entry["loss"]) for entry in entries if entry["split"] == split]


def test_of_a_resumed_run_what_was_trained_again_holds(tmp_path):
    for step, loss in [(50, 9.0), (100, 8.0), (150, 7.0), (200, 6.0)]:
        metrics_file.record(str(tmp_path), "train", step, {"loss": loss})
    metrics_file.record(str(tmp_path), "eval", 100, {"loss": 8.5})
    # resumed at 100, with longer loops
    metrics_file.record(str(tmp_path), "start", 100, {})
    metrics_file.record(str(tmp_path), "eval", 100, {"loss": 8.25})
    metrics_file.record(str(tmp_path), "train", 180, {"loss": 6.5})
    entries = metrics_file.read(str(tmp_path), metrics_file.METRICS_NAME)
    assert steps(entries, "train") == [(50, 9.0), (100, 8.0), (180, 6.5)]
    assert steps(entries, "eval") == [(100, 8.25)]
    metrics_file.record(str(tmp_path), "start", 0, {})  # trained again, after the checkpoints were deleted
    assert [entry["split"] for entry in metrics_file.read(str(tmp_path))] == ["start"]


def test_perplexity_and_total_are_derived_from_losses():
    def derived(**values):
        return metrics.add_derived({name: tf.constant(value) for name, value in values.items()}, objective.METRICS)

    for loss in (0.0, 3.5, 87.9):
        found = derived(masked_lm_loss=loss, next_sentence_loss=0.5, gradient_norm=1.0)
        np.testing.assert_allclose(found["masked_lm_perplexity"], np.exp(np.float64(loss)), rtol=2e-5)
        np.testing.assert_allclose(found["loss"], loss + 0.5, rtol=1e-6)
    assert float(derived(masked_lm_loss=6.0)["loss"]) == 6.0
    assert np.isfinite(derived(masked_lm_loss=1e6)["masked_lm_perplexity"])
    assert np.isnan(derived(masked_lm_loss=np.nan)["masked_lm_perplexity"])
    assert derived(gradient_norm=1.0).keys() == {"gradient_norm"}, "no loss was finite"
