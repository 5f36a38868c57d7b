"""Draws charts as SVG text, for self-contained pages."""

import dataclasses
import io
import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib import ticker
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PURPLE, GREY = "#2f6fde", "#d9730d", "#2e9e6b", "#8e5bd0", "#8a93a3"
# If a curve had more points than this, they could not be distinguished at the size of a panel.
_MOST_POINTS = 300
# A scatter plot with this many points makes a page of a few hundred kilobytes.
_MOST_DOTS = 2000
_PERCENT = ticker.PercentFormatter(1.0)
_with_style = matplotlib.rc_context(
    {
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": GREY,
        "axes.labelsize": 11,
        "axes.titlesize": 12,
        # Charts are transparent, so that they fit a light and a dark page.
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "axes.titlelocation": "left",
        "figure.constrained_layout.h_pad": 0.1,
        "grid.color": GREY,
        "grid.alpha": 0.3,
        "legend.fontsize": 11,
        "legend.frameon": False,
        "lines.linewidth": 1.5,
        "xtick.color": GREY,
        "ytick.color": GREY,
        # The text must be readable on a phone, which shows a panel at about this size.
        "xtick.labelsize": 11,
        "ytick.labelsize": 11,
        "svg.fonttype": "none",
        "svg.hashsalt": "bert_tf",
    }
)


@dataclasses.dataclass(frozen=True)
class Curve:
    """A curve in a panel."""

    label: str
    points: Sequence[tuple[float, float]]  # (step, value) pairs; values that are not finite are left out
    color: str = BLUE
    dots: bool = False  # whether to mark every point
    # value of the best constant answer on the same data; drawn as a dashed line. None if unknown.
    baseline: float | None = None


@_with_style
def panel(
    title: str,
    curves: Sequence[Curve],
    *,
    log: bool = False,
    percent: bool = False,
    from_zero: bool = False,
    phases: Sequence[int] = (),
    last_step: int | None = None,
) -> str:
    """Draws a small diagram with curves over the steps.
    `title`: the name of the values, with their unit.
    `log`: whether the axis of values is logarithmic.
    `percent`: whether values are fractions.
    `from_zero`: whether the axis of values begins at 0.
    `phases`: steps at which phases begin; a vertical line marks each of these steps.
    `last_step`: end of the axis of steps, if the axis begins at 0; None if the axis covers only the points."""
    figure = Figure(figsize=(4.4, 2.7))
    axis = figure.add_axes((0.15, 0.13, 0.82, 0.74), title=title)  # the same position in all panels of a page
    axis.grid(axis="y")
    for step in phases:
        axis.axvline(step, color=GREY, linestyle=":", linewidth=1)
    for curve in curves:
        steps, values = _thinned(curve.points)
        # A line through a single point would be invisible.
        marker = "o" if curve.dots or len(steps) == 1 else ""
        axis.plot(steps, values, marker=marker, markersize=3.5, color=curve.color, label=curve.label)
        if curve.baseline is not None:
            axis.axhline(curve.baseline, color=curve.color, linestyle="--", linewidth=1)
    has_baseline = any(curve.baseline is not None for curve in curves)
    if has_baseline:
        axis.plot([], [], color=GREY, linestyle="--", linewidth=1, label="best constant answer")
    if log:
        axis.set_yscale("log")
        low, high = axis.get_ylim()
        # Within a decade or two, powers of ten alone would give too few ticks.
        powers = ticker.LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,), numticks=8)
        axis.yaxis.set_major_locator(powers if high > 5 * low else ticker.MaxNLocator(4))
        axis.yaxis.set_minor_formatter(ticker.NullFormatter())
    axis.yaxis.set_major_formatter(_PERCENT if percent else _short)
    lowest = min((value for curve in curves for _, value in curve.points), default=-1)
    if from_zero or axis.get_ylim()[0] < 0 <= lowest:  # leave no space below scores and losses of 0
        axis.set_ylim(bottom=0)
    if last_step:
        axis.set_xlim(-0.02 * last_step, 1.02 * last_step)
    axis.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
    axis.xaxis.set_major_formatter(_short)
    if len(curves) > 1 or has_baseline:
        axis.legend()
    return _svg(figure)


@_with_style
def dots(title: str, rows: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Draws the fractions of groups on one axis, with one row per group, and marks the mean of each group.
    `title`: the name of the fractions.
    `rows`: the name and the fractions of each group, from top to bottom."""
    figure, axis = _axes(title, size=(8.8, 0.7 + 0.26 * len(rows)))
    axis.grid(visible=False, axis="y")
    for place, (_, values) in enumerate(rows):
        axis.plot(values, [place] * len(values), "o", color=BLUE, alpha=0.6, markersize=5)
        if len(values) > 1:
            axis.plot([np.mean(values)], [place], "|", color=ORANGE, markersize=13, markeredgewidth=2)
    axis.set_yticks(range(len(rows)), [label for label, _ in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.xaxis.set_major_formatter(_PERCENT)
    return _svg(figure)


@_with_style
def histogram(title: str, groups: Mapping[str, np.ndarray], what: str) -> str:
    """Draws the distributions of groups of values, float [N] each, as shares of their group; `what` names a value."""
    figure, axis = _axes(title, size=(4.4, 3.3), xlabel=what, ylabel="share of the group")
    every = np.concatenate(list(groups.values()))
    edges = np.linspace(every.min(), max(every.max(), every.min() + 1e-6), 31)
    for (name, values), color in zip(groups.items(), (BLUE, ORANGE), strict=False):
        axis.hist(values, edges, weights=np.full(len(values), 1 / max(1, len(values))), histtype="step", color=color,
                  label=name)  # fmt: skip
    axis.yaxis.set_major_formatter(_PERCENT)
    figure.legend(loc="outside lower left")
    return _svg(figure)


@_with_style
def scatter(labels: np.ndarray, predictions: np.ndarray) -> str:
    """Draws predictions against labels, float [N] each, and the diagonal; if N is large, only a sample is drawn."""
    figure, axis = _axes("predicted by true score", xlabel="true", ylabel="predicted")
    shown = np.random.default_rng(0).permutation(len(labels))[:_MOST_DOTS]
    axis.scatter(labels[shown], predictions[shown], s=8, color=BLUE, alpha=0.4, linewidths=0)
    ends = [np.min([labels, predictions]), np.max([labels, predictions])]
    axis.plot(ends, ends, color=GREY, linestyle="--", linewidth=1)
    return _svg(figure)


def _axes(title: str, size: tuple[float, float] = (4.4, 3.1), **labels):
    figure = Figure(figsize=size, layout="constrained")
    axis = figure.add_subplot(title=title, **labels)
    axis.grid()
    return figure, axis


def _svg(figure: Figure) -> str:
    target = io.StringIO()
    figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return target.getvalue()[target.getvalue().index("<svg") :]


def _thinned(points: Sequence[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns steps and values; averages neighbors if there are too many points."""
    finite = np.array([point for point in points if math.isfinite(point[1])], float).reshape(-1, 2)
    if len(finite) > _MOST_POINTS:
        finite = np.array([group.mean(axis=0) for group in np.array_split(finite, _MOST_POINTS)])
    return finite[:, 0], finite[:, 1]


def _short(value: float, _place: int = 0) -> str:
    """Returns the label of a tick: "20k", "0.001", "2.5e-4". A longer label would be cut off at the panel's edge."""
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.4g}{letter}"
    if not 0 < abs(value) < 1e-3:
        return f"{value:.4g}"
    digits, exponent = f"{value:.3e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"
