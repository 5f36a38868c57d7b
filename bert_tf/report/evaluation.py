"""Reads the files of the last evaluation in fine-tuning, and draws the report's sections about this evaluation.

The kind of task decides what is shown; see `registry.TaskKind.report`.
"""

import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.core import storage
from bert_tf.finetuning import description, distillation
from bert_tf.report import charts
from bert_tf.report.page import confusion_matrix, elements
from bert_tf.tasks import registry
from bert_tf.tasks.report_parts import MOST_ERRORS, Confusions, Histogram, Part
from bert_tf.training import metrics_file

# A larger matrix would not be readable.
_MOST_CLASSES = 20


def sections(folder: str) -> str:
    """Returns the HTML of the sections about a run's last evaluations: first on the dev data, then on other data. The
    sections of each evaluation begin with the name of the data and the step of the weights."""
    if not description.exists(folder):
        return ""
    task = description.read(folder)
    kind = registry.of_task(task, folder)
    evaluated = [(metrics_file.DEV, folder, "dev")]
    evaluated += [(name, other, "eval") for name, other in metrics_file.other_data(folder).items()]
    drawn = [
        (_head(name, source), list(map(draw, parts)))
        for name, source, prefix in evaluated
        if (parts := kind.report(source, prefix, task))
    ]
    return _teacher(folder) + elements.evaluations(drawn)


def _teacher(folder: str) -> str:
    """Returns a section that compares the run with its teacher on the dev data; "" without a teacher."""
    path = os.path.join(folder, distillation.NAME)
    if not tf.io.gfile.exists(path):
        return ""
    with storage.json_file(path, "train again") as entries:
        scores, own = entries["scores"], metrics_file.read_results(folder)
        values = {"teacher": scores, "this model": {name: own.get(f"eval_{name}") for name in scores}}
        sizes = {"teacher": entries["teacher_weights"], "this model": entries["student_weights"]}
        rows = [
            [who, f"{sizes[who]:,}", *("" if value is None else f"{value:.4g}" for value in of_model.values())]
            for who, of_model in values.items()
        ]
        return elements.section("Teacher", elements.table(["", "weights", *scores], rows), note=entries["teacher"])


def _head(name: str, folder: str) -> str:
    step = metrics_file.evaluated_step(folder)
    return name if step is None else f"{name}, step {step:,}"


def draw(part: Part) -> str:
    if isinstance(part, Confusions):
        from sklearn import metrics  # takes more than a second, and other parts do not need it

        return confusions(metrics.confusion_matrix(part.truth, part.answers, labels=part.labels), part.labels)
    if isinstance(part, Histogram):
        return elements.section("", elements.charts([charts.histogram(part.title, part.groups, part.what)], "single"))
    table = elements.table(part.head, part.rows, [] if part.is_text else None) if part.rows else ""
    drawn = [elements.charts([charts.scatter(*part.scores)], "single")] if part.scores else []
    return elements.section(part.title, table, *drawn, note=part.note)


def confusions(matrix: np.ndarray, labels: Sequence[str]) -> str:
    """Returns a section with the confusion matrix. If there are many classes, the section lists the pairs of classes
    that are confused most often instead.
    `matrix`: int [C, C]; rows are true classes, columns are predicted classes.
    `labels`: names of the C classes."""
    if len(labels) <= _MOST_CLASSES:
        note = "Rows are true classes, columns are predicted classes. Percentages are shares of the row."
        return elements.section("Confusion matrix", confusion_matrix(labels, matrix.tolist()), note=note)
    wrong = matrix - np.diag(np.diag(matrix))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_ERRORS]
    rows = [
        [labels[row], labels[column], f"{wrong[row, column]:,}", f"{wrong[row, column] / matrix[row].sum():.1%}"]
        for row, column in zip(*np.unravel_index(order, wrong.shape), strict=True)
        if wrong[row, column]
    ]
    note = f"The pairs of {len(labels)} classes that are confused most often. Shares refer to the true class."
    pairs = elements.table(["true", "predicted", "examples", "share"], rows) if rows else "No classes are confused."
    return elements.section("Confusion matrix", pairs, note=note)
