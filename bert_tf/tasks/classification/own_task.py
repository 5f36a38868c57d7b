"""Defines tasks on a user's own data, with classes or with scores in any range.

Letters: B rows of a batch, C classes.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.finetuning.stratified_split import HeldOut
from bert_tf.finetuning.task import Split
from bert_tf.tasks.classification import class_checks
from bert_tf.tasks.classification.classification_task import ClassificationTask, Example
from bert_tf.tasks.classification.reading import READ_AS_IN_THE_PAPER, Reading
from bert_tf.tasks.classification.table_source import TextSource
from bert_tf.tasks.source_task import SourceTask

# Larger scores, or the gradients of squared errors of larger scores, could overflow float32.
LARGEST_SCORE = 1e30


@dataclasses.dataclass(frozen=True)
class OwnTask(SourceTask, ClassificationTask):
    """Predicts one label or one score for each example of a user's data.

    Attributes:
      name: the value of `--task_name`.
      source: the source of the examples.
      labels: labels in the order of their ids; () for a regression.
      score_names: names of the task's scores in `scores.SCORES`; the main score comes first.
      score_range: lowest and highest score of a regression.
      class_weights: factor of each class in the loss; () if all factors are 1.
      mean: mean of the training scores.
      deviation: standard deviation of the training scores. The model learns (score - mean) / deviation, so the initial
        weights and the learning rate suit scores in any range. Predictions are in the user's range.
      reading: see `ClassificationTask`.
      held_out: see `Task`.
      writes_texts: whether `test_predictions.tsv` contains the texts.
    """

    name: str
    source: TextSource
    labels: tuple[str, ...]
    score_names: tuple[str, ...]
    score_range: tuple[float, float] = (-LARGEST_SCORE, LARGEST_SCORE)
    class_weights: tuple[float, ...] = ()
    mean: float = 0.0
    deviation: float = 1.0
    reading: Reading = READ_AS_IN_THE_PAPER
    held_out: HeldOut | None = None
    writes_texts: bool = False

    @property
    def has_pairs(self) -> bool:
        """Whether an example has two texts."""
        return self.source.has_pairs

    @property
    def parameters(self) -> Mapping[str, Any]:
        found = dict(super().parameters)
        if self.class_weights:
            found["class_weights"] = list(self.class_weights)
        if (self.mean, self.deviation) != (0.0, 1.0):
            found |= {"mean": self.mean, "deviation": self.deviation}
        return found

    def read_files(self, split: str) -> list[Example]:
        """Reads the examples of a split, and checks every label. If a test label is invalid, drops all test labels.

        Raises:
          InputError: the data is invalid; the message names the place, such as the file and the line.
        """
        placed = self.source.read(split)
        for place, example in placed:
            if example.label is None:
                continue
            try:
                self.label_value(example.label)
            except InputError as error:
                if split != "test":
                    raise InputError(f"{place}: {error}") from error
                logging.info("%s: %s; the data is read without labels, so metrics are not computed", place, error)
                return [dataclasses.replace(example, label=None) for _, example in placed]
        return [example for _, example in placed]

    def is_labeled(self, examples: Sequence[Example]) -> bool:
        """See `Task`. If all scores are equal, for example -1, the scores count as unknown."""
        if not super().is_labeled(examples):
            return False
        return not self.is_regression or len({example.label for example in examples}) > 1

    def check_examples(self, examples: Mapping[str, Sequence[Example]]) -> None:
        super().check_examples(examples)
        if not self.is_regression:
            class_checks.check_classes(examples, self.labels, bool(self.class_weights))

    def losses(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the weighted cross-entropy and the accuracy from logits [B, C].

        For a regression, computes the squared error of standardized scores.
        """
        if self.is_regression:
            standardized = (batch["label_ids"] - self.mean) / self.deviation
            return {"loss": tf.square(logits[:, 0] - standardized)}
        values = super().losses(logits, batch)
        if self.class_weights:
            factors = tf.gather(tf.constant(self.class_weights), tf.cast(batch["label_ids"], tf.int32))
            values["loss"] *= factors
        return values

    def prediction(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns logits [B, C], or scores [B, 1] in the user's range."""
        return logits * self.deviation + self.mean if self.is_regression else logits

    def write_tables(
        self, folder: str, split: Split, results: Sequence[Sequence[str]], named: Sequence[Sequence[str]]
    ) -> list[str]:
        """See `ClassificationTask`. The header of `test_predictions.tsv` contains the name of the id column.

        If `writes_texts` is true, `test_predictions.tsv` also contains the texts.
        """
        rows = [[_cell(self.source.id_name()), *named[0][1:]], *named[1:]]
        if self.writes_texts:
            heads = ("text_a", "text_b") if self.has_pairs else ("text",)
            cells = [[_cell(text) for text in (each.text_a, each.text_b)[: len(heads)]] for each in split.examples]
            rows = [[*row, *more] for row, more in zip(rows, [heads, *cells], strict=True)]
        return super().write_tables(folder, split, results, rows)


def _cell(text: str) -> str:
    """Returns a text as a cell of a tab-separated table; adds quotes if the text could be misread without quotes."""
    needs_quotes = text.startswith('"') or any(character in text for character in "\t\n\r")
    return '"' + text.replace('"', '""') + '"' if needs_quotes else text
