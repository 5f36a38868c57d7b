"""Creates a task for a user's own data from a command."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import items
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.dev_share import with_dev_share
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.task_data import TaskData
from bert_tf.rows import Row, cells, files
from bert_tf.rows.delimited import Layout
from bert_tf.rows.sources import Files
from bert_tf.rows.text_files import decoded_lines
from bert_tf.runs import run_record
from bert_tf.tasks.classification import class_weights, glue
from bert_tf.tasks.classification.answers import Answers
from bert_tf.tasks.classification.classes import Classes
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.example import (
    CLASSIFICATION,
    MULTI_LABEL,
    REGRESSION,
    Example,
    TextData,
    in_order,
    label_counts,
    of_row,
    strata,
)
from bert_tf.tasks.classification.multi_label import LabelSets
from bert_tf.tasks.classification.regression import Regression
from bert_tf.tasks.classification.settings import IN_MEMORY, OWN_DATA, ClassifierSettings
from bert_tf.tasks.classification.tfds_source import open_set

# The flags that decide how a user's files are read.
COLUMN_FLAGS = ("text_a_column", "text_b_column", "label_column", "has_header", "quoted", "label_separator")
# If the labels are numbers and have more different values than this, they are probably scores, not classes.
_MOST_NUMBERS = 20
# With fewer examples than this, each may be the only one of its class.
_FEW_EXAMPLES = 20


def own_task(command: Command, texts: TextData | None = None) -> ClassificationTask:
    """Returns the task for a user's own data. The labels come from `--labels` or `--label_file`, else from the run in
    `--output_dir`, else from the data's description, else from the training data, which this function then reads. Class
    weights and the scale of scores come from the training data or from the run.
    `texts`: the data; None for the data that the settings name."""
    settings, trained = command.settings, command.trained
    if trained and trained.task_name not in (OWN_DATA, IN_MEMORY):
        if settings.do_train:
            command, trained = dataclasses.replace(command, trained=None), None
        elif not texts:
            raise InputError(
                f"--output_dir={settings.output_dir}: holds a run of {trained.task_name}; give "
                f"--task_name={trained.task_name} for this task's files, or predict other texts in Python with "
                "bert_tf.classifier.TextClassifier.load"
            )
    texts = texts or (_tfds if settings.tfds_name else _tables)(command)
    for flag in ("class_weights", "label_file"):
        if getattr(settings, flag) and texts.kind == REGRESSION:
            raise InputError(f"--{flag} is for classes, but the labels are numbers; drop the flag")
    answers, official = _answers(command, texts), _glue_answers(settings, trained)
    if official:
        answers = dataclasses.replace(answers, score_names=official.score_names)
    data = texts.data.with_checked_labels(answers.check)
    data = dataclasses.replace(data, strata=functools.partial(strata, has_classes=bool(answers.labels)))
    data = with_dev_share(data, command)
    id_column = settings.id_column if settings.id_column is not None else _id_of_run(settings)
    return ClassificationTask(
        trained.task_name if trained else settings.task_name.lower() or OWN_DATA,
        _learned(answers, settings, trained, data, official),
        texts.has_pairs,
        data,
        id_title=id_column if id_column and not id_column.isdigit() else "index",
        writes_texts=settings.predictions_with_texts,
    )


def _answers(command: Command, texts: TextData) -> Answers:
    if texts.kind == REGRESSION:
        return Regression()
    labels = _labels(command.settings, command.trained, texts)
    if texts.kind == MULTI_LABEL:
        return LabelSets(labels, run_folder=command.results_dir, tune_thresholds=command.settings.tune_thresholds)
    return Classes(labels)


def _learned(
    answers: Answers, settings: ClassifierSettings, trained: TaskDescription | None, data: TaskData,
    official: Answers | None,
) -> Answers:  # fmt: skip
    """Returns the answers with the class weights, or with the scale of the scores. With class weights, macro F1 is the
    main score, because accuracy would prefer a model without the rare classes.
    `official`: the answers of a task of GLUE; None for other data."""
    if isinstance(answers, Regression):
        return answers if official else _regression(data, trained)
    weights = weights_of(settings, trained, answers, data)
    if weights and isinstance(answers, Classes) and not official:
        answers = dataclasses.replace(answers, score_names=("macro_f1", "accuracy"))
    return dataclasses.replace(answers, weights=weights)


def _kind(settings: ClassifierSettings, trained: TaskDescription | None) -> str:
    if settings.multi_label:
        return MULTI_LABEL
    if settings.regression:
        return REGRESSION
    return trained.kind if trained else CLASSIFICATION


def _tables(command: Command) -> TextData:
    settings, facts = command.settings, command.of_data(*COLUMN_FLAGS)
    for flag in ("text_a_column", "text_b_column"):
        if facts[flag] == facts["label_column"]:
            raise InputError(f"--{flag}={facts[flag]}: is the column of the label; give the column of the text")
    kind, is_given = _kind(settings, command.trained), settings.id_column is not None
    ids = (settings.id_column, "") if is_given else (_id_of_run(settings), settings.output_dir)
    format = "" if settings.data_format == "auto" else settings.data_format
    return table_data(facts, settings.data_dir, settings.data_paths, kind, format, *ids)


def table_data(
    flags: Mapping[str, Any], data_dir: str, paths: Mapping[str, Sequence[str]], kind: str, format: str = "",
    id: str = "", id_is_of: str = "",
) -> TextData:  # fmt: skip
    """Returns a user's texts and labels in tables, JSON Lines or Parquet.
    `flags`: the values of `COLUMN_FLAGS`. A column is given by its name, or by its number counted from 0.
    `data_dir`, `paths`: see `Files`.
    `format`: format of all files; if "", a file's extension determines the format of this file.
    `id`: column of the examples' ids in the test data; "" if absent.
    `id_is_of`: folder of the run whose id column is `id`; the test data may lack this column. "" if a flag names `id`.
    """
    named = flags["label_column"]
    several = items(named) if kind == MULTI_LABEL else ()
    marks = several if len(several) > 1 else ()
    columns = {"text_a": flags["text_a_column"], "text_b": flags["text_b_column"], "id": id}
    columns = {name: column for name, column in columns.items() if column}
    labels = {name: name for name in marks} or {"label": named}
    make = functools.partial(of_row, kind=kind, separator=flags["label_separator"], marks=marks)

    def read(path: str, with_labels: bool) -> Iterator[Row]:
        layout = Layout(format or files.format_of(path), flags["has_header"], flags["quoted"])
        return files.rows(path, columns | (labels if with_labels else {}), ("id",), layout)

    def parse(file: str, rows: Iterator[Row], split: str, with_labels: bool) -> list[Example]:
        examples = [make(place, row, with_labels) for place, row in rows]
        without = next((example.place for example in examples if example.id is None), "")
        if not id or (split == "test" and not without):
            return examples
        if split == "test" and not id_is_of:
            raise InputError(f"{without}: has no id in the column {id!r}; check --id_column, or leave it out")
        if split == "test":
            logging.warning("predictions have numbers instead of ids; %s has no id in the column %r of %s", file, id,
                            id_is_of)  # fmt: skip
        return [dataclasses.replace(example, id=None) for example in examples]

    names = functools.partial(files.names_of, format=format)
    source = Files(data_dir, paths, names, read, lambda path: marks or files.class_names(path, named))
    return TextData(TaskData.of(source, parse, facts=flags), kind, bool(flags["text_b_column"]))


def with_unlabeled(task: ClassificationTask, command: Command) -> TaskData:
    """Returns a task's data with the files of `--unlabeled_data_path`, which have the columns of a user's own data."""
    settings = command.settings

    def without_labels(split: str, examples: Sequence[Example]) -> list[Example]:
        if (examples[0].text_b is not None) != task.has_pairs:
            remedy = "give --text_b_column" if task.has_pairs else "leave --text_b_column out"
            raise InputError(f"--unlabeled_data_path={settings.unlabeled_data_path}: the task is for "
                             f"{'pairs of texts' if task.has_pairs else 'single texts'}; {remedy}")  # fmt: skip
        return [dataclasses.replace(example, label=None) for example in examples]

    return dataclasses.replace(task.data, unlabeled=_tables(command).data.then(without_labels))


def _id_of_run(settings: ClassifierSettings) -> str:
    """Returns the id column of the run's last training for a command that only predicts; "" if there is none. The id
    column only names predictions. Therefore, it is not part of a run's identity, unlike the columns that a model reads.
    """
    if settings.do_train or not settings.do_predict:
        return ""
    return run_record.last_settings(settings.output_dir).get("id_column") or ""


def _tfds(command: Command) -> TextData:
    settings = command.settings
    columns = command.of_data(text_a_column=None, text_b_column=None, label_column=None)
    is_regression = _kind(settings, command.trained) == REGRESSION
    return open_set(settings.tfds_name, settings.tfds_splits, columns, is_regression)


def _glue_answers(settings: ClassifierSettings, trained: TaskDescription | None) -> Answers | None:
    """Returns the answers, with the official scores, of a run's or of TensorFlow Datasets' task of GLUE, else None."""
    if trained and trained.task_name in glue.TASKS:
        return glue.TASKS[trained.task_name].answers
    sets = {f"glue/{name.lower().replace('-', '')}": task.answers for name, task in glue.TASKS.items()}
    name = settings.tfds_name.partition(":")[0]
    return None if settings.labels or settings.label_file else sets.get(name)


def _labels(settings: ClassifierSettings, trained: TaskDescription | None, texts: TextData) -> tuple[str, ...]:
    named = _named_labels(settings)
    labels = named or (tuple(trained.labels) if trained else ()) or texts.data.source.class_names() or _labels_in(texts)
    logging.info("%d classes: %s", len(labels), ", ".join(labels))
    if len(labels) < 2:
        raise InputError(f"the task needs at least two labels but has {len(labels)}; list them in --labels")
    return labels


def _named_labels(settings: ClassifierSettings) -> tuple[str, ...]:
    lines = decoded_lines(settings.label_file) if settings.label_file else settings.labels.split(",")
    return tuple(dict.fromkeys(cells.label_text("--labels", line, is_untyped=True) for line in lines if line.strip()))


def _labels_in(texts: TextData) -> tuple[str, ...]:
    column = texts.data.facts.get("label_column", "")
    of_examples = [example.label for example in texts.data.load("train")]
    labels = in_order(label_counts(of_examples))
    what = f"{', '.join(texts.data.source.files('train'))}: column {column!r} has {len(labels)} "
    what += f"different values in {len(of_examples)} examples, such as {', '.join(map(repr, labels[:3]))}"
    if texts.kind == MULTI_LABEL and not labels:
        raise InputError(f"{what}; check --label_column and --label_separator")
    if texts.kind == MULTI_LABEL and {*labels} <= {"0", "1"}:
        raise InputError(f"{what}; if each label has a column, give all of them, as in --label_column=a,b")
    if texts.kind == MULTI_LABEL:
        if all(len(each) < 2 for each in of_examples):
            logging.warning("%s: no text has two labels; check --label_separator=%s", what,
                            texts.data.facts.get("label_separator", ""))  # fmt: skip
        return labels
    if len(labels) > _MOST_NUMBERS and all(map(_is_number, labels)):
        raise InputError(f"{what}; give --regression to predict numbers, or list the classes in --labels")
    if len(of_examples) > _FEW_EXAMPLES and 2 * len(labels) > len(of_examples):
        raise InputError(f"{what}; check --label_column, or list the classes in --labels")
    return labels


def weights_of(
    settings: ClassifierSettings, trained: TaskDescription | None, answers: Answers, data: TaskData
) -> tuple[float, ...]:
    """Returns the class weights for the training data, or the run's class weights if the command does not train."""
    if not settings.do_train:
        return tuple(trained.parameters.get("class_weights", ())) if trained else ()
    if not settings.class_weights:
        return ()
    train = [example.label for example in data.read("train")]
    by_label = label_counts(train)
    counts = [by_label[label] for label in answers.labels]
    if answers.kind == MULTI_LABEL:
        return class_weights.of_label_sets(settings.class_weights, answers.labels, counts, len(train))
    return class_weights.of_classes(settings.class_weights, answers.labels, counts)


def _regression(data: TaskData, trained: TaskDescription | None) -> Regression:
    """Returns the answers with the scale of the training scores, from the run's record or the training data."""
    if trained:
        return Regression.of_parameters(trained.parameters)
    scores = np.array([example.label for example in data.read("train")])
    if np.ptp(scores) == 0:
        raise InputError(f"train: every score is {scores[0]:g}, so there is nothing to learn; check the labels")
    return Regression(mean=float(scores.mean()), deviation=float(scores.std()))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
