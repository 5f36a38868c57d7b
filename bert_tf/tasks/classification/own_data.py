"""Creates a task for a user's own data from a command."""

import dataclasses
from collections import Counter
from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.dev_share import with_dev_share
from bert_tf.finetuning.resolution import Command
from bert_tf.runs import run_record
from bert_tf.tasks import tables
from bert_tf.tasks.classification import class_weights, glue
from bert_tf.tasks.classification.classification_task import CLASSIFICATION, REGRESSION, parse_score, score_scale
from bert_tf.tasks.classification.multi_label import MULTI_LABEL, MultiLabelTask
from bert_tf.tasks.classification.own_task import OwnTask
from bert_tf.tasks.classification.settings import IN_MEMORY, OWN_DATA, ClassifierSettings
from bert_tf.tasks.classification.table_source import TableSource, TextSource
from bert_tf.tasks.classification.tfds_source import TfdsSource, open_set

# If the labels are numbers and have more different values than this, they are probably scores, not classes.
_MOST_NUMBERS = 20
_DEFAULTS = {
    "text_a_column": "text",
    "text_b_column": "",
    "label_column": "label",
    "has_header": True,
    "quoted": None,
    "label_separator": ",",
}
_SCORES = {
    CLASSIFICATION: ("accuracy", "macro_f1"),
    REGRESSION: ("pearson", "spearman", "r_squared"),
    MULTI_LABEL: ("micro_f1", "macro_f1", "subset_accuracy"),
}


def own_task(command: Command, source: TextSource | None = None) -> OwnTask:
    """Returns the task for a user's own data.

    The labels come from `--labels` or `--label_file`, else from the run in `--output_dir`, else from the source's
    description, else from the training data, which this function then reads. Class weights and the scale of scores
    come from the training data or from the run.

    Args:
      command: the command with the settings of the task.
      source: source of the examples; None for the source that the settings name.

    Raises:
      InputError: the data contradicts the kind of task or the run in `--output_dir`, there are fewer than two labels,
        or a label is listed twice.
    """
    settings, known = command.settings, command.trained
    if known and known.task_name not in (OWN_DATA, IN_MEMORY):
        if settings.do_train:
            command, known = dataclasses.replace(command, trained=None), None
        elif not source:
            raise InputError(
                f"--output_dir={settings.output_dir}: holds a run of {known.task_name}; give "
                f"--task_name={known.task_name} for this task's files, or predict other texts in Python with "
                "bert_tf.classifier.TextClassifier.load"
            )
    if not source:
        source = (_tfds_source if settings.tfds_name else _table_source)(command)
    kind = source.kind or _kind(settings, known)
    official = _glue_scores(settings)
    scores = official or _SCORES[kind]
    name = known.task_name if known else settings.task_name.lower() or OWN_DATA
    if settings.class_weights and kind == REGRESSION:
        raise InputError("--class_weights is for classes, but the labels are numbers; drop the flag")
    labels = () if kind == REGRESSION else _labels(settings, known, source)
    if kind == MULTI_LABEL:
        more = {"run_folder": command.results_dir, "tune_thresholds": settings.tune_thresholds}
        task = MultiLabelTask(name, source, labels, scores, **more)
    else:
        task = OwnTask(name, source, labels, scores)
    task = dataclasses.replace(task, writes_texts=settings.predictions_with_texts)
    task = with_dev_share(task, command)
    if kind != REGRESSION:
        return dataclasses.replace(task, class_weights=_class_weights(settings, known, task))
    mean, deviation = (0.0, 1.0) if official else _scale(task, known)
    return dataclasses.replace(task, mean=mean, deviation=deviation)


def _kind(settings: ClassifierSettings, known: TaskDescription | None) -> str:
    if settings.multi_label:
        return MULTI_LABEL
    if settings.regression:
        return REGRESSION
    return known.kind if known else CLASSIFICATION


def _table_source(command: Command) -> TableSource:
    settings, facts = command.settings, command.values(**_DEFAULTS)
    for flag in ("text_a_column", "text_b_column"):
        if facts[flag] == facts["label_column"]:
            raise InputError(f"--{flag}={facts[flag]}: is the column of the label; give the column of the text")
    source = TableSource(
        settings.data_dir,
        settings.data_paths,
        "" if settings.data_format == "auto" else settings.data_format,
        text_a=facts["text_a_column"],
        text_b=facts["text_b_column"],
        label=facts["label_column"],
        id=settings.id_column or "",
        has_header=facts["has_header"],
        quoted=facts["quoted"],
        separator=facts["label_separator"],
        has_label_sets=_kind(settings, command.trained) == MULTI_LABEL,
    )
    asks_run = settings.id_column is None and settings.do_predict and not settings.do_train
    return _with_ids_of_run(source, settings.output_dir) if asks_run else source


