"""A task whose examples are the lines of tab-separated files.

Paper: section 4.1.
"""

import dataclasses
from typing import Any

import numpy as np

from bert_tf.finetuning.task import Split
from bert_tf.finetuning.tasks import scores
from bert_tf.finetuning.tasks.classification import ClassificationTask, Example
from bert_tf.finetuning.tasks.reading import READ_AS_IN_THE_PAPER, Reading
from bert_tf.finetuning.tasks.tsv import Columns, read_examples
from tfrecords.errors import InputError

# The name of a task over a user's own files.
TSV = "tsv"


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
      reading: see `ClassificationTask`.
    """

    name: str
    columns: Columns
    test_columns: Columns
    labels: tuple[str, ...]
    score_names: tuple[str, ...]
    score_range: tuple[float, float] = (0.0, 0.0)
    data_dir: str = ""
    reading: Reading = READ_AS_IN_THE_PAPER

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
