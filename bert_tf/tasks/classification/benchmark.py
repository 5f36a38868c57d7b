"""Defines tasks whose files have fixed names and columns, such as the tasks of GLUE and XNLI.

Paper: section 4.1.
"""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.task_data import TaskData
from bert_tf.tasks.classification import submission
from bert_tf.tasks.classification.answers import Answers, with_checked_labels
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.example import Example, strata
from bert_tf.tasks.classification.tsv import ColumnNames, read_examples
from bert_tf.tasks.split_files import refuse_repeated_ids


@dataclasses.dataclass(frozen=True)
class SplitFile:
    """A file of a split."""

    paths: tuple[str, ...]  # possible paths, relative to `--data_dir`; the first path that exists is read
    columns: ColumnNames
    # column with the value of `Example.id`; the file may lack this column. None if there are no ids.
    id_column: str | None = None
    group: str = ""  # value of `Example.group` for the file's examples
    submission: str = ""  # name of the prediction file for GLUE's server, without its extension; "" for the task's name

    def path(self, data_dir: str) -> str:
        """Returns the file's path in a folder; if no file exists, returns the first possible path."""
        paths = [os.path.normpath(f"{data_dir}/{path}") if "://" not in data_dir else f"{data_dir}/{path}"
                 for path in self.paths]  # fmt: skip
        return next(filter(tf.io.gfile.exists, paths), paths[0])


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """The files and the answers of a benchmark's task."""

    name: str  # the value of `--task_name`. For AX, the name is MNLI instead, because AX tests an MNLI model.
    splits: Mapping[str, tuple[SplitFile, ...]]  # the files of "train", "dev" and "test"
    answers: Answers
    skips_incomplete: bool = False  # whether incomplete lines of train and dev are skipped; if false, they are refused
    # label of the examples on which the annotators did not agree; these examples are left out. "" if there are none.
    undecided: str = ""
    # whether a server computes the scores of the test data, so that predictions are also written for it
    has_server: bool = True
    submits_majority: bool = False  # whether the majority class is submitted instead of the model's predictions
    ids_differ: bool = True  # whether the ids in a dev or test file must be unique


def benchmark_task(benchmark: Benchmark, data_dir: str) -> ClassificationTask:
    data, has_pairs = _data(benchmark, data_dir), benchmark.splits["train"][0].columns.text_b is not None
    submit = functools.partial(_submit, benchmark, data) if benchmark.has_server else None
    return ClassificationTask(benchmark.name, benchmark.answers, has_pairs, data, submit=submit)


def _data(benchmark: Benchmark, data_dir: str) -> TaskData:
    def files(split: str) -> list[str]:
        return [file.path(data_dir) for file in benchmark.splits[split]]

    @functools.cache
    def load(split: str) -> list[Example]:
        if split == "test" and benchmark.submits_majority:
            load("train")  # raises an error for a missing train.tsv before the model predicts
        return [
            dataclasses.replace(example, group=file.group) if file.group else example
            for file in benchmark.splits[split]
            for example in _read_file(benchmark, file, file.path(data_dir), split)
        ]

    has_dev = all(map(tf.io.gfile.exists, files("dev")))
    data = TaskData(files, load, has_dev, strata=functools.partial(strata, has_classes=bool(benchmark.answers.labels)))
    return with_checked_labels(data, benchmark.answers)


def _read_file(benchmark: Benchmark, file: SplitFile, path: str, split: str) -> list[Example]:
    skip = benchmark.skips_incomplete and split != "test"  # each line of a test file needs a prediction
    examples = read_examples(path, file.columns, id_column=file.id_column, skip_incomplete=skip)
    if benchmark.undecided:
        examples = [example for example in examples if example.label != benchmark.undecided]
    if benchmark.ids_differ and split != "train":
        refuse_repeated_ids(path, examples)
    return examples


def _submit(
    benchmark: Benchmark, data: TaskData, folder: str, examples: Sequence[Example], outputs: np.ndarray
) -> list[str]:
    """Writes a submission file for each test file, and returns the paths; `outputs` are [N, C]."""
    paths, answers = [], benchmark.answers
    for file in benchmark.splits["test"]:
        rows = [row for row, example in enumerate(examples) if example.group == file.group]
        ids = [examples[row].id or str(number) for number, row in enumerate(rows)]
        if benchmark.submits_majority:
            found = [example.label for example in data.read("train")]
            texts = [max(answers.labels, key=found.count)] * len(rows)
        elif answers.labels:
            texts = [answers.labels[best] for best in np.argmax(outputs[rows], axis=1)]
        else:
            texts = [f"{score:.3f}" for score in np.clip(outputs[rows, 0], answers.low, answers.high)]
        paths.append(submission.write(folder, file.submission or benchmark.name, ids, texts))
    return paths