def _with_ids_of_run(source: TableSource, folder: str) -> TableSource:
    """Returns a source with the id column of the run's last training, if the test file has this column.

    The id column only names predictions. Therefore, it is not part of a run's identity, unlike the columns that a model
    reads.
    """
    column = run_record.last_settings(folder).get("id_column")
    if not column:
        return source
    named = dataclasses.replace(source, id=column)
    try:
        named.id_name()  # reads the test file
    except tables.MissingColumn as error:
        logging.warning("predictions have numbers instead of ids; the test data lacks the id column of %s (%s)",
                        folder, error)  # fmt: skip
        return source
    return named


def _tfds_source(command: Command) -> TfdsSource:
    settings = command.settings
    columns = command.values(text_a_column=None, text_b_column=None, label_column=None)
    is_regression = _kind(settings, command.trained) == REGRESSION
    return open_set(settings.tfds_name, settings.tfds_splits, columns, is_regression)


def _glue_scores(settings: ClassifierSettings) -> tuple[str, ...]:
    """Returns the names of the official scores of a GLUE task in TensorFlow Datasets; () for other data sets."""
    sets = {f"glue/{name.lower().replace('-', '')}": task.score_names for name, task in glue.TASKS.items()}
    name = settings.tfds_name.partition(":")[0]
    return () if settings.labels or settings.label_file else sets.get(name, ())


def _labels(settings: ClassifierSettings, known: TaskDescription | None, source: TextSource) -> tuple[str, ...]:
    named = _named_labels(settings)
    labels = named or (tuple(known.labels) if known else ()) or source.labels or _labels_in(source)
    logging.info("%d classes: %s", len(labels), ", ".join(labels))
    if len(set(labels)) < len(labels):
        flag = f"--label_file={settings.label_file}" if settings.label_file else f"--labels={settings.labels}"
        raise InputError(f"{flag}: a label is listed twice; remove one")
    if len(labels) < 2:
        raise InputError(f"the task needs at least two labels but has {len(labels)}; list them in --labels")
    return labels


def _named_labels(settings: ClassifierSettings) -> tuple[str, ...]:
    path, lines = settings.label_file, settings.labels.split(",")
    if path:
        if not tf.io.gfile.exists(path):
            raise InputError(f"--label_file={path}: no such file; write one label per line")
        with tf.io.gfile.GFile(path, "rb") as file:
            try:
                lines = file.read().decode("utf-8-sig").splitlines()
            except UnicodeDecodeError as error:
                raise InputError(f"--label_file={path}: not UTF-8; save the file as UTF-8") from error
    return tuple(line.strip() for line in lines if line.strip())


def _labels_in(source: TextSource) -> tuple[str, ...]:
    """Returns the sorted labels of the training data.

    Raises:
      InputError: the label column probably contains numbers or texts instead of classes, or contains no labels.
    """
    found = [example.label for example in source.examples("train")]
    labels = tuple(sorted(_counts(found)))
    what = f"{', '.join(source.files('train'))}: column {source.facts().get('label_column')!r} has {len(labels)} "
    what += f"different values in {len(found)} examples, such as {', '.join(map(repr, labels[:3]))}"
    if source.has_label_sets and not labels:
        raise InputError(f"{what}; check --label_column and --label_separator")
    if source.has_label_sets:
        return labels
    if len(labels) > _MOST_NUMBERS and all(map(_is_number, labels)):
        raise InputError(f"{what}; give --regression to predict numbers, or list the classes in --labels")
    if len(found) > _MOST_NUMBERS and 2 * len(labels) > len(found):
        raise InputError(f"{what}; check --label_column, or list the classes in --labels")
    return labels


def _counts(labels: Iterable[str | tuple[str, ...]]) -> Counter:
    counts: Counter = Counter()
    for label in labels:
        counts.update(label if isinstance(label, tuple) else [label])
    return counts


def _class_weights(settings: ClassifierSettings, known: TaskDescription | None, task: OwnTask) -> tuple[float, ...]:
    """Returns the class weights for the training data, or the run's class weights if the command does not train."""
    if not settings.do_train:
        return tuple(known.parameters.get("class_weights", ())) if known else ()
    if not settings.class_weights:
        return ()
    train = [example.label for example in task.read("train")]
    found = _counts(train)
    counts = [found[label] for label in task.labels]
    if task.kind == MULTI_LABEL:
        return class_weights.of_label_sets(settings.class_weights, task.labels, counts, len(train))
    return class_weights.of_classes(settings.class_weights, task.labels, counts)


def _scale(task: OwnTask, known: TaskDescription | None) -> tuple[float, float]:
    """Returns the mean and the standard deviation of the training scores, from the run's record or the training data.

    Raises:
      InputError: a score is not a finite number, or all scores are equal.
    """
    if known:
        return score_scale(known.parameters)
    scores = np.array([parse_score(example.label) for example in task.read("train")])
    if np.ptp(scores) == 0:
        raise InputError(f"train: every score is {scores[0]:g}, so there is nothing to learn; check the labels")
    return float(scores.mean()), float(scores.std())


def _is_number(text: str) -> bool:
    try:
        parse_score(text)
    except InputError:
        return False
    return True
