"""Defines tasks whose files have fixed names and columns, such as the tasks of GLUE and XNLI.

Paper: section 4.1.
"""

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.task_data import TaskData
from bert_tf.rows import Row, files
from bert_tf.rows.delimited import Layout
from bert_tf.rows.sources import Source
from bert_tf.rows.text_files import require_file
from bert_tf.tasks.classification import submission
from bert_tf.tasks.classification.answers import Answers
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.example import Example, of_row, strata


@dataclasses.dataclass(frozen=True)
class SplitFile:
    """A file of a split."""

    paths: tuple[str, ...]  # possible paths, relative to `--data_dir`; the first path that exists is read
    # the column of each cell of a row, see `of_row`, by name or by number from 0; a file may lack `id` and `group`,
    # and a test file `label`
    columns: Mapping[str, str]
    has_header: bool = True  # whether the first line contains the names of the columns
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
    chosen: str = ""  # which examples of the dev and test files are read, for titles; "" for all examples


@dataclasses.dataclass(frozen=True)
class BenchmarkFiles(Source):
    """The files of a benchmark's task in a folder."""

    benchmark: Benchmark
    data_dir: str

    @property
    def has_dev(self) -> bool:
        return all(map(tf.io.gfile.exists, self.files("dev")))

    def files(self, split: str) -> list[str]:
        return [file.path(self.data_dir) for file in self.benchmark.splits[split]]

    def rows(self, file: str, with_labels: bool) -> Iterator[Row]:
        split, described = self.described(file)
        skips = self.benchmark.skips_incomplete and split != "test"  # each line of a test file needs a prediction
        layout = Layout("tsv", described.has_header, quoted=False, skips_incomplete=skips)
        optional = ("id", "group", "label") if split == "test" else ("id", "group")
        return files.rows(file, described.columns, optional, layout)

    def title(self, split: str) -> str:
        chosen = f" ({self.benchmark.chosen})" if self.benchmark.chosen and split != "train" else ""
        return super().title(split) + chosen

    def described(self, file: str) -> tuple[str, SplitFile]:
        """Returns the split to which a file belongs, and its description."""
        every = ((split, each) for split, described in self.benchmark.splits.items() for each in described)
        return next((split, each) for split, each in every if each.path(self.data_dir) == file)


def benchmark_task(benchmark: Benchmark, data_dir: str) -> ClassificationTask:
    data, has_pairs = _data(benchmark, data_dir), "text_b" in benchmark.splits["train"][0].columns
    submit = functools.partial(_submit, benchmark, data) if benchmark.has_server else None
    return ClassificationTask(benchmark.name, benchmark.answers, has_pairs, data, submit=submit)


def _data(benchmark: Benchmark, data_dir: str) -> TaskData:
    source, answers = BenchmarkFiles(benchmark, data_dir), benchmark.answers

    def parse(file: str, rows: Iterator[Row], split: str, with_labels: bool) -> list[Example]:
        if split == "test" and benchmark.submits_majority:
            require_file(source.files("train")[0])  # before the model predicts
        group = source.described(file)[1].group
        fixed = {"id": None} if split == "train" else {}  # only predictions need ids
        examples = [of_row(place, {"group": group} | row | fixed, with_labels, answers.kind) for place, row in rows]
        return [example for example in examples if not benchmark.undecided or example.label != benchmark.undecided]

    data = TaskData.of(source, parse, strata=functools.partial(strata, has_classes=bool(answers.labels)))
    return data.with_checked_labels(answers.check)


def _submit(
    benchmark: Benchmark, data: TaskData, folder: str, examples: Sequence[Example], outputs: np.ndarray
) -> list[str]:
    """Writes a submission file for each test file, and returns the paths; `outputs` are [N, C]."""
    paths, answers = [], benchmark.answers
    for file in benchmark.splits["test"]:
        rows = [row for row, example in enumerate(examples) if example.group == file.group]
        ids = [examples[row].id or str(number) for number, row in enumerate(rows)]
        if benchmark.submits_majority:
            labels = [example.label for example in data.read("train")]
            texts = [max(answers.labels, key=labels.count)] * len(rows)
        elif answers.labels:
            texts = [answers.labels[best] for best in np.argmax(outputs[rows], axis=1)]
        else:
            texts = [f"{score:.3f}" for score in np.clip(outputs[rows, 0], answers.low, answers.high)]
        paths.append(submission.write(folder, file.submission or benchmark.name, ids, texts))
    return paths
