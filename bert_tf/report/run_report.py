"""A run's report: one self-contained HTML file for any browser."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.finetuning import sweep_results
from bert_tf.pretraining import fill_mask, objective
from bert_tf.report import NAME, charts, evaluation, page, sweep_report
from bert_tf.report.page import elements
from bert_tf.runs import evaluations, run_record
from bert_tf.runs.evaluations import Evaluations, rank
from bert_tf.settings import PretrainingSettings
from bert_tf.tasks import registry
from bert_tf.training import metrics, metrics_file, progress
from bert_tf.training.metrics import Form, Metric

# Titles for the splits of `metrics_file`; other splits are shown with their own names.
_LABELS = {
    metrics_file.TRAIN: "train",
    metrics_file.HELD_OUT: "held out",
    metrics_file.TRAINING_DATA: "training data, evaluated",
}
_COLORS = {
    metrics_file.TRAIN: charts.BLUE,
    metrics_file.TRAINING_DATA: charts.GREEN,
    metrics_file.HELD_OUT: charts.ORANGE,
    metrics_file.DEV: charts.ORANGE,
}
# Colors of the curves for other evaluated data, in the order in which the data appears.
_MORE_COLORS = (charts.PURPLE, charts.GREEN, charts.GREY)
_MOST_SAMPLES = 60
# Every report shows the `reported` settings of the script, and then these settings, if they have values.
_SETTINGS = (
    "max_seq_length", "train_batch_size", "num_train_epochs", "num_train_steps", "num_warmup_steps",
    "num_schedule_steps", "learning_rate", "warmup_proportion", "dtype", "distribution_strategy", "random_seed",
    "init_checkpoint",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Content:
    """What the report of a run shows."""

    title: str
    metrics: tuple[Metric, ...]  # the metrics in the order of the page; metrics without a title are not shown
    settings: tuple[str, ...]  # the settings of the script, by name
    # maps names of metrics to functions. A function returns the baseline for a split's entries, or None if the baseline
    # is unknown.
    baselines: Mapping[str, Callable[[Sequence[Mapping]], float | None]] = dataclasses.field(default_factory=dict)
    any_metric: bool = False  # whether undeclared metrics are shown too, such as a task's scores

    @classmethod
    def of_run(cls, phases: Sequence[run_record.TrainingRecord]) -> "Content":
        kind = phases and registry.kinds().get(phases[-1].model.get("model"))
        if not kind:
            return PRETRAINING
        hidden = map(Metric, kind.hidden_scores)
        declared = (Metric("loss", title="loss"), *hidden, *metrics.TRAINING)
        return cls("Fine-tuning", declared, (*kind.settings.reported, *_SETTINGS), any_metric=True)

    def shown(self, names: Iterable[str]) -> list[Metric]:
        """Returns the metrics to show, given the names of all recorded metrics."""
        declared = {metric.name for metric in self.metrics}
        others = [name for name in names if name not in declared] if self.any_metric else []
        scores = [Metric(name, title=name.replace("_", " "), higher_is_better=True) for name in others]
        return [*scores, *(metric for metric in self.metrics if metric.title)]


def _majority_of_pairs(entries: Sequence[Mapping]) -> float | None:
    """Returns the share of a split's more frequent next-sentence label, 0.5 to 1; None if unknown."""
    shares = [entry[objective.RANDOM_NEXT_SHARE] for entry in entries if objective.RANDOM_NEXT_SHARE in entry]
    if not shares:
        return None
    random = sum(shares) / len(shares)
    return max(random, 1 - random)


PRETRAINING = Content(
    "Pre-training",
    (*objective.METRICS, *metrics.TRAINING),
    (*PretrainingSettings.reported, *_SETTINGS),
    {"next_sentence_accuracy": _majority_of_pairs},
)


def write(output_dir: str) -> None:
    """Writes `report.html` into a run's folder, from the files that the run has written so far. If the report cannot be
    written, the run continues with a warning."""
    try:
        _write(output_dir)
    except Exception as error:  # an error in the report must not end training or hide another error
        logging.warning("%s could not be written: %s", os.path.join(output_dir, NAME), _reason(error))


