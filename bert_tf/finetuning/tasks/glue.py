"""Classification tasks over one or two texts: GLUE's, and a user's own tab-separated files.

Paper: section 4.1 and appendix B.1. A task is a row of a table: where its columns are, what its
labels are, how it is scored.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.settings import ClassifierSettings
from tfrecords.errors import InputError


@dataclasses.dataclass(frozen=True)
class Example:
    """One line of a file: its texts, and its label as text (None in test files)."""

    text_a: str
    text_b: str | None
    label: str | None


@dataclasses.dataclass(frozen=True)
class Columns:
    """Where a file has what: columns by their name in the header, or by number from 0."""

    text_a: str
    text_b: str | None = None
    label: str | None = None
    has_header: bool = True


@dataclasses.dataclass(frozen=True)
class ClassificationTask:
    """A task.

    Attributes:
      name: what `--task_name` says.
      columns: of train.tsv and dev.tsv.
      test_columns: of test.tsv.
      labels: in the order of their ids; () for a regression.
      metrics: names in `METRICS`, the main one first.
      score_range: lowest and highest score of a regression.
    """

    name: str
    columns: Columns
    test_columns: Columns
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    score_range: tuple[float, float] = (0.0, 0.0)

    @property
    def is_regression(self) -> bool:
        """Whether the label is a number rather than a class."""
        return not self.labels

    @property
    def num_outputs(self) -> int:
        """Width of the head."""
        return len(self.labels) or 1

    @property
    def has_pairs(self) -> bool:
        """Whether there are two texts."""
        return self.columns.text_b is not None

    def label_value(self, text: str) -> float:
        """A label as the number the model learns: the class's id, or the score.

        Raises:
          InputError: an unknown label, or a score that is no number or out of range.
        """
        if not self.is_regression:
            if text not in self.labels:
                raise InputError(f"unknown label {text!r}; the task's labels are {', '.join(self.labels)}")
            return self.labels.index(text)
        low, high = self.score_range
        try:
            score = float(text)
        except ValueError as error:
            raise InputError(f"the score {text!r} is no number") from error
        if not low <= score <= high:
            raise InputError(f"the score {text} is outside {low:g} to {high:g}")
        return score


_TASKS = (
    ClassificationTask(
        "CoLA",
        Columns("3", label="1", has_header=False),
        Columns("sentence"),
        labels=("0", "1"),
        metrics=("matthews_correlation", "accuracy"),
    ),
    ClassificationTask(
        "MRPC",
        Columns("#1 String", "#2 String", "Quality"),
        Columns("#1 String", "#2 String"),
        labels=("0", "1"),
        metrics=("accuracy", "f1"),
    ),
    ClassificationTask(
        "SST-2",
        Columns("sentence", label="label"),
        Columns("sentence"),
        labels=("0", "1"),
        metrics=("accuracy",),
    ),
    ClassificationTask(
        "STS-B",
        Columns("sentence1", "sentence2", "score"),
        Columns("sentence1", "sentence2"),
        labels=(),
        metrics=("pearson", "spearman"),
        score_range=(0.0, 5.0),
    ),
)
TASK_NAMES = tuple(task.name for task in _TASKS)


def find_task(settings: ClassifierSettings, labels: Sequence[str] = ()) -> ClassificationTask:
    """The task that `--task_name` names, in any case of letters.

    Args:
      settings: for the task "tsv" its columns and labels too.
      labels: labels that an earlier run of the task "tsv" settled on.

    Raises:
      InputError: unknown name, or a "tsv" task without labels.
    """
    for task in _TASKS:
        if task.name.lower() == settings.task_name.lower():
            return task
    if settings.task_name.lower() != "tsv":
        raise InputError(
            f"--task_name={settings.task_name}: unknown; known are {', '.join(TASK_NAMES)} and tsv, "
            "for your own train.tsv, dev.tsv and test.tsv"
        )
    columns = Columns(
        settings.tsv_text_a_column,
        settings.tsv_text_b_column or None,
        settings.tsv_label_column,
        settings.tsv_has_header,
    )
    named = tuple(label.strip() for label in settings.tsv_labels.split(",") if label.strip())
    labels = named or tuple(labels) or _labels_in(f"{settings.data_dir}/train.tsv", columns)
    if len(set(labels)) < len(labels):
        raise InputError(f"--tsv_labels={settings.tsv_labels}: names a label twice")
    if len(labels) < 2:
        raise InputError(f"the task needs at least two labels but has {len(labels)}; name them with --tsv_labels")
    return ClassificationTask("tsv", columns, dataclasses.replace(columns, label=None), labels, metrics=("accuracy",))


def _labels_in(path: str, columns: Columns) -> tuple[str, ...]:
    return tuple(sorted({e.label for e in read_examples(path, columns) if e.label is not None}))


def read_split(task: ClassificationTask, data_dir: str, split: str) -> list[Example]:
    """Reads train, dev or test, every label checked.

    Raises:
      InputError: names the file and line.
    """
    path = f"{data_dir}/{split}.tsv"
    columns = task.test_columns if split == "test" else task.columns
    examples = read_examples(path, columns)
    for number, example in enumerate(examples, 2 if columns.has_header else 1):
        if example.label is None:
            continue
        try:
            task.label_value(example.label)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
    return examples


def read_examples(path: str, columns: Columns) -> list[Example]:
    """Reads a tab-separated file; quotes mean nothing, as in GLUE.

    Raises:
      InputError: the file is missing, empty, not UTF-8, lacks a column, or a line has another number
        of columns than the first.
    """
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path}: no such file; check --data_dir")
    with tf.io.gfile.GFile(path, "rb") as file:
        lines = file.read().split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    rows = [_cells(path, number, line) for number, line in enumerate(lines, 1)]
    if len(rows) <= columns.has_header:
        raise InputError(f"{path}: holds no example")
    width = len(rows[0])
    wanted = {c: _index(path, c, rows[0], columns.has_header) for c in _named(columns)}
    examples = []
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise InputError(
                f"{path}, line {number}: has {len(row)} columns, the first line has {width}; "
                "columns are set apart by single tabs"
            )
        if number == 1 and columns.has_header:
            continue
        text_b = row[wanted[columns.text_b]] if columns.text_b is not None else None
        label = row[wanted[columns.label]].strip() if columns.label is not None else None
        examples.append(Example(row[wanted[columns.text_a]], text_b, label))
    return examples


def _named(columns: Columns) -> list[str]:
    return [c for c in (columns.text_a, columns.text_b, columns.label) if c is not None]


def _cells(path: str, number: int, line: bytes) -> list[str]:
    encoding = "utf-8-sig" if number == 1 else "utf-8"
    try:
        return line.rstrip(b"\r").decode(encoding).split("\t")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}, line {number}: not UTF-8 ({error.reason}); save the file as UTF-8") from error


def _index(path: str, column: str, first_row: Sequence[str], has_header: bool) -> int:
    if has_header and column in first_row:
        return first_row.index(column)
    if column.isdigit() and int(column) < len(first_row):
        return int(column)
    have = ", ".join(first_row) if has_header else f"{len(first_row)} columns, counted from 0"
    raise InputError(f"{path}, line 1: there is no column {column!r}; the file has {have}")


def _f1(labels, predictions):
    from sklearn.metrics import f1_score

    return f1_score(labels, predictions, zero_division=0.0)


def _matthews_correlation(labels, predictions):
    from sklearn.metrics import matthews_corrcoef

    return matthews_corrcoef(labels, predictions)


def _correlation(function_name: str) -> Callable:
    def correlation(labels, predictions):
        from scipy import stats

        # undefined for a constant; 0, as scikit-learn's Matthews correlation has it
        if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
            return 0.0
        return getattr(stats, function_name)(labels, predictions).statistic

    return correlation


METRICS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": lambda labels, predictions: np.mean(labels == predictions),
    "f1": _f1,
    "matthews_correlation": _matthews_correlation,
    "pearson": _correlation("pearsonr"),
    "spearman": _correlation("spearmanr"),
}


def score(task: ClassificationTask, labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """The task's metrics, the main one first.

    Args:
      task: names the metrics.
      labels: [N], class ids or scores.
      predictions: [N], class ids or scores.
    """
    return {name: float(METRICS[name](labels, predictions)) for name in task.metrics}
