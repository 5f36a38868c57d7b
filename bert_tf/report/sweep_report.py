"""The report of a sweep, which shows the combinations of settings, their metrics, and the best trial."""

import os

from bert_tf.finetuning import sweep_results
from bert_tf.finetuning.sweep_results import FAILED, FINISHED, PENDING, PRETRAINED, TITLES, TRANSFERRED, Results
from bert_tf.report import charts
from bert_tf.report.page import elements, render
from bert_tf.training import metrics_file


def page(folder: str) -> str:
    results = sweep_results.read(folder)
    counts = {state: sum(t.state == state for t in results.trials) for state in (FINISHED, FAILED, PENDING)}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    head, *rows = sweep_results.table(results)
    values = {
        "title": f"Sweep: {os.path.basename(os.path.abspath(folder))}",
        "status": f"{results.task}, {len(results.trials)} trials: {told}",
        "best": results.best and f"{sweep_results.TRIALS}/{results.best.name}",
        "trials": _trials(results),
    }
    if results.best:
        dots = [(_label(combination), scores) for combination, _, scores in results.groups() if scores]
        values |= {
            "score": _best_score(folder, results),
            "by_steps": _curve(results, PRETRAINED),
            "by_layers": _curve(results, TRANSFERRED),
            "combinations": elements.table(head, rows),
            "dots": charts.dots(f"{results.metric} of each trial, and the mean of restarts", dots),
        }
    return render("sweep.html", **values)


def _best_score(folder: str, results: Results) -> str:
    """Describes the score of the best trial, and the best constant answer's score if it is known."""
    told = f"{results.metric} {results.best.scores[results.metric]:.4f}."
    lines = metrics_file.read(sweep_results.folder_of(folder, results.best))
    always = [line["always"] for line in lines if line["split"] == metrics_file.DEV and "always" in line][-1:]
    return told + "".join(f" Always {one['answer']}: {one['scores'].get(results.metric, 0):.4f}." for one in always)


def _curve(results: Results, name: str) -> str:
    """Draws the metric over a setting; returns "" if the sweep does not vary this setting."""
    points = results.best_by(name)
    if not points:
        return ""
    curve = charts.Curve(results.metric, points, dots=True)
    return charts.panel(f"{results.metric} over {TITLES[name]}", [curve], last_step=points[-1][0])


def _label(combination: dict[str, float]) -> str:
    return ", ".join(f"{TITLES[name]} {value:g}" for name, value in combination.items())


def _trials(results: Results) -> str:
    names = list(dict.fromkeys(name for trial in results.trials for name in trial.scores))
    rows = [
        [trial.name, trial.state, *(f"{trial.scores[name]:.4f}" if name in trial.scores else "" for name in names),
         "" if trial.seconds is None else f"{trial.seconds:.0f}", trial.error]
        for trial in results.trials
    ]  # fmt: skip
    return elements.table(["trial", "state", *names, "seconds since the last start", "error"], rows, [])
