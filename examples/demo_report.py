"""The demo's report: one self-contained HTML file with curves as SVG."""

from collections.abc import Sequence

from bert_tf.report import charts, page, run_report
from bert_tf.report.page import elements

_NOTE = """The text is the English in CPython: the language reference and the standard library's docstrings. No stage of
training reads the modules that are held out for evaluation."""


def render(stages: Sequence, recorded: Sequence[dict], scores: dict[str, list[float]], answers: Sequence) -> str:
    """Returns the page.

    Args:
      stages: rows of the final table, with `name`, `seconds`, `result`.
      recorded: the lines of `metrics.jsonl` from pre-training.
      scores: dev accuracies of all seeds for "pretrained" and "scratch", and the accuracy of the majority class.
      answers: (sentence, label, probability) for each sentence that the served model classified.

    Returns:
      Self-contained HTML.
    """
    stage_rows = [[stage.name, f"{stage.seconds:.1f}", stage.result] for stage in stages]
    served_rows = [[text, label, f"{probability:.2f}"] for text, label, probability in answers]
    body = elements.section("Stages", elements.table(["stage", "seconds", "result"], stage_rows, [1]))
    body += elements.section("Pre-training", elements.charts(pretraining_curves(recorded)))
    title = "Fine-tuning: are the words of a sentence in the right order?"
    body += elements.section(title, elements.charts([accuracy_dots(scores)], "scroll"))
    body += elements.section("Served", elements.table(["raw string", "label", "probability"], served_rows, [2]))
    return page.render("page.html", title="From text to a served BERT", note=_NOTE, body=body)


def pretraining_curves(recorded: Sequence[dict]) -> list[str]:
    """Plots masked-LM loss, masked-LM accuracy and next-sentence accuracy over steps, on training and held-out data."""
    splits = run_report.by_split(recorded)
    panels = (
        ("masked_lm_loss", "masked-LM loss, nats", False),
        ("masked_lm_accuracy", "masked-LM accuracy", True),
        ("next_sentence_accuracy", "next-sentence accuracy", True),
    )
    baselines = run_report.PRETRAINING.baselines
    return [
        charts.panel(title, run_report.curves_of(name, splits, baselines.get(name)), percent=percent)
        for name, title, percent in panels
    ]


def accuracy_dots(scores: dict[str, list[float]]) -> str:
    """Plots the dev accuracy of the majority class, and of every seed with and without pre-training."""
    named = (("pre-trained", "pretrained"), ("without pre-training", "scratch"), ("majority class", "majority"))
    rows = [(label, scores[name]) for label, name in named]
    return charts.dots("dev accuracy of every seed, and the mean", rows)
