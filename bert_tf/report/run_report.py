"""A run's report: one HTML file with everything inside, for any browser."""

import html
import os
import time
from collections.abc import Mapping, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.pretraining import fill_mask
from bert_tf.report import curves, kinds
from bert_tf.runs import run_folder
from bert_tf.training import metrics_file, progress
from bert_tf.training.metrics import Form, Metric
from tfrecords import writer
from tfrecords.errors import InputError

NAME = "report.html"
# How people read the splits of `metrics_file`; another split keeps its own name.
_LABELS = {
    metrics_file.TRAIN: "train",
    metrics_file.HELD_OUT: "held out",
    metrics_file.TRAINING_DATA: "training data, evaluated",
}
_COLORS = {metrics_file.TRAIN: curves.BLUE, metrics_file.TRAINING_DATA: curves.GREEN}
_MOST_SAMPLES = 60

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 74rem; margin: 2rem auto; padding: 0 1rem; color: #1d2430; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #dfe3ea; vertical-align: top; }
th { font-weight: 600; color: #4a5364; } td:first-child { white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg text { font-family: system-ui, sans-serif !important; }
p.note { color: #5a6475; margin: .3rem 0; }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: .6rem 1.2rem; }
.sample { border: 1px solid #dfe3ea; border-radius: .5rem; padding: .7rem 1rem; margin: .8rem 0; }
.sample p { margin: 0 0 .4rem; } mark { background: #fdf0d5; border-radius: .2rem; padding: 0 .15rem; }
sup { line-height: 0; font-size: .7em; }
.guess { display: inline-block; margin-right: .9rem; white-space: nowrap; } .guess small { color: #5a6475; }
.right { color: #14793c; font-weight: 600; }
"""


def write(output_dir: str) -> None:
    """Writes `report.html` into a run's folder, from the files that the run has written so far.

    If the report cannot be written, the run continues with a warning.
    """
    try:
        _write(output_dir)
    except Exception as error:  # whatever is wrong with the report must not end or mask the training
        logging.warning("%s could not be written: %s", os.path.join(output_dir, NAME), _reason(error))


def write_or_refuse(output_dir: str) -> str:
    """Writes the report of a folder that a user names; returns its path.

    Raises:
      InputError: no run has trained there, or its files cannot be read.
    """
    if not run_folder.read_phases(output_dir):
        raise InputError(f"{output_dir}: no run has trained there; give the --output_dir of run_pretraining")
    try:
        return _write(output_dir)
    except (tf.errors.OpError, KeyError, TypeError, ValueError, AttributeError) as error:
        path = os.path.join(output_dir, NAME)
        raise InputError(f"{path}: cannot be written ({_reason(error)}); see the files beside it") from error


def _reason(error: Exception) -> str:
    """Describes an error on one line; for one that a damaged file caused, with its kind."""
    if isinstance(error, tf.errors.OpError):
        return error.message
    return str(error) if isinstance(error, (InputError, OSError)) else f"{type(error).__name__}: {error}"


def _write(output_dir: str) -> str:
    recorded = metrics_file.read(output_dir, metrics_file.METRICS_NAME, metrics_file.EVALUATOR_METRICS_NAME)
    # an evaluation in another process may have filled in other sentences at the same step
    looks = [*metrics_file.read(output_dir, fill_mask.NAME), *metrics_file.read(output_dir, fill_mask.EVALUATOR_NAME)]
    name = os.path.basename(os.path.abspath(output_dir))
    page = render(name, run_folder.read_phases(output_dir), recorded, sorted(looks, key=lambda look: look["step"]))
    path = os.path.join(output_dir, NAME)
    writer.write_text(path, page)
    return path


def page(title: str, body: str) -> str:
    """Returns an HTML page that refers to no other file."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{html.escape(title)}</h1>
{body}</body></html>
"""


def render(
    name: str,
    phases: Sequence[run_folder.Phase],
    recorded: Sequence[Mapping],
    looks: Sequence[Mapping],
    kind: kinds.Kind = kinds.PRETRAINING,
) -> str:
    """Renders the page of the report.

    Args:
      name: of the run.
      phases: those of the run.
      recorded: entries of `metrics_file.read`.
      looks: entries with `step` and `samples`, see `fill_mask.FillMask.look`, by step.
      kind: of the run: which metrics and settings to show.
    """
    splits = by_split(recorded)
    train = splits.get(metrics_file.TRAIN, [])
    step = max((entry["step"] for entries in splits.values() for entry in entries), default=0)
    total = f" of {phases[-1].optimizer['num_train_steps']:,}" if phases else ""
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    starts = [entry for entry in recorded if entry["split"] == "start" and "peak_flops" in entry]
    parts = [f'<p class="note">Step {step:,}{total}; written {now}.</p>']
    if splits:
        shown = [metric for metric in kind.metrics if metric.title]
        parts += [
            _metrics_table(shown, splits),
            "<h2>Curves</h2>",
            _panels(shown, splits, [phase.first_step for phase in phases[1:]]),
        ]
    if starts:
        parts.append(_peak_note(starts[-1], train))
    if looks:
        parts.append(_samples(looks))
    parts.append(_settings_table(kind.settings, phases))
    return page(f"{kind.title}: {name}", "\n".join(parts))


def _peak_note(start: Mapping, train: Sequence[Mapping]) -> str:
    """Names the peak since the last start. Training measures it again if it proves too low."""
    peaks = [entry["peak_flops"] for entry in train if entry["step"] > start["step"] and "peak_flops" in entry]
    peak = (peaks or [start["peak_flops"]])[-1]
    return (
        f'<p class="note">Model FLOP utilization refers to {progress.abbreviated(peak, " ")}FLOP/s, '
        f"{html.escape(start['peak_source'])}; a step computes "
        f"{progress.abbreviated(start['flops_per_row'], ' ')}FLOP a row by formula.</p>"
    )


def _panels(shown: Sequence[Metric], splits: Mapping[str, Sequence[Mapping]], begins: Sequence[int]) -> str:
    drawn = []
    for metric in shown:
        lines = curves_of(metric.name, splits)
        if lines:
            options = {"log": metric.log_scale, "percent": _is_share(metric), "from_zero": metric.from_zero}
            drawn.append(f"<div>{curves.panel(metric.title, lines, phases=begins, **options)}</div>")
    return f'<div class="curves">{"".join(drawn)}</div>'


def by_split(recorded: Sequence[Mapping]) -> dict[str, list[Mapping]]:
    """Groups the entries of `metrics_file.read` by split: training first, then evaluations in order of appearance."""
    splits: dict[str, list[Mapping]] = {metrics_file.TRAIN: []}
    for entry in recorded:
        if entry["split"] != metrics_file.START:
            splits.setdefault(entry["split"], []).append(entry)
    return {split: entries for split, entries in splits.items() if entries}


def curves_of(name: str, splits: Mapping[str, Sequence[Mapping]]) -> list[curves.Curve]:
    """Returns the curves of a metric that have points, one for each split."""
    made = [
        curves.Curve(
            _LABELS.get(split, split),
            [(entry["step"], entry[name]) for entry in entries if name in entry],
            _COLORS.get(split, curves.ORANGE),
            dots=split != metrics_file.TRAIN,
        )
        for split, entries in splits.items()
    ]
    return [curve for curve in made if curve.points]


def _metrics_table(shown: Sequence[Metric], splits: Mapping[str, Sequence[Mapping]]) -> str:
    """Returns a table of the last values, and of the best ones on unseen data."""
    unseen = [split for split in splits if split not in (metrics_file.TRAIN, metrics_file.TRAINING_DATA)]
    head = ["", *(f"{_LABELS.get(split, split)}, step {entries[-1]['step']:,}" for split, entries in splits.items())]
    head += [f"{_LABELS.get(split, split)}, best" for split in unseen]
    rows = []
    for metric in shown:
        cells = [_number(entries[-1].get(metric.name), metric) for entries in splits.values()]
        if any(cells):
            rows.append([metric.title, *cells, *(_best(splits[split], metric) for split in unseen)])
    return _table(head, rows)


def _best(entries: Sequence[Mapping], metric: Metric) -> str:
    evaluated = [(entry[metric.name], entry["step"]) for entry in entries if metric.name in entry]
    if not evaluated:
        return ""
    value, step = (max if metric.higher_is_better else min)(evaluated, key=lambda pair: pair[0])
    return f"{_number(value, metric)} at step {step:,}"


def _number(value: float | None, metric: Metric) -> str:
    if value is None:
        return ""
    return f"{value:.1%}" if _is_share(metric) else progress.abbreviated(value)


def _is_share(metric: Metric) -> bool:
    return metric.form in (Form.FRACTION, Form.PERCENT)


def _settings_table(names: Sequence[str], phases: Sequence[run_folder.Phase]) -> str:
    """Returns a table of the settings, with a column for each phase."""
    if not phases:
        return ""
    model = phases[-1].model
    shape = (
        f"L={model['num_hidden_layers']} H={model['hidden_size']} A={model['num_attention_heads']} "
        f"V={model['vocab_size']}, {model.get('directionality', 'bidi')}"
    )
    head = ["", *(f"from step {phase.first_step:,}" for phase in phases)]
    rows = [["model", *[shape] * len(phases)]]
    for name in names:
        values = [phase.settings.get(name) for phase in phases]
        if any(value not in (None, "") for value in values):
            rows.append([name, *("" if value is None else str(value) for value in values)])
    return "<h2>Settings</h2>" + _table(head, rows, numbers=False)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = True) -> str:
    kind = ' class="number"' if numbers else ""

    def cells(tag, values):
        first, *others = map(html.escape, values)
        return f"<tr><{tag}>{first}</{tag}>" + "".join(f"<{tag}{kind}>{other}</{tag}>" for other in others) + "</tr>"

    return f"<table>{cells('th', head)}{''.join(cells('td', row) for row in rows)}</table>"


def _samples(looks: Sequence[Mapping]) -> str:
    """The same blanks as the first and the last evaluation filled them in."""
    by_text: dict[tuple, list] = {}
    for look in looks:
        for sample in look["samples"]:
            by_text.setdefault(tuple(sample["tokens"]), []).append((look["step"], sample))
    cards = [_sample(shown[0], shown[-1]) for shown in list(by_text.values())[:_MOST_SAMPLES]]
    note = "What the model reads at a blank is marked; the percentages are its best guesses there."
    return f'<h2>Fill in the mask</h2><p class="note">{note}</p>{"".join(cards)}'


def _sample(first: tuple[int, Mapping], last: tuple[int, Mapping]) -> str:
    """Returns the card of one text with its blanks, from its first and last (step, sample)."""
    blanks = last[1]["blanks"]
    text = "".join(
        f" <mark>{html.escape(text.strip())}<sup>{number + 1}</sup></mark>" if number is not None else html.escape(text)
        for text, number in fill_mask.words(last[1])
    )
    columns = {f"step {step:,}": sample["blanks"] for step, sample in (first, last)}
    knows = any(blank["right"] is not None for blank in blanks)
    head = "".join(f"<th>{name}</th>" for name in ("", *(["right"] if knows else []), *columns))
    rows = []
    for number, blank in enumerate(blanks):
        right = f"<td>{html.escape(blank['right'] or '')}</td>" if knows else ""
        guesses = "".join(f"<td>{_guesses(column[number])}</td>" for column in columns.values())
        rows.append(f"<tr><td>{number + 1}</td>{right}{guesses}</tr>")
    return f'<div class="sample"><p>{text}</p><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _guesses(blank: Mapping) -> str:
    shown = []
    for token, probability in blank["guesses"]:
        kind = "guess right" if token == blank["right"] else "guess"
        shown.append(f'<span class="{kind}">{html.escape(token)} <small>{probability:.0%}</small></span>')
    return "".join(shown)
