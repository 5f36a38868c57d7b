"""The report of a sweep, which shows the combinations of settings, their metrics, and the best trial."""

import os

from bert_tf.finetuning import sweep_results
from bert_tf.finetuning.sweep_results import EXTRA, FAILED, FINISHED, PENDING, PRETRAINED, TRANSFERRED, VARIED, Results
from bert_tf.report import charts
from bert_tf.report.page import elements, render
from bert_tf.training import metrics_file


def page(folder: str) -> str:
    """Returns the page of a sweep's folder.

    Raises:
      InputError: `results.json` is damaged.
    """
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
        values |= {
            "score": _best_score(folder, results),
            "by_steps": _curve(results, PRETRAINED),
            "by_layers": _curve(results, TRANSFERRED),
            "combinations": elements.table(head, rows),
            "dots": charts.dots(f"{results.metric} of each trial, and the mean of restarts", _rows_of_dots(results)),
        }
    return render("sweep.html", **values)


def _best_score(folder: str, results: Results) -> str:
    """Describes the score of the best trial, and the best constant answer's score if it is known."""
    told = f"{results.metric} {results.best.scores[results.metric]:.4f}."
    lines = metrics_file.read(sweep_results.folder_of(folder, results.best))
    always = [line["always"] for line in lines if line["split"] == metrics_file.DEV and "always" in line][-1:]
    return told + "".join(f" Always {one['answer']}: {one['scores'].get(results.metric, 0):.4f}." for one in always)


def _curve(results: Results, name: str) -> str:
    """Draws the metric over a setting in `EXTRA`; returns "" if the sweep does not vary this setting."""
    points = results.best_by(name)
    if not points:
        return ""
    curve = charts.Curve(results.metric, points, dots=True)
    return charts.panel(f"{results.metric} over {EXTRA[name]}", [curve], last_step=points[-1][0])


def _rows_of_dots(results: Results) -> list[tuple[str, list[float]]]:
    """Returns the combinations that have a finished trial, in order, and the metric of each finished trial."""
    groups: dict[str, list[float]] = {}
    for trial in results.trials:
        if trial.state == FINISHED:
            rate, batch, epochs = (f"{trial.varied[name]:g}" for name in VARIED)
            label = f"rate {rate}, batch {batch}, epochs {epochs}"
            if trial.transfer_layers is not None:
                label = f"{trial.transfer_layers} layers, {label}"
            if trial.pretrained_steps is not None:
                label = f"{trial.pretrained_steps:,} steps, {label}"
            groups.setdefault(label, []).append(trial.scores[results.metric])
    return list(groups.items())


def _trials(results: Results) -> str:
    names = list(dict.fromkeys(name for trial in results.trials for name in trial.scores))
    rows = [
        [trial.name, trial.state, *(f"{trial.scores[name]:.4f}" if name in trial.scores else "" for name in names),
         "" if trial.seconds is None else f"{trial.seconds:.0f}", trial.error]
        for trial in results.trials
    ]  # fmt: skip
    return elements.table(["trial", "state", *names, "seconds since the last start", "error"], rows, [])
