"""The demo's report: one HTML file with everything inside, the curves as SVG."""

import html
from collections.abc import Sequence

from bert_tf.report import curves, run_report
from bert_tf.report.kinds import PRETRAINING
from bert_tf.report.page import page, scrolling


def render(stages: Sequence, recorded: Sequence[dict], scores: dict[str, list[float]], answers: Sequence) -> str:
    """Writes the page.

    Args:
      stages: rows of the final table, with `name`, `seconds`, `result`.
      recorded: lines of the pre-training's `metrics.jsonl`.
      scores: dev accuracies a seed for "pretrained" and "scratch", and the majority class's.
      answers: (sentence, label, probability) for each query of the served model.

    Returns:
      HTML that refers to no other file.
    """
    rows = "".join(
        f"<tr><td>{html.escape(s.name)}</td><td class=number>{s.seconds:.1f}</td><td>{html.escape(s.result)}</td></tr>"
        for s in stages
    )
    served = "".join(
        f"<tr><td>{html.escape(text)}</td><td>{html.escape(label)}</td><td class=number>{probability:.2f}</td></tr>"
        for text, label, probability in answers
    )
    stage_table = f"<table><tr><th>stage</th><th class=number>seconds</th><th>result</th></tr>{rows}</table>"
    served_table = f"<table><tr><th>raw string</th><th>label</th><th class=number>probability</th></tr>{served}</table>"
    body = f"""<p class="note">The English that CPython carries: the language reference and the standard
library's docstrings. Modules held out for evaluation are seen by no stage of training.</p>
<h2>Stages</h2>{scrolling(stage_table)}
<h2>Pre-training</h2>{pretraining_curves(recorded)}
<h2>Fine-tuning: which package does a paragraph belong to?</h2>{accuracy_dots(scores)}
<h2>Served</h2>{scrolling(served_table)}
"""
    return page("From text to a served BERT", body)


def pretraining_curves(recorded: Sequence[dict]) -> str:
    """Masked-LM loss and accuracy, and next-sentence accuracy, over the steps, train and held out."""
    splits = run_report.by_split(recorded)
    panels = (
        ("masked_lm_loss", "masked-LM loss, nats", False),
        ("masked_lm_accuracy", "masked-LM accuracy", True),
        ("next_sentence_accuracy", "next-sentence accuracy", True),
    )
    drawn = [
        curves.panel(title, run_report.curves_of(name, splits, PRETRAINING.baselines.get(name)), percent=percent)
        for name, title, percent in panels
    ]
    return f'<div class="curves">{"".join(f"<div>{svg}</div>" for svg in drawn)}</div>'


def accuracy_dots(scores: dict[str, list[float]]) -> str:
    """Dev accuracy of every seed, with and without pre-training, beside the majority class."""
    named = (("pre-trained", "pretrained"), ("without pre-training", "scratch"), ("majority class", "majority"))
    rows = [(label, scores[name]) for label, name in named]
    return scrolling(curves.dots("dev accuracy of every seed, and the mean", rows, percent=True))
