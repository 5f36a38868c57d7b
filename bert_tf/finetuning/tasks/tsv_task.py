"""A task whose examples are the lines of tab-separated files.

Paper: section 4.1.
"""

import dataclasses

from bert_tf.finetuning.tasks.classification import ClassificationTask, Example
from bert_tf.finetuning.tasks.tsv import Columns, read_examples
from tfrecords.errors import InputError


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
