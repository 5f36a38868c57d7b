"""The kinds of tasks that predict classes, scores or sets of labels for texts, for the registry."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks import report_parts
from bert_tf.tasks.classification import multi_label
from bert_tf.tasks.classification.answers import Answers
from bert_tf.tasks.classification.classes import Classes
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.example import CLASSIFICATION, MULTI_LABEL, REGRESSION
from bert_tf.tasks.classification.find import find_task
from bert_tf.tasks.classification.multi_label import LabelSets
from bert_tf.tasks.classification.reading import LongTextRule
from bert_tf.tasks.classification.regression import Regression
from bert_tf.tasks.classification.scores import SCORES
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.registry import TaskKind
from bert_tf.tasks.report_parts import TEXTS, Confusions, Part, Table, of_lines, texts, worst, worst_choices
from bert_tf.text.packing import TRUNCATE


def answers_of(described: TaskDescription, folder: str) -> Answers | None:
    """Returns the answers of a trained task; None if the task is of another kind. `folder` has the thresholds."""
    if described.kind == REGRESSION:
        return Regression.of_parameters(described.parameters)
    labels = tuple(described.labels)
    if described.kind == MULTI_LABEL:
        return LabelSets(labels, run_folder=folder)
    return Classes(labels) if described.kind == CLASSIFICATION else None


def _task_of(described: TaskDescription, folder: str) -> ClassificationTask:
    parameters, answers = described.parameters, answers_of(described, folder)
    has_pairs, reading = parameters["has_pairs"], LongTextRule.of_parameters(parameters)
    return ClassificationTask(described.task_name, answers, has_pairs, reading=reading)


def _check_format(format: str, source: str, described: TaskDescription) -> None:
    reading = LongTextRule.of_parameters(described.parameters)
    if reading.pooling != "cls":
        raise InputError(
            f"--format={format}: its classifier reads the pooled [CLS], but {source} was trained with "
            f"--pooling={reading.pooling}; give --format=bert_tf"
        )
    if reading.has_both_orders:
        raise InputError(
            f"--format={format}: its code reads a pair in one order, but {source} was trained with "
            "--pair_order=both; give --format=bert_tf"
        )
    if reading.long_text != TRUNCATE:
        logging.warning(
            "--format=%s: its code truncates texts, but %s was trained with --long_text=%s, so the answers to "
            "texts of more than %d tokens will differ; --format=bert_tf keeps --long_text",
            format, source, reading.long_text, described.max_seq_length,
        )  # fmt: skip


def _classes(entries: Sequence[Mapping], labels: Sequence[str]) -> list[Part]:
    """Returns the confusion matrix, the metrics of each class, and the worst errors."""
    truth, answers = (np.array([entry[name] for entry in entries]) for name in ("label", "prediction"))
    return [
        Confusions(truth, answers, labels),
        class_table(truth[:, None] == labels, answers[:, None] == labels, labels, is_exclusive=True),
        *worst_choices(entries, ["true", "predicted"], lambda entry, name: entry[name]),
    ]


def _label_sets(entries: Sequence[Mapping], labels: Sequence[str]) -> list[Part]:
    """Returns the report's parts for sets of labels. The parts are the confusion counts and the metrics of each label,
    and the worst errors."""
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


def _scores(entries: Sequence[Mapping], labels: Sequence[str]) -> list[Part]:
    """Returns two tables. The first table has the correlations, the mean errors and a diagram of the scores. The second
    table has the largest errors."""
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
    `truth`: bool [N, C], whether an example has a label.
    `answers`: bool [N, C], whether the model predicts the label.
    `labels`: names of the C labels.
    `is_exclusive`: whether each example has exactly one label. If true, the means are over the labels that occur, as in
      scikit-learn."""
    scores = multi_label.label_scores(truth, answers)
    averaged = np.any(truth | answers, axis=0) | (not is_exclusive)
    what = "mean of the classes" if averaged.all() else f"mean of the {averaged.sum()} classes that occur"
    means = [*scores[averaged, :3].mean(axis=0), scores[:, 3].sum()]
    rows = [
        [name, *(f"{value:.3f}" for value in values[:3]), f"{values[3]:,.0f}"]
        for name, values in zip([*labels, what], [*scores, means], strict=True)
    ]
    return Table("Classes" if is_exclusive else "Labels", ["", "precision", "recall", "F1", "support"], rows)


def _kind(name: str, report: Callable, problem_type: str, **more) -> TaskKind:
    entries = {"problem_type": problem_type}
    return TaskKind(
        name, ClassifierSettings, find_task, _task_of, of_lines(report), _check_format, config_entries=entries, **more
    )


KINDS = [
    _kind(CLASSIFICATION, _classes, "single_label_classification"),
    _kind(REGRESSION, _scores, "regression"),
    _kind(MULTI_LABEL, _label_sets, "multi_label_classification", tuned=multi_label.THRESHOLDS),
]