def write_or_refuse(output_dir: str) -> str:
    """Writes the report of a folder that the user names; returns the report's path."""
    if not sweep_results.exists(output_dir):
        if not run_record.read_phases(output_dir):
            raise InputError(f"{output_dir}: no run has trained there; give the --output_dir of a script that trains")
        file = os.path.join(output_dir, metrics_file.METRICS_NAME)
        if not tf.io.gfile.exists(file):  # an empty report might replace a good report
            raise InputError(f"{file}: no such file; copy the run's folder again")
    try:
        return _write(output_dir)
    except InputError:  # the message names the file
        raise
    except (tf.errors.OpError, KeyError, TypeError, ValueError, AttributeError) as error:
        path = os.path.join(output_dir, NAME)
        raise InputError(f"{path}: cannot be written ({_reason(error)}); check the files in its folder") from error


def _reason(error: Exception) -> str:
    """Describes an error on one line; adds the error's type if a damaged file can be the cause."""
    if isinstance(error, tf.errors.OpError):
        return error.message
    return str(error) if isinstance(error, (InputError, OSError)) else f"{type(error).__name__}: {error}"


def _write(output_dir: str) -> str:
    text = sweep_report.page(output_dir) if sweep_results.exists(output_dir) else _page(output_dir)
    path = os.path.join(output_dir, NAME)
    storage.write_text(path, text)
    return path


def _page(output_dir: str) -> str:
    name, phases = os.path.basename(os.path.abspath(output_dir)), run_record.read_phases(output_dir)
    samples = sorted(metrics_file.read(output_dir, fill_mask.NAME), key=lambda entry: entry["step"])
    answers, on_dev = evaluation.sections(output_dir), evaluations.read(output_dir)
    return render(name, phases, metrics_file.read(output_dir), samples, answers, on_dev)


def render(
    name: str,
    phases: Sequence[run_record.TrainingRecord],
    recorded: Sequence[Mapping],
    samples: Sequence[Mapping],
    answers: str = "",
    on_dev: Evaluations | None = None,
) -> str:
    """Renders the page of the report.
    `recorded`: entries of `metrics_file.read`.
    `samples`: entries with `step` and `samples` in ascending order of steps; see `fill_mask.FillMask.look`.
    `answers`: sections about the last evaluation in fine-tuning; see `evaluation.sections`.
    `on_dev`: the evaluations on dev data during fine-tuning; None if there are none."""
    content, splits = Content.of_run(phases), by_split(recorded)
    every = [entry for entries in splits.values() for entry in entries]
    names = dict.fromkeys(key for entry in every for key in entry if _is_number(entry[key]) and key != "step")
    shown = [metric for metric in content.shown(names) if not metric.is_speed]
    step = max((entry["step"] for entry in every), default=0)
    names_of_data = {split: entries[-1].get("data", "").rpartition(", ")[0] for split, entries in splits.items()}
    total = f" of {phases[-1].optimizer['num_train_steps']:,}" if phases else ""
    return page.render(
        "run.html",
        title=f"{content.title}: {name}",
        status=f"Step {step:,}{total}",
        data=[f"{_LABELS.get(split, split)}: {data}" for split, data in names_of_data.items() if data],
        metrics=_metrics_table(shown, splits, on_dev or Evaluations()) if splits else "",
        panels=_panels(shown, splits, phases, step, content.baselines),
        speed=_speed(recorded),
        samples=_samples(samples),
        answers=answers,
        settings=_settings_table(phases, content.settings) if phases else "",
    )


