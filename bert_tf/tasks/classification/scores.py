"""Computes scores of classification and regression; the scores of GLUE's tasks are the same as in the GLUE paper."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np


def _sklearn(function_name: str, **options) -> Callable:
    def score(labels, predictions):
        from sklearn import metrics

        return getattr(metrics, function_name)(labels, predictions, **options)

    return score


def _r_squared(labels, predictions):
    # R squared is undefined if all labels are equal. Return 0 in this case, as for the correlations.
    total = np.sum(np.square(labels - np.mean(labels)), dtype=np.float64)
    return 1 - np.sum(np.square(labels - predictions), dtype=np.float64) / total if total else 0.0


def _correlation(function_name: str) -> Callable:
    def correlation(labels, predictions):
        from scipy import stats

        # A correlation is undefined if all labels or all predictions are equal. Return 0, as scikit-learn does for
        # Matthews correlation.
        if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
            return 0.0
        return getattr(stats, function_name)(labels.astype(np.float64), predictions.astype(np.float64)).statistic

    return correlation


SCORES: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": lambda labels, predictions: np.mean(labels == predictions),
    "f1": _sklearn("f1_score", zero_division=0.0),
    "macro_f1": _sklearn("f1_score", average="macro", zero_division=0.0),
    "matthews_correlation": _sklearn("matthews_corrcoef"),
    "r_squared": _r_squared,
    "pearson": _correlation("pearsonr"),
    "spearman": _correlation("spearmanr"),
}


def compute(names: Sequence[str], labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Computes scores by their names.
    `names`: keys of `SCORES`.
    `labels`: true ids of classes, or true scores, for N examples, [N].
    `predictions`: predicted ids of classes, or predicted scores, [N]. If a prediction is NaN, all results are NaN."""
    if np.isnan(predictions).any():
        return dict.fromkeys(names, float("nan"))
    return {name: float(SCORES[name](labels, predictions)) for name in names}
