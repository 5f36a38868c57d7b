"""A task whose splits are files of fixed names and columns, as GLUE and XNLI have them.

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
      paths: where it may be, relative to `--data_dir`; the first that exists is read.
      columns: where texts and labels are.
      id_column: name of the column of `Example.id`, if the file has it; None for none.
      group: `Example.group` of its examples.
      submission: name of the file of its predictions for GLUE's server; "" for the task's name.
    """

    paths: tuple[str, ...]
    columns: ColumnNames
    id_column: str | None = None
    group: str = ""
    submission: str = ""

    def path(self, data_dir: str) -> str:
        """Returns the path in a folder; the first one if none exists."""
        paths = [os.path.normpath(f"{data_dir}/{path}") if "://" not in data_dir else f"{data_dir}/{path}"
                 for path in self.paths]  # fmt: skip
        return next(filter(tf.io.gfile.exists, paths), paths[0])


@dataclasses.dataclass(frozen=True)
class GlueTask(ClassificationTask):
    """A task over the files of a benchmark.

    Attributes:
      name: the value of `--task_name`; AX has MNLI's, because it is a test of MNLI's model.
      splits: the files of "train", "dev" and "test".
      labels: in the order of their ids; () for a regression.
      score_names: names in `SCORES`, the main one first.
      score_range: lowest and highest score of a regression.
      skips_incomplete: whether training and dev lines that lack cells are skipped rather than refused.
      submits_majority: whether the majority class is submitted, not what the model predicts.
      data_dir: the folder.
      reading: see `ClassificationTask`.
      held_out: see `Task`.
      ids_differ: whether an id may occur only once in a dev or test file.
    """

    name: str
    splits: Mapping[str, tuple[SplitFile, ...]]
    labels: tuple[str, ...]
    score_names: tuple[str, ...]
    score_range: tuple[float, float] = (0.0, 0.0)
    skips_incomplete: bool = False
    submits_majority: bool = False
    data_dir: str = ""
    reading: Reading = READ_AS_IN_THE_PAPER
    held_out: HeldOut | None = None
    ids_differ: ClassVar[bool] = True

    @property
    def has_pairs(self) -> bool:
        """Whether there are two texts."""
        return self.splits["train"][0].columns.text_b is not None

    @property
    def has_dev_files(self) -> bool:
        """See `Task`."""
        return all(map(tf.io.gfile.exists, self.files_of("dev")))

    def files_of(self, split: str) -> list[str]:
        """See `Task`."""
        return [file.path(self.data_dir) for file in self.splits[split]]

    def read_files(self, split: str) -> list[Example]:
        """Reads train, dev or test, and checks labels and ids.

        Raises:
          InputError: names the file and the line.
        """
        if split == "test" and self.submits_majority:
            self.majority()  # refuses a missing train.tsv before the model predicts
        return [example for file in self.splits[split] for example in self._read_file(split, file)]

    def _read_file(self, split: str, file: SplitFile) -> list[Example]:
        path = file.path(self.data_dir)
        skip = self.skips_incomplete and split != "test"  # a prediction is due for each line of a test file
        placed = read_examples(path, file.columns, id_column=file.id_column, skip_incomplete=skip)
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
        """Computes the task's scores from logits [N, C]: the main group's, then each other group's with its name."""
        labels, answers = split.columns["label_ids"].numpy(), self.answers(predictions)
        groups = np.array([example.group for example in split.examples])
        found = {}
        for group in dict.fromkeys(groups.tolist()):
            part = scores.compute(self.score_names, labels[groups == group], answers[groups == group])
            found |= {f"{name}_{group}" if group else name: value for name, value in part.items()}
        return found

    def answers(self, predictions: np.ndarray) -> np.ndarray:
        """Returns ids of classes or scores, float [N], from logits [N, C]; NaN where a logit is NaN."""
        if self.is_regression:
            return predictions[:, 0]
        return np.where(np.isnan(predictions).any(axis=1), np.nan, np.argmax(predictions, axis=1))

    def write_predictions(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        """Writes what every classification writes, one test file's rows after the other's, and `benchmark_files`."""
        paths = super().write_predictions(folder, split, predictions)
        return paths + self.benchmark_files(folder, split, predictions)

    def overwrites(self, name: str) -> bool:
        """Whether a file is not one for GLUE's server of another set: AX predicts in the folder of MNLI's run."""
        own = {f"{file.submission or self.name}.tsv" for file in self.splits["test"]}
        return name in own or name.removesuffix(".tsv") not in submission.SIZES

    def benchmark_files(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        """Writes the benchmark's own files, from logits [N, C]; returns their paths."""
        return self.submit(folder, split.examples, predictions)

    def submit(self, folder: str, examples: Sequence[Example], predictions: np.ndarray) -> list[str]:
        """Writes a file for GLUE's server for each test file, from logits [N, C]; returns the paths."""
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
        """Returns the commonest label of the training data; of several, the first of `labels`."""
        found = [example.label for example in self.read("train")]
        return max(self.labels, key=found.count)