def _speed(recorded: Sequence[Mapping]) -> str:
    """Describes the speed of training since the last start; "" if nothing was measured."""
    start = next((entry for entry in reversed(recorded) if entry["split"] == metrics_file.START), {"step": 0})
    train = [entry for entry in recorded if entry["split"] == metrics_file.TRAIN and entry["step"] > start["step"]]
    speeds = []
    for metric in metrics.TRAINING:
        values = sorted(entry[metric.name] for entry in train if metric.is_speed and metric.name in entry)
        if values:
            low, middle, high = (_number(value, metric) for value in (values[0], np.median(values), values[-1]))
            speeds.append(f"{middle} {metric.title}" + (f" ({low} to {high})" if low != high else ""))
    sentences = [f"Speed of training, median of the loops since the last start: {', '.join(speeds)}."] if speeds else []
    if "peak_flops" in start:
        peak, per_row = (progress.abbreviated(start[name], " ") for name in ("peak_flops", "flops_per_row"))
        sentences.append(
            f"Model FLOP utilization refers to {peak}FLOP/s, {start['peak_source']}. By formula, a step computes "
            f"{per_row}FLOP per row."
        )
    return " ".join(sentences)


def _panels(
    shown: Sequence[Metric],
    splits: Mapping[str, Sequence[Mapping]],
    phases: Sequence[run_record.TrainingRecord],
    last_step: int,
    baselines: Mapping[str, Callable],
) -> list[str]:
    begins, drawn = [phase.begun_at for phase in phases[1:]], []
    for metric in shown:
        lines = curves_of(metric.name, splits, baselines.get(metric.name))
        if any(len(line.points) > 1 for line in lines):  # single values are in the table
            options = {"log": metric.log_scale, "percent": _is_share(metric), "from_zero": metric.from_zero}
            options["last_step"] = last_step  # all panels have the same axis of steps
            drawn.append(charts.panel(metric.title, lines, phases=begins, **options))
    return drawn


def by_split(recorded: Sequence[Mapping]) -> dict[str, list[Mapping]]:
    """Groups the entries of `metrics_file.read` by split: first training, then the other splits in their order."""
    splits: dict[str, list[Mapping]] = {metrics_file.TRAIN: []}
    for entry in recorded:
        if entry["split"] != metrics_file.START:
            splits.setdefault(entry["split"], []).append(entry)
    return {split: entries for split, entries in splits.items() if entries}


def _constant_answer(entries: Sequence[Mapping]) -> Mapping:
    """Returns the best constant answer and its scores from the newest entry that contains them."""
    return {"answer": "", "scores": {}} | next((e["always"] for e in reversed(entries) if "always" in e), {})


def _samples(entries: Sequence[Mapping]) -> list[str]:
    """Returns a section per filled-in text: a table with the guesses of its first and of its last evaluation."""
    by_text: dict[str, list] = {}
    for entry in entries:
        for sample in entry["samples"]:
            by_text.setdefault(sample["text"], []).append((f"step {entry['step']:,}", sample["blanks"]))
    drawn = []
    for text, of_steps in list(by_text.items())[:_MOST_SAMPLES]:
        columns = dict((of_steps[0], of_steps[-1]))
        rows = [
            [f"{number}", blanks[0]["right"] or "", *map(_guesses, blanks)]
            for number, blanks in enumerate(zip(*columns.values(), strict=True), 1)
        ]
        drawn.append(elements.section("", elements.table(["", "right", *columns], rows, []), note=text))
    return drawn


def _guesses(blank: Mapping) -> str:
    return ", ".join(f"{token} {probability:.0%}" for token, probability in blank["guesses"])


def curves_of(
    name: str,
    splits: Mapping[str, Sequence[Mapping]],
    baseline: Callable[[Sequence[Mapping]], float | None] | None = None,
) -> list[charts.Curve]:
    """Returns the curves of a metric: one for each split that has points, with the split's baseline."""
    others = [split for split in splits if split not in _COLORS]
    made = [
        charts.Curve(
            _LABELS.get(split, split),
            [(entry["step"], entry[name]) for entry in entries if _is_number(entry.get(name))],
            _COLORS.get(split) or _MORE_COLORS[others.index(split) % len(_MORE_COLORS)],
            dots=split != metrics_file.TRAIN,
            baseline=baseline(entries) if baseline else _constant_answer(entries)["scores"].get(name),
        )
        for split, entries in splits.items()
    ]
    return [curve for curve in made if curve.points]


