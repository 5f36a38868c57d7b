"""The report of a sweep, which shows the combinations of settings, their metrics, and the best trial."""

import os

from bert_tf.finetuning import sweep_results
from bert_tf.finetuning.sweep_results import PRETRAINED, TITLES, TRANSFERRED, Results
from bert_tf.report import charts
from bert_tf.report.page import elements, render


def page(folder: str) -> str:
    results = sweep_results.read(folder)
    best, failed = results.best, sum(bool(trial.error) for trial in results.trials)
    finished = sum(bool(trial.scores) for trial in results.trials)
    head, *rows = results.table()
    return render(
        "sweep.html",
        title=f"Sweep: {os.path.basename(os.path.abspath(folder))}",
        status=f"{results.task}, {len(results.trials)} trials: {finished} finished, {failed} failed",
        best=best and f"{sweep_results.TRIALS}/{best.name}",
        score=best and f"{results.metric} {best.scores[results.metric]:.4f}",
        curves=[panel for name in (PRETRAINED, TRANSFERRED) for panel in _curve(results, name)],
        combinations=elements.table(head, rows),
        trials=_trials(results),
    )


def _curve(results: Results, name: str) -> list[str]:
    """Draws the metric over a setting; returns [] if the sweep does not vary this setting."""
    points = results.best_by(name)
    if not points:
        return []
    curve = charts.Curve(results.metric, points, dots=True)
    return [charts.panel(f"{results.metric} over {TITLES[name]}", [curve], last_step=points[-1][0])]


def _trials(results: Results) -> str:
    names = list(dict.fromkeys(name for trial in results.trials for name in trial.scores))
    rows = [
        [trial.name, *(f"{trial.scores[name]:.4f}" if name in trial.scores else "" for name in names), trial.error]
        for trial in results.trials
    ]
    return elements.table(["trial", *names, "error"], rows, [])
