"""Defines tasks whose files have fixed names and columns, such as the tasks of GLUE and XNLI.

Paper: section 4.1.

Letters: N rows, C classes.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.finetuning.stratified_split import HeldOut
from bert_tf.finetuning.task import Split
from bert_tf.tasks.classification import scores, submission
from bert_tf.tasks.classification.classification_task import ClassificationTask, Example
from bert_tf.tasks.classification.reading import READ_AS_IN_THE_PAPER, Reading
from bert_tf.tasks.classification.tsv import ColumnNames, read_examples
from bert_tf.tasks.example_source import refuse_repeated_ids


@dataclasses.dataclass(frozen=True)
class SplitFile:
    """A file of a split.

    Attributes:
      paths: possible paths, relative to `--data_dir`; the first path that exists is read.
      columns: columns of the texts and the labels.
      id_column: column with the value of `Example.id`; the file may lack this column. None if there are no ids.
      group: value of `Example.group` for the file's examples.
      submission: name of the prediction file for GLUE's server, without its extension; "" for the task's name.
    """

    paths: tuple[str, ...]
    columns: ColumnNames
    id_column: str | None = None
    group: str = ""
    submission: str = ""

    def path(self, data_dir: str) -> str:
        """Returns the file's path in a folder; if no file exists, returns the first possible path."""
        paths = [os.path.normpath(f"{data_dir}/{path}") if "://" not in data_dir else f"{data_dir}/{path}"
                 for path in self.paths]  # fmt: skip
        return next(filter(tf.io.gfile.exists, paths), paths[0])


@dataclasses.dataclass(frozen=True)
class GlueTask(ClassificationTask):
    """A task with the files of a benchmark.

    Attributes:
      name: the value of `--task_name`. For AX, the name is MNLI instead, because AX tests an MNLI model.
      splits: the files of "train", "dev" and "test".
      labels: labels in the order of their ids; () for a regression.
      score_names: names of the task's scores in `scores.SCORES`; the main score comes first.
      score_range: lowest and highest score of a regression.
      skips_incomplete: whether incomplete lines of train and dev are skipped; if false, they are refused.
      undecided: label of the examples on which the annotators did not agree; these examples are left out. "" if there
        are none.
      submits_majority: whether the majority class is submitted instead of the model's predictions.
      data_dir: folder with the files.
      reading: see `ClassificationTask`.
      held_out: see `Task`.
      ids_differ: whether the ids in a dev or test file must be unique.
    """

    name: str
    splits: Mapping[str, tuple[SplitFile, ...]]
    labels: tuple[str, ...]
    score_names: tuple[str, ...]
    score_range: tuple[float, float] = (0.0, 0.0)
    skips_incomplete: bool = False
    submits_majority: bool = False
    undecided: str = ""
    data_dir: str = ""
    reading: Reading = READ_AS_IN_THE_PAPER
    held_out: HeldOut | None = None
    ids_differ: ClassVar[bool] = True

    @property
    def has_pairs(self) -> bool:
        """Whether an example has two texts."""
        return self.splits["train"][0].columns.text_b is not None

    @property
    def has_dev_files(self) -> bool:
        return all(map(tf.io.gfile.exists, self.files_of("dev")))

    def files_of(self, split: str) -> list[str]:
        return [file.path(self.data_dir) for file in self.splits[split]]

    def read_files(self, split: str) -> list[Example]:
        """Reads the examples of a split, and checks the labels and the ids.

        Raises:
          InputError: a file is invalid; the message names the file and the line.
        """
        if split == "test" and self.submits_majority:
            self.majority()  # raises an error for a missing train.tsv before the model predicts
        return [example for file in self.splits[split] for example in self._read_file(split, file)]

    def _read_file(self, split: str, file: SplitFile) -> list[Example]:
        path = file.path(self.data_dir)
        skip = self.skips_incomplete and split != "test"  # each line of a test file needs a prediction
        placed = read_examples(path, file.columns, id_column=file.id_column, skip_incomplete=skip)
        if self.undecided:
            placed = [each for each in placed if each.example.label != self.undecided]
        for place, example in placed:
            try:
                if example.label is not None:
                    self.label_value(example.label)
            except InputError as error:
                raise InputError(f"{place}: {error}") from error
        if self.ids_differ and split != "train":
            refuse_repeated_ids(path, placed)
        examples = [example for _, example in placed]
        return [dataclasses.replace(e, group=file.group) for e in examples] if file.group else examples

    def scores(self, split: Split, predictions: np.ndarray) -> dict[str, float]:
        """Computes the scores of each group from logits [N, C]; a score's name ends with the name of its group."""
        labels, answers = split.columns["label_ids"].numpy(), self.answers(predictions)
        groups = np.array([example.group for example in split.examples])
        found = {}
        for group in dict.fromkeys(groups.tolist()):
            part = scores.compute(self.score_names, labels[groups == group], answers[groups == group])
            found |= {f"{name}_{group}" if group else name: value for name, value in part.items()}
        return found

    def answers(self, predictions: np.ndarray) -> np.ndarray:
        """Converts logits [N, C] to predicted ids of classes, or to scores, float [N]; a row with a NaN becomes NaN."""
        if self.is_regression:
            return predictions[:, 0]
        return np.where(np.isnan(predictions).any(axis=1), np.nan, np.argmax(predictions, axis=1))

    def write_predictions(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        """Writes the files of `ClassificationTask` and of `benchmark_files`; returns the paths.

        The files of `ClassificationTask` contain the examples of all test files, one file after the other.
        """
        paths = super().write_predictions(folder, split, predictions)
        return paths + self.benchmark_files(folder, split, predictions)

    def benchmark_files(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        """Writes the benchmark's files, and returns their paths; `predictions` are logits [N, C]."""
        return self.submit(folder, split.examples, predictions)

    def submit(self, folder: str, examples: Sequence[Example], predictions: np.ndarray) -> list[str]:
        """Writes a submission file for each test file, and returns the paths; `predictions` are logits [N, C]."""
        paths = []
        for file in self.splits["test"]:
            rows = [row for row, example in enumerate(examples) if example.group == file.group]
            ids = [examples[row].id or str(number) for number, row in enumerate(rows)]
            if self.submits_majority:
                texts = [self.majority()] * len(rows)
            elif self.is_regression:
                texts = submission.score_texts(predictions[rows, 0], *self.score_range)
            else:
                texts = [self.labels[best] for best in np.argmax(predictions[rows], axis=1)]
            paths.append(submission.write(folder, file.submission or self.name, ids, texts))
        return paths

    def majority(self) -> str:
        """Returns the most frequent label of the training data; in a tie, the label that is first in `labels`."""
        found = [example.label for example in self.read("train")]
        return max(self.labels, key=found.count)
