"""The demo's report: one HTML file with everything inside, the curves as SVG."""

import html
import io
from collections.abc import Sequence

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1d2430; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #dfe3ea; vertical-align: top; }
td:first-child { white-space: nowrap; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } p.note { color: #5a6475; }
"""


def render(stages: Sequence, figures: Sequence[dict], scores: dict[str, list[float]], answers: Sequence) -> str:
    """Writes the page.

    Args:
      stages: rows of the final table, with `name`, `seconds`, `result`.
      figures: lines of the pre-training's `metrics.jsonl`.
      scores: dev accuracies a seed for "pretrained" and "scratch", and the majority class's.
      answers: (sentence, label) pairs that the served model gave.

    Returns:
      HTML that refers to no other file.
    """
    rows = "".join(
        f"<tr><td>{html.escape(s.name)}</td><td class=number>{s.seconds:.1f}</td><td>{html.escape(s.result)}</td></tr>"
        for s in stages
    )
    served = "".join(f"<tr><td>{html.escape(t)}</td><td>{html.escape(label)}</td></tr>" for t, label in answers)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>bert_tf demo</title><style>{STYLE}</style></head><body>
<h1>From text to a served BERT</h1>
<p class="note">The English that CPython carries: the language reference and the standard library's docstrings.
Modules held out for evaluation are seen by no stage of training.</p>
<h2>Stages</h2><table><tr><th>stage</th><th>seconds</th><th>result</th></tr>{rows}</table>
<h2>Pre-training</h2>{pretraining_curves(figures)}
<h2>Fine-tuning: which package does a paragraph belong to?</h2>{accuracy_dots(scores)}
<h2>Served</h2><table><tr><th>raw string</th><th>label</th></tr>{served}</table>
</body></html>
"""


def pretraining_curves(figures: Sequence[dict]) -> str:
    """Masked-LM loss and accuracy, and next-sentence accuracy, over the steps, train and held out."""
    panels = (
        ("masked_lm_loss", "masked-LM loss (nats)"),
        ("masked_lm_accuracy", "masked-LM accuracy"),
        ("next_sentence_accuracy", "next-sentence accuracy"),
    )
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.4))
    for axis, (name, title) in zip(axes, panels, strict=True):
        for split, label, style in (("train", "train", {"alpha": 0.6}), ("eval", "held out", {"marker": "o"})):
            points = [(f["step"], f[name]) for f in figures if f["split"] == split]
            axis.plot(*zip(*points, strict=True), label=label, markersize=3.5, **style)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step", fontsize=9)
    axes[0].legend(frameon=False, fontsize=9)
    return _svg(figure)


def accuracy_dots(scores: dict[str, list[float]]) -> str:
    """Dev accuracy of every seed, with and without pre-training, beside the majority class."""
    pyplot = _pyplot()
    figure, axis = pyplot.subplots(figsize=(12, 1.9))
    for height, (kind, label) in enumerate((("scratch", "without pre-training"), ("pretrained", "pre-trained"))):
        values = scores[kind]
        axis.scatter(values, [height] * len(values), s=40, alpha=0.7)
        axis.plot([sum(values) / len(values)] * 2, [height - 0.3, height + 0.3], color="black", linewidth=1)
        axis.text(-0.01, height, label, transform=axis.get_yaxis_transform(), ha="right", va="center", fontsize=10)
    axis.axvline(scores["majority"][0], color="grey", linestyle="--", linewidth=1)
    axis.text(scores["majority"][0], 1.6, " majority class", fontsize=9, color="grey", va="center")
    axis.set(yticks=[], ylim=(-0.6, 1.9))
    axis.set_xlabel("dev accuracy; a dot a seed, a line the mean", fontsize=9)
    return _svg(figure)


def _pyplot():
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as pyplot

    pyplot.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none"})
    return pyplot


def _svg(figure) -> str:
    target = io.StringIO()
    figure.tight_layout()
    figure.savefig(target, format="svg")
    return target.getvalue()[target.getvalue().index("<svg") :]
