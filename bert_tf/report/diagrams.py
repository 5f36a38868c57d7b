"""Diagrams of an evaluation as SVG text.

Letters: N examples.
"""

import matplotlib
import numpy as np
from matplotlib import ticker
from matplotlib.figure import Figure

from bert_tf.report.classes import Calibration
from bert_tf.report.curves import BLUE, GREY, ORANGE, STYLE, svg

# So many points make a page of a few hundred kilobytes.
_MOST_POINTS = 2000


def reliability(found: Calibration) -> str:
    """Draws the accuracy of each bin of confidence, beside the diagonal of perfect calibration."""
    with matplotlib.rc_context(STYLE):
        figure, axis = _axes("accuracy by confidence", "confidence", "accuracy")
        axis.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="calibrated")
        sizes = 12 + 150 * found.count / found.count.max()
        axis.plot(found.confidence, found.accuracy, color=BLUE, linewidth=1.2)
        axis.scatter(found.confidence, found.accuracy, s=sizes, color=BLUE, alpha=0.7, label="bin, area by examples")
        axis.set_xlim(0, 1.02)
        axis.set_ylim(0, 1.05)
        for each in (axis.xaxis, axis.yaxis):
            each.set_major_formatter(ticker.PercentFormatter(1.0))
        axis.legend(frameon=False, fontsize=10, loc="upper left", markerscale=0.5)
        return svg(figure)


def scatter(labels: np.ndarray, predictions: np.ndarray) -> str:
    """Draws predictions over labels, float [N] each, beside the diagonal; of many points, a sample."""
    with matplotlib.rc_context(STYLE):
        figure, axis = _axes("predicted by true score", "true", "predicted")
        x, y = _sample(labels, predictions)
        axis.scatter(x, y, s=8, color=BLUE, alpha=0.4, linewidths=0)
        ends = [min(labels.min(), predictions.min()), max(labels.max(), predictions.max())]
        axis.plot(ends, ends, color=GREY, linestyle="--", linewidth=1)
        return svg(figure)


def residuals(labels: np.ndarray, predictions: np.ndarray) -> str:
    """Draws how many examples have which error, predicted minus true, from float [N] each."""
    with matplotlib.rc_context(STYLE):
        figure, axis = _axes("errors", "predicted - true", "examples")
        axis.hist(predictions - labels, bins=30, color=BLUE, alpha=0.8)
        axis.axvline(0, color=ORANGE, linestyle="--", linewidth=1)
        return svg(figure)


def _axes(title: str, x: str, y: str):
    figure = Figure(figsize=(4.4, 3.1))
    axis = figure.add_axes((0.19, 0.17, 0.77, 0.72))
    axis.grid(color=GREY, alpha=0.3, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.set(title=title, xlabel=x, ylabel=y)
    return figure, axis


def _sample(*values: np.ndarray) -> list[np.ndarray]:
    if len(values[0]) <= _MOST_POINTS:
        return list(values)
    chosen = np.random.default_rng(0).choice(len(values[0]), _MOST_POINTS, replace=False)
    return [each[chosen] for each in values]
