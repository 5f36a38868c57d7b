"""The report of a sweep: its combinations of settings, their metrics, and the best trial."""

import html
import os
import time

from bert_tf.finetuning import sweep_results
from bert_tf.finetuning.sweep_results import FAILED, FINISHED, PENDING, VARIED, Results, Trial
from bert_tf.report import curves
from bert_tf.report.page import folded, page, scrolling, table
from bert_tf.training import metrics_file
from tfrecords import writer


def write(folder: str, path: str) -> str:
    """Writes the report of a sweep's folder.

    Args:
      folder: of the sweep.
      path: of the report.

    Returns:
      The path.

    Raises:
      InputError: `results.json` is damaged.
    """
    results, beside = sweep_results.read(folder), ""
    if results.best:
        lines = metrics_file.read(sweep_results.folder_of(folder, results.best), metrics_file.METRICS_NAME)
        always = [line["always"] for line in lines if line["split"] == metrics_file.DEV and "always" in line][-1:]
        beside = "".join(f" Always {one['answer']}: {one['scores'].get(results.metric, 0):.4f}." for one in always)
    writer.write_text(path, render(os.path.basename(os.path.abspath(folder)), results, beside))
    return path


def render(name: str, results: Results, beside: str = "") -> str:
    """Renders the page of a sweep.

    Args:
      name: of the sweep.
      results: its trials.
      beside: the score of the best constant answer, as text.
    """
    counts = {state: sum(t.state == state for t in results.trials) for state in (FINISHED, FAILED, PENDING)}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    parts = [f'<p class="note">{html.escape(results.task)}, {len(results.trials)} trials: {told}; written {now}.</p>']
    if best := results.best:
        score = f"{results.metric} {best.scores[results.metric]:.4f}"
        folder = f"{sweep_results.TRIALS}/{best.name}"
        parts += [
            f"<p>The best trial on the dev data is <code>{html.escape(folder)}</code>: {html.escape(score)}."
            f"{html.escape(beside)}</p>",
            *_figure(results),
            "<h2>Combinations</h2>",
            table(*_head_and_rows(results)),
            "<h2>Trials</h2>",
            scrolling(curves.dots(f"{results.metric} of each trial, and the mean of restarts", _rows_of_dots(results))),
        ]
    parts.append(folded("All trials", table(*_trials(results), numbers=False)))
    return page(f"Sweep: {name}", "\n".join(parts))


def _figure(results: Results) -> list[str]:
    """Draws the metric over the steps of pre-training, if trials start from several checkpoints."""
    points = results.by_pretrained_steps()
    if not points:
        return []
    curve = curves.Curve(results.metric, points, dots=True)
    drawn = curves.panel(f"{results.metric} over steps of pre-training", [curve], last_step=points[-1][0])
    note = "Each point is the best combination of settings from one checkpoint, the mean of its restarts."
    return ["<h2>Steps of pre-training</h2>", f'<p class="note">{note}</p><div class="curves"><div>{drawn}</div></div>']


def _head_and_rows(results: Results) -> tuple[list[str], list[list[str]]]:
    head, *rows = sweep_results.table(results)
    return head, rows


def _rows_of_dots(results: Results) -> list[tuple[str, list[float]]]:
    """Returns the combinations that have a finished trial, in their order, with the metric of each trial."""
    groups: dict[str, list[float]] = {}
    for trial in results.trials:
        if trial.state == FINISHED:
            rate, batch, epochs = (f"{trial.varied[name]:g}" for name in VARIED)
            label = f"rate {rate}, batch {batch}, epochs {epochs}"
            if trial.pretrained_steps is not None:
                label = f"{trial.pretrained_steps:,} steps, {label}"
            groups.setdefault(label, []).append(trial.scores[results.metric])
    return list(groups.items())


def _trials(results: Results) -> tuple[list[str], list[list[str]]]:
    names = list(dict.fromkeys(name for trial in results.trials for name in trial.scores))

    def cells(trial: Trial) -> list[str]:
        scores = [f"{trial.scores[name]:.4f}" if name in trial.scores else "" for name in names]
        seconds = "" if trial.seconds is None else f"{trial.seconds:.0f}"
        return [trial.name, trial.state, *scores, seconds, trial.error]

    return ["trial", "state", *names, "seconds", "error"], [cells(trial) for trial in results.trials]
