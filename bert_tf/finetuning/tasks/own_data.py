"""A user's own tab-separated files as a task."""

import dataclasses
import math
from collections.abc import Sequence

from absl import logging

from bert_tf.checkpoint_formats import latest
from bert_tf.finetuning import description
from bert_tf.finetuning.tasks.tsv import Columns, read_examples
from bert_tf.finetuning.tasks.tsv_task import TSV, TsvTask
from bert_tf.settings import ClassifierSettings
from tfrecords.errors import InputError

# More different numbers than these are hardly classes.
_MOST_NUMBERS = 20


def own_task(settings: ClassifierSettings) -> TsvTask:
    """Returns the task "tsv".

    Its labels are those of `--tsv_labels`, else those of the run in `--output_dir`, else those in train.tsv.

    Raises:
      InputError: fewer than two labels, or a label twice.
    """
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
