"""Draws the two figures of docs/background/three_approaches.md: directions of attention, and GPT's input rows.

  .venv/bin/python examples/results/figures.py

Paper: Figure 3 (three architectures); A. Radford et al., "Improving Language Understanding by Generative Pre-Training",
2018, Figure 1 (input transformations).
"""

import pathlib

import matplotlib

matplotlib.use("agg")
from matplotlib import patches, pyplot

IMAGES = pathlib.Path("docs/images")
_TOKENS, _LAYERS = 4, 2
_COLORS = {"token": "#cfe2f3", "layer": "#d9ead3", "special": "#fff2cc", "model": "#d9ead3", "head": "#f4cccc"}


def main() -> None:
    """Writes both figures."""
    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.4))
    titles = (("BERT: both directions", [("both", "C0")]), ("OpenAI GPT: left to right", [("ltr", "C0")]),
              ("ELMo: two models, joined afterwards", [("ltr", "C0"), ("rtl", "C3")]))  # fmt: skip
    for axis, (title, directions) in zip(axes, titles, strict=True):
        draw_attention(axis, title, directions)
    save(figure, "three_approaches")
    figure, axis = pyplot.subplots(figsize=(9, 4.4))
    draw_inputs(axis)
    save(figure, "gpt_inputs")


def draw_attention(axis: pyplot.Axes, title: str, directions: list[tuple[str, str]]) -> None:
    """Draws the layers of one or two models; each line connects a token with a token that it attends to."""
    width = _TOKENS + 0.8
    for model, (direction, color) in enumerate(directions):
        left = model * width
        for layer in range(_LAYERS + 1):
            for place in range(_TOKENS):
                x, y = left + place, layer * 1.2
                label = f"E{place + 1}" if layer == 0 else "Trm"
                box(axis, x, y, label, _COLORS["token" if layer == 0 else "layer"])
                for other in range(_TOKENS if layer else 0):
                    if direction == "both" or (other <= place if direction == "ltr" else other >= place):
                        axis.plot([left + other, x], [y - 0.98, y - 0.22], color=color, linewidth=0.8)
    count = _TOKENS + (len(directions) - 1) * width
    for place in range(_TOKENS):
        x = (count - _TOKENS) / 2 + place
        box(axis, x, (_LAYERS + 1) * 1.2, f"T{place + 1}", _COLORS["token"])
        for model, (_, color) in enumerate(directions):
            ends = [[model * width + place, x], [_LAYERS * 1.2 + 0.22, (_LAYERS + 1) * 1.2 - 0.22]]
            axis.plot(*ends, color=color, linewidth=0.8)
    axis.set_title(title, fontsize=10)
    axis.set_xlim(-0.6, count - 0.4)
    axis.set_ylim(-0.4, (_LAYERS + 1) * 1.2 + 0.4)
    axis.axis("off")


def draw_inputs(axis: pyplot.Axes) -> None:
    """Draws the rows of each kind of task."""
    tasks = (
        ("Single text", [["start", "text", "extract"]], ""),
        ("Entailment", [["start", "premise", "delimiter", "hypothesis", "extract"]], ""),
        ("Similarity", [["start", "text 1", "delimiter", "text 2", "extract"],
                        ["start", "text 2", "delimiter", "text 1", "extract"]], "sum"),
        ("Multiple choice", [["start", "context", "delimiter", "answer 1", "extract"],
                             ["start", "context", "delimiter", "answer 2", "extract"]], "softmax"),
    )  # fmt: skip
    y = 0.0
    for title, rows, joined in tasks:
        middle = y - (len(rows) - 1) * 0.3
        axis.text(-0.2, middle, title, ha="right", va="center", fontsize=9)
        for row in rows:
            x = 0.0
            for name in row:
                is_text = name.split()[0] in ("text", "premise", "hypothesis", "context", "answer")
                size = 1.5 if is_text else 0.95
                box(axis, x + size / 2, y, name, _COLORS["token" if is_text else "special"], size - 0.06)
                x += size
            end = 7.0
            axis.annotate("", (end, y), (x, y), arrowprops={"arrowstyle": "->", "linewidth": 0.8})
            box(axis, end + 0.65, y, "transformer", _COLORS["model"], 1.3)
            # Choices have a head each; the vectors of similarity tasks are added before the head.
            target = y if joined == "softmax" else middle
            if joined == "softmax":
                box(axis, 9.5, y, "linear", _COLORS["head"], 0.9)
            axis.annotate("", (9.05, target), (end + 1.3, y), arrowprops={"arrowstyle": "->", "linewidth": 0.8})
            y -= 0.6
        if joined == "softmax":
            axis.text(10.1, middle, "} softmax", va="center", fontsize=9)
        else:
            box(axis, 9.5, middle, "linear", _COLORS["head"], 0.9)
        if joined == "sum":
            axis.text(8.75, middle, "+", ha="center", va="center", fontsize=12)
        y -= 0.35
    axis.set_xlim(-1.7, 11.2)
    axis.set_ylim(y + 0.4, 0.5)
    axis.axis("off")


def box(axis: pyplot.Axes, x: float, y: float, text: str, color: str, width: float = 0.72) -> None:
    """Draws a labeled box with its center at (x, y)."""
    corner = (x - width / 2, y - 0.2)
    axis.add_patch(patches.FancyBboxPatch(corner, width, 0.4, "round,pad=0,rounding_size=0.08", facecolor=color,
                                          edgecolor="#555555", linewidth=0.8, zorder=2))  # fmt: skip
    axis.text(x, y, text, ha="center", va="center", fontsize=8, zorder=3)


def save(figure: pyplot.Figure, name: str) -> None:
    """Writes a figure to docs/images."""
    figure.tight_layout()
    figure.savefig(IMAGES / f"{name}.png", dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
