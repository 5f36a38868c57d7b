"""Makes the parts of the report on an evaluation of classes, scores or sets of labels.

Letters: N examples, C labels.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.tasks import report_parts
from bert_tf.tasks.classification.scores import SCORES
from bert_tf.tasks.report_parts import TEXTS, Confusions, Part, Table, chosen, texts, worst


def classes(entries: Sequence[Mapping], labels: Sequence[str]) -> list[Part]:
    """Returns the confusion matrix, the metrics of each class, and the worst errors."""
    truth, answers = (np.array([entry[name] for entry in entries]) for name in ("label", "prediction"))
    return [
        Confusions(truth, answers, labels),
        class_table(truth[:, None] == labels, answers[:, None] == labels, labels, is_exclusive=True),
        *chosen(entries, ["true", "predicted"], lambda entry, name: entry[name]),
    ]


def label_sets(entries: Sequence[Mapping], labels: Sequence[str]) -> list[Part]:
    """Returns the report's parts for sets of labels.

    The parts are the confusion counts and the metrics of each label, and the worst errors.
    """
    truth, answers = (np.array([[x in e[name] for x in labels] for e in entries]) for name in ("label", "prediction"))
    counts = [(a & b).sum(axis=0) for a, b in
              ((truth, answers), (truth, ~answers), (~truth, answers), (~truth, ~answers))]  # fmt: skip
    rows = [[label, *(f"{count[number]:,}" for count in counts)] for number, label in enumerate(labels)]
    wrong = worst([entry for entry, right in zip(entries, np.all(truth == answers, axis=1), strict=True) if not right])
    listed = [[f"{e['loss']:.3g}", ", ".join(e["label"]), ", ".join(e["prediction"]), *texts(e)] for e in wrong]
    note = f"{np.sum(np.any(truth != answers, axis=1)):,} of {len(entries):,} examples have a wrong label."
    return [
        Table("Labels, found and missed", ["", "found", "missed", "added", "rightly absent"], rows),
        class_table(truth, answers, labels),
        report_parts.errors(note, ["loss", "true", "predicted", *TEXTS], listed),
    ]


def scores(entries: Sequence[Mapping], labels: Sequence[str]) -> list[Part]:
    """Returns two tables.

    The first table has the correlations, the mean errors and a diagram of the scores. The second table has the largest
    errors.
    """
    del labels
    truth, answers = (np.array([entry[name] for entry in entries]) for name in ("label", "prediction"))
    errors = answers - truth
    rows = [[name.capitalize(), f"{SCORES[name](truth, answers):.4f}"] for name in ("pearson", "spearman")]
    rows.append(["Root mean squared error", f"{np.sqrt(np.mean(errors**2)):.4g}"])
    rows.append(["Mean absolute error", f"{np.mean(np.abs(errors)):.4g}"])
    listed = [
        [f"{e['prediction'] - e['label']:+.3g}", f"{e['label']:.4g}", f"{e['prediction']:.4g}", *texts(e)]
        for e in worst(entries)
    ]
    return [
        Table("Scores", ["", "value"], rows, f"{len(entries):,} examples.", scores=(truth, answers)),
        report_parts.errors("The largest errors come first.", ["error", "true", "predicted", *TEXTS], listed),
    ]


def class_table(truth: np.ndarray, answers: np.ndarray, labels: Sequence[str], is_exclusive: bool = False) -> Table:
    """Returns a table with the metrics of each label and the means of the metrics.

    Args:
      truth: bool [N, C], whether an example has a label.
      answers: bool [N, C], whether the model predicts the label.
      labels: names of the C labels.
      is_exclusive: whether each example has exactly one label. If true, the means are over the labels that occur, as in
        scikit-learn.
    """
    right, found, support = (np.sum(some, axis=0) for some in (truth & answers, answers, truth))
    metrics = np.stack([right, right, 2 * right]) / np.maximum([found, support, found + support], 1)  # [3, C]
    averaged = (found + support > 0) | (not is_exclusive)
    what = "mean of the classes" if averaged.all() else f"mean of the {averaged.sum()} classes that occur"
    columns = np.column_stack([metrics, metrics[:, averaged].mean(axis=1)]).T
    rows = [
        [name, *(f"{value:.3f}" for value in values), f"{count:,}"]
        for name, values, count in zip([*labels, what], columns, [*support, support.sum()], strict=True)
    ]
    return Table("Classes" if is_exclusive else "Labels", ["", "precision", "recall", "F1", "support"], rows)