def _metrics_table(shown: Sequence[Metric], splits: Mapping[str, Sequence[Mapping]], on_dev: Evaluations) -> str:
    """Returns a table of metrics, with columns for checkpoints and for the best constant answers. The dev data of
    fine-tuning has a column for the best checkpoint and a column for the last checkpoint. Held-out data has a column
    for the best value of each metric. Where no other data has a curve, training has a column for its first entry."""
    always = {split: _constant_answer(entries) for split, entries in splits.items()}
    always = {split: answer for split, answer in always.items() if answer["scores"]}
    columns = [column for split, entries in splits.items() for column in _checkpoint_columns(split, entries, on_dev)]
    train = splits.get(metrics_file.TRAIN, ())
    if len(train) > 1 and all(len(entries) == 1 for split, entries in splits.items() if split != metrics_file.TRAIN):
        columns.insert(0, (f"{_LABELS[metrics_file.TRAIN]}, step {train[0]['step']:,}", train[0]))
    held_out = splits.get(metrics_file.HELD_OUT)
    head = ["", *(title for title, _ in columns)]
    head += [f"{_LABELS[metrics_file.HELD_OUT]}, best"] * bool(held_out)
    head += [f"{_LABELS.get(split, split)}, always {answer['answer']}" for split, answer in always.items()]
    rows = []
    for metric in shown:
        cells = [_number(entry.get(metric.name), metric) for _, entry in columns]
        if any(cells):
            cells += [_best(held_out, metric)] if held_out else []
            cells += [_number(answer["scores"].get(metric.name), metric) for answer in always.values()]
            rows.append([metric.title, *cells])
    return elements.table(head, rows)


def _checkpoint_columns(split: str, entries: Sequence[Mapping], on_dev: Evaluations) -> list[tuple[str, Mapping]]:
    """Returns the titles and entries of the best checkpoint on dev data, if known, and of the last checkpoint."""
    last, label = entries[-1], _LABELS.get(split, split)
    best = [entry for entry in entries if split == metrics_file.DEV and entry["step"] == on_dev.best_step]
    columns = [(f"{label}, step {entry['step']:,} (best {on_dev.metric})", entry) for entry in best]
    if last in best:
        return columns
    return [*columns, (f"{label}, step {last['step']:,}{' (last)' if best else ''}", last)]


def _best(entries: Sequence[Mapping], metric: Metric) -> str:
    evaluated = [entry for entry in entries if _is_number(entry.get(metric.name))]
    if not evaluated:
        return ""
    best = max(evaluated, key=lambda entry: rank(entry, metric.name, metric.higher_is_better))
    return f"{_number(best[metric.name], metric)} at step {best['step']:,}"


def _number(value: float | None, metric: Metric) -> str:
    if not _is_number(value):
        return ""
    if _is_share(metric):
        return f"{value:.1%}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else progress.abbreviated(value)


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_share(metric: Metric) -> bool:
    return metric.form in (Form.FRACTION, Form.PERCENT)


def _settings_table(phases: Sequence[run_record.TrainingRecord], names: Sequence[str]) -> str:
    model = phases[-1].model
    shape = (
        f"L={model['num_hidden_layers']} H={model['hidden_size']} A={model['num_attention_heads']} "
        f"V={model['vocab_size']:,}, {model['directionality']}"
    )
    head = ["", *(f"from step {phase.begun_at:,}" for phase in phases)]
    rows = [["model", *[shape] * len(phases)]]
    for name in names:
        values = [phase.settings.get(name) for phase in phases]
        if any(value not in (None, "") for value in values):
            rows.append([name, *("" if value is None else _setting(name, value) for value in values)])
    return elements.table(head, rows, [])


def _setting(name: str, value) -> str:
    is_amount = isinstance(value, int) and not isinstance(value, bool) and not name.endswith("seed")
    return f"{value:,}" if is_amount else str(value)
