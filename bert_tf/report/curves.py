"""Curves as SVG text, for pages that stand alone."""

import dataclasses
import io
import math
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib import ticker
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PURPLE, GREY = "#2f6fde", "#d9730d", "#2e9e6b", "#8e5bd0", "#8a93a3"
# At this size nobody can tell more points apart.
_MOST_POINTS = 300
STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelsize": 11,
    "axes.titlesize": 12,
    # the page shows through, light or dark
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.titlelocation": "left",
    "xtick.color": GREY,
    "ytick.color": GREY,
    # large enough for a phone, which shows a panel at about this size
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "svg.fonttype": "none",
    "svg.hashsalt": "bert_tf",
}


@dataclasses.dataclass(frozen=True)
class Curve:
    """A curve of a panel.

    Attributes:
      label: its name in the legend.
      points: (step, value) pairs; values that are not finite are left out.
      color: of the line.
      dots: whether to mark every point.
      baseline: value of the same data that needs no learning, drawn as a dashed line; None for none.
    """

    label: str
    points: Sequence[tuple[float, float]]
    color: str = BLUE
    dots: bool = False
    baseline: float | None = None


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
    """Draws a small diagram over the steps.

    Args:
      title: the name of the values, with their unit.
      curves: one or more.
      log: whether the values' axis is logarithmic.
      percent: whether values are fractions.
      from_zero: whether the values' axis begins at 0.
      phases: steps at which something changed, marked by a line.
      last_step: end of the steps' axis, which then begins at 0; None for that of the points.

    Returns:
      An SVG element.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.4, 2.7))
        axis = figure.add_axes((0.15, 0.13, 0.82, 0.74))
        axis.grid(axis="y", color=GREY, alpha=0.3, linewidth=0.8)
        for step in phases:
            axis.axvline(step, color=GREY, linestyle=":", linewidth=1)
        for curve in curves:
            steps, values = _thinned(curve.points)
            # a line through one point would not be seen
            style = {"marker": "o", "markersize": 3.5} if curve.dots or len(steps) == 1 else {}
            axis.plot(steps, values, color=curve.color, linewidth=1.5, label=curve.label, **style)
            if curve.baseline is not None:
                axis.axhline(curve.baseline, color=curve.color, linestyle="--", linewidth=1)
        has_baseline = any(curve.baseline is not None for curve in curves)
        if has_baseline:
            axis.plot([], [], color=GREY, linestyle="--", linewidth=1, label="best constant answer")
        if log:
            _make_logarithmic(axis)
        elif percent:
            axis.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
        else:
            axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _short(value)))
        lowest = min((value for curve in curves for _, value in curve.points), default=-1)
        if from_zero or axis.get_ylim()[0] < 0 <= lowest:  # scores and losses of 0 need no room below
            axis.set_ylim(bottom=0)
        if last_step:
            axis.set_xlim(-0.02 * last_step, 1.02 * last_step)
        axis.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
        axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _short(value)))
        axis.set_title(title)
        if len(curves) > 1 or has_baseline:
            axis.legend(frameon=False, fontsize=11)
        return svg(figure)


def dots(title: str, rows: Sequence[tuple[str, Sequence[float]]], percent: bool = False) -> str:
    """Draws the values of some groups on one axis, a row for each group, and marks each group's mean.

    Args:
      title: the name of the values.
      rows: names of the groups and their values, from top to bottom.
      percent: whether values are fractions.

    Returns:
      An SVG element.
    """
    with matplotlib.rc_context(STYLE):
        height = 0.7 + 0.26 * len(rows)
        figure = Figure(figsize=(8.8, height))
        axis = figure.add_axes((0.32, 0.35 / height, 0.64, 1 - 0.7 / height))
        axis.grid(axis="x", color=GREY, alpha=0.3, linewidth=0.8)
        for place, (_, values) in enumerate(rows):
            axis.plot(values, [place] * len(values), "o", color=BLUE, alpha=0.6, markersize=5)
            if len(values) > 1:
                axis.plot([sum(values) / len(values)], [place], "|", color=ORANGE, markersize=13, markeredgewidth=2)
        axis.set_yticks(range(len(rows)), [label for label, _ in rows])
        axis.set_ylim(len(rows) - 0.5, -0.5)
        if percent:
            axis.xaxis.set_major_formatter(ticker.PercentFormatter(1.0))
        axis.set_title(title)
        return svg(figure)


def svg(figure: Figure) -> str:
    """Returns a figure as an SVG element that refers to nothing outside itself."""
    target = io.StringIO()
    metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with matplotlib.rc_context(STYLE):
        figure.savefig(target, format="svg", metadata=metadata)
    return target.getvalue()[target.getvalue().index("<svg") :]


def _thinned(points: Sequence[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns steps and values; averages neighbors if there are too many points."""
    finite = np.array([point for point in points if math.isfinite(point[1])], float).reshape(-1, 2)
    if len(finite) > _MOST_POINTS:
        finite = np.array([group.mean(axis=0) for group in np.array_split(finite, _MOST_POINTS)])
    return finite[:, 0], finite[:, 1]


def _make_logarithmic(axis) -> None:
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    # within a decade or two, the powers of ten alone would be too few ticks
    subs = (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)
    locator = ticker.LogLocator(subs=subs, numticks=8)
    if sum(low <= tick <= high for tick in locator.tick_values(low, high)) < 2:
        locator = ticker.MaxNLocator(4)
    axis.yaxis.set_major_locator(locator)
    axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _short(value)))
    axis.yaxis.set_minor_formatter(ticker.NullFormatter())


def _short(value: float) -> str:
    """Returns the label of a tick: "20k", "0.001", "1e-05"."""
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.4g}{letter}"
    return f"{value:.4g}"
