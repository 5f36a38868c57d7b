"""GLUE's tasks, and a user's own tab-separated files.

Paper: section 4.1 and appendix B.1.

A task is a row of a table: where its columns are, what its labels are, how it is scored.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.checkpoint_formats import latest
from bert_tf.finetuning import description
from bert_tf.finetuning.task import Split
from bert_tf.finetuning.tasks import scores
from bert_tf.finetuning.tasks.classification import ClassificationTask, Example
from bert_tf.finetuning.tasks.tsv import Columns, read_examples
from bert_tf.settings import ClassifierSettings
from tfrecords.errors import InputError

TSV = "tsv"
# More different numbers than these are hardly classes.
_MOST_NUMBERS = 20


@dataclasses.dataclass(frozen=True)
class TsvTask(ClassificationTask):
    """A task whose splits are train.tsv, dev.tsv and test.tsv in one folder.

    Attributes:
      name: the value of `--task_name`.
      columns: of train.tsv and dev.tsv.
      test_columns: of test.tsv.
      labels: in the order of their ids; () for a regression.
      score_names: names in `SCORES`, the main one first.
      score_range: lowest and highest score of a regression.
      data_dir: the folder.
    """

    name: str
    columns: Columns
    test_columns: Columns
    labels: tuple[str, ...]
    score_names: tuple[str, ...]
    score_range: tuple[float, float] = (0.0, 0.0)
    data_dir: str = ""

    @property
    def has_pairs(self) -> bool:
        """Whether there are two texts."""
        return self.columns.text_b is not None

    def data_facts(self) -> dict[str, Any]:
        """Returns the columns of a user's own files; those of GLUE's tasks follow from the name."""
        if self.name != TSV:
            return {}
        return {f"tsv_{name}": value for name, value in dataclasses.asdict(self.columns).items()}

    def files(self, split: str) -> list[str]:
        """See `Task`."""
        return [f"{self.data_dir}/{split}.tsv"]

    def read(self, split: str) -> list[Example]:
        """Reads train, dev or test and checks every label.

        Raises:
          InputError: names the file and the line.
        """
        (path,) = self.files(split)
        columns = self.test_columns if split == "test" else self.columns
        examples = read_examples(path, columns)
        for line, example in examples:
            if example.label is None:
                continue
            try:
                self.label_value(example.label)
            except InputError as error:
                raise InputError(f"{path}, line {line}: {error}") from error
        return [example for _, example in examples]

    def scores(self, split: Split, predictions: np.ndarray) -> dict[str, float]:
        """Computes the task's scores from logits [N, C], the main one first."""
        labels = split.columns["label_ids"].numpy()
        answers = predictions[:, 0] if self.is_regression else np.argmax(predictions, axis=1)
        return scores.compute(self.score_names, labels, answers)


_TASKS = (
    TsvTask(
        "CoLA",
        Columns("3", label="1", has_header=False),
        Columns("sentence"),
        labels=("0", "1"),
        score_names=("matthews_correlation", "accuracy"),
    ),
    TsvTask(
        "MRPC",
        Columns("#1 String", "#2 String", "Quality"),
        Columns("#1 String", "#2 String"),
        labels=("0", "1"),
        score_names=("accuracy", "f1"),
    ),
    TsvTask(
        "SST-2",
        Columns("sentence", label="label"),
        Columns("sentence"),
        labels=("0", "1"),
        score_names=("accuracy",),
    ),
    TsvTask(
        "STS-B",
        Columns("sentence1", "sentence2", "score"),
        Columns("sentence1", "sentence2"),
        labels=(),
        score_names=("pearson", "spearman"),
        score_range=(0.0, 5.0),
    ),
)
TASK_NAMES = tuple(task.name for task in _TASKS)


def find_task(settings: ClassifierSettings) -> TsvTask:
    """Returns the task that `--task_name` names, in any case of letters.

    The labels of a user's own files are those of `--tsv_labels`, else those of the run in `--output_dir`, else those
    in train.tsv.

    Raises:
      InputError: the name is unknown, or a user's own files have fewer than two labels.
    """
    for task in _TASKS:
        if task.name.lower() == settings.task_name.lower():
            return dataclasses.replace(task, data_dir=settings.data_dir)
    if settings.task_name.lower() != TSV:
        raise InputError(
            f"--task_name={settings.task_name}: unknown; known are {', '.join(TASK_NAMES)} and {TSV}, "
            "for your own train.tsv, dev.tsv and test.tsv"
        )
    return _own_task(settings)


def _own_task(settings: ClassifierSettings) -> TsvTask:
    columns = Columns(
        settings.tsv_text_a_column,
        settings.tsv_text_b_column or None,
        settings.tsv_label_column,
        settings.tsv_has_header,
        settings.tsv_quoted,
    )
    train_file = f"{settings.data_dir}/train.tsv"
    named = tuple(label.strip() for label in settings.tsv_labels.split(",") if label.strip())
    if settings.tsv_regression:
        labels, score_names = (), ("pearson", "spearman")
    else:
        labels = named or _labels_of_run(settings.output_dir) or _labels_in(train_file, columns)
        score_names = ("accuracy",)
        _show(labels)
        if len(set(labels)) < len(labels):
            raise InputError(f"--tsv_labels={settings.tsv_labels}: names a label twice")
        if len(labels) < 2:
            raise InputError(f"the task needs at least two labels but has {len(labels)}; name them with --tsv_labels")
    return TsvTask(
        TSV,
        columns,
        dataclasses.replace(columns, label=None),
        labels,
        score_names,
        score_range=(-math.inf, math.inf),
        data_dir=settings.data_dir,
    )


def _show(labels: Sequence[str]) -> None:
    logging.info("%d classes: %s", len(labels), ", ".join(labels))
    if len({label.casefold() for label in labels}) < len(set(labels)):
        logging.warning("some classes differ only in case; if that is a mistake, mend the labels in the files")


def _labels_of_run(output_dir: str) -> tuple[str, ...]:
    """Returns the labels of a run of the task "tsv" in this folder; () if there is none."""
    if not (latest.prefixes(output_dir) and description.exists(output_dir)):
        return ()
    found = description.read(output_dir)
    return tuple(found.labels) if found.task_name == TSV else ()


def _labels_in(path: str, columns: Columns) -> tuple[str, ...]:
    """Returns the sorted labels of a file.

    Raises:
      InputError: the column looks like numbers or texts instead of classes.
    """
    found = [example.label for _, example in read_examples(path, columns)]
    labels = tuple(sorted(set(found)))
    what = f"{path}: column {columns.label!r} has {len(labels)} different values in {len(found)} lines, such as"
    what += f" {', '.join(map(repr, labels[:3]))}"
    if len(labels) > _MOST_NUMBERS and all(map(_is_number, labels)):
        raise InputError(f"{what}; give --tsv_regression to learn numbers, or name the classes with --tsv_labels")
    if len(found) > _MOST_NUMBERS and 2 * len(labels) > len(found):
        raise InputError(f"{what}; check --tsv_label_column, or name the classes with --tsv_labels")
    return labels


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
