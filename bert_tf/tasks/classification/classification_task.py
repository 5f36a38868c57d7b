"""The base class of tasks that predict a class or a score for one or two texts.

Paper: section 3.2, Figure 4 (a) and (b); section 4.1.

Letters: B rows of a batch, N rows of a split, C classes.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig, require_segments
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.finetuning.stratified_split import content_of
from bert_tf.finetuning.task import ACCURACY, LOSS, Columns, ConstantAnswer, Split, Task, tokenize
from bert_tf.modeling.heads import ClassificationHead
from bert_tf.settings import FineTuningSettings
from bert_tf.tasks.classification import evaluation_lines, scores
from bert_tf.tasks.classification.reading import READ_AS_IN_THE_PAPER, Reading
from bert_tf.text.packing import TRUNCATE
from bert_tf.tokenization import BertTokenizer
from bert_tf.training import flops
from bert_tf.training.metrics import Metric

CLASSIFICATION, REGRESSION = "classification", "regression"
# Predictions that differ by less than this share of the scores' standard deviation count as equal.
_SAME_SCORE = 1e-3
METRICS = (LOSS, ACCURACY)


@dataclasses.dataclass(frozen=True)
class Example:
    """One or two texts and their label.

    Attributes:
      text_a: the first or only text.
      text_b: the second text; None if absent.
      label: the label as text; None if unknown, as in test files. If an example may have several labels, this value is
        a tuple of labels.
      id: id of the example in its file; None if absent.
      group: name of the example's part of the split, such as the name of a language; "" for the main part. Each part
        has separate scores.
    """

    text_a: str
    text_b: str | None
    label: str | tuple[str, ...] | None
    id: str | None = None
    group: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that the model reads."""
        return (self.text_a,) if self.text_b is None else (self.text_a, self.text_b)


def make_head(labels: Sequence[str], config: BertConfig, reading: Reading = READ_AS_IN_THE_PAPER) -> ClassificationHead:
    """Returns a head with one output for each label; for a regression, returns a head with one output."""
    return ClassificationHead(config, len(labels) or 1, reading.pooling, reading.has_both_orders)


def score_scale(parameters: Mapping[str, Any]) -> tuple[float, float]:
    """Returns the mean and the standard deviation of a user's scores, from the parameters in `task.json`.

    A regression learns standardized scores: (score - mean) / deviation.
    """
    return parameters.get("mean", 0.0), parameters.get("deviation", 1.0)


class ClassificationTask(Task):
    """A task on one or two texts. A subclass reads the files and names the scores.

    Attributes:
      has_pairs: whether an example has two texts.
      score_names: names of the task's scores in `scores.SCORES`; the main score comes first.
      score_range: lowest and highest score of a regression.
      reading: the treatment of long texts, and the vector that the head reads.
    """

    has_pairs: bool
    score_names: tuple[str, ...]
    score_range: tuple[float, float]
    reading: Reading = READ_AS_IN_THE_PAPER

    @property
    def is_regression(self) -> bool:
        """Whether the label is a number instead of a class."""
        return not self.labels

    @property
    def kind(self) -> str:
        return REGRESSION if self.is_regression else CLASSIFICATION

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"has_pairs": self.has_pairs, **self.reading.parameters}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (LOSS,) if self.is_regression else METRICS

    def check(self, config: BertConfig, settings: FineTuningSettings) -> None:
        """Refuses pairs of texts for a model without a second segment, and windows that would skip text.

        Raises:
          InputError: the texts are pairs but the model has no second segment; single texts cannot have two orders; or
            `window_stride` exceeds the length of a window.
        """
        if self.has_pairs:
            require_segments(config, settings.bert_config_file)
        elif self.reading.has_both_orders:
            raise InputError("--pair_order=both: the examples have only one text; drop the flag")
        stride, room = self.reading.window_stride, settings.max_seq_length - 2
        if stride > room:
            raise InputError(
                f"--window_stride={stride}: with --max_seq_length={settings.max_seq_length} a window has {room} tokens "
                "of text, so the tokens between two windows would be lost; give a smaller stride"
            )

    @property
    def truncation_remedies(self) -> Sequence[str] | None:
        return ("--long_text=window", "--long_text=head_tail") if self.reading.long_text == TRUNCATE else None

    def contents_and_classes(self, examples: Sequence[Example]) -> tuple[list[str], list[Hashable]]:
        """Returns the texts and the class of each example; for a regression, all classes are None."""
        classes = [None if self.is_regression else example.label for example in examples]
        return [content_of(example.text_a, example.text_b) for example in examples], classes

    def label_value(self, text: str) -> float:
        """Converts a label to the number that the model learns: the id of the class, or the score.

        Raises:
          InputError: the label is unknown, or the score is not a number or is out of range.
        """
        if not self.is_regression:
            if text not in self.labels:
                raise InputError(f"unknown label {text!r}; the task's labels are {', '.join(self.labels)}")
            return self.labels.index(text)
        return parse_score(text, self.score_range)

    def encode(self, examples: Sequence[Example], tokenizer: BertTokenizer, max_seq_length: int) -> Columns:
        """Tokenizes examples.

        Returns:
          The columns:

          - `segment_a`: int32 [N, (tokens)], the token ids of the first or only text.
          - `segment_b`: int32 [N, (tokens)], the token ids of the second text; only for pairs.
          - `label_ids`: float32 [N], the ids of the classes, or the scores; 0 for unknown labels.
          - `example_ids`, `row_shares`, `order_ids`: see `Reading.rows`; only if an example can have several rows.
        """
        columns = {"segment_a": tokenize([e.text_a for e in examples], tokenizer)}
        if self.has_pairs:
            columns["segment_b"] = tokenize([e.text_b for e in examples], tokenizer)
        return self.reading.rows(columns | {"label_ids": self.label_ids(examples)}, max_seq_length)

    def label_ids(self, examples: Sequence[Example]) -> np.ndarray:
        """Returns the labels as the numbers that the model learns, float32, with one row for each example."""
        return np.array([0.0 if e.label is None else self.label_value(e.label) for e in examples], np.float32)

    def model_inputs(self, columns: Columns, tokenizer: BertTokenizer, max_seq_length: int) -> dict[str, tf.Tensor]:
        return self.reading.model_inputs(columns, tokenizer, max_seq_length)

    def head(self, config: BertConfig) -> keras.layers.Layer:
        return make_head(self.labels, config, self.reading)

    def weights(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the weights of rows, float32 [B]; the weights of an example's rows add up to 1."""
        weights = batch["row_weights"]
        return weights * batch["row_shares"] if self.reading.has_several_rows else weights

    def group_sizes(self, split: Split) -> np.ndarray | None:
        """Returns 2 for each example if its rows are the two orders of a pair, int [G], else None; see `Task`."""
        return np.bincount(split.example_ids) if self.reading.has_both_orders else None

    def by_example(self, split: Split, predictions: np.ndarray) -> tuple[Split, np.ndarray]:
        """Averages the logits of each example's rows; see `Reading.by_example`."""
        return self.reading.by_example(split, predictions)

    def losses(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the cross-entropy and the accuracy from logits [B, C]; for a regression, the squared error."""
        labels = batch["label_ids"]  # [B]
        if self.is_regression:
            return {"loss": tf.square(logits[:, 0] - labels)}
        labels = tf.cast(labels, tf.int32)
        return {
            "loss": tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits),
            "accuracy": tf.cast(tf.argmax(logits, -1, tf.int32) == labels, tf.float32),
        }

    def scores(self, split: Split, predictions: np.ndarray) -> dict[str, float]:
        """Computes the task's scores from the results of `prediction` [N, C]; the main score comes first."""
        labels = split.columns["label_ids"].numpy()
        answers = predictions[:, 0] if self.is_regression else np.argmax(predictions, axis=1)
        return scores.compute(self.score_names, labels, answers)

    def baseline(self, split: Split) -> ConstantAnswer:
        """Returns the constant answer, which is the majority class or, for a regression, the mean score."""
        labels = split.columns["label_ids"].numpy()
        if self.is_regression:
            mean = float(np.mean(labels, dtype=np.float64))
            predictions = np.full([len(labels), 1], mean, np.float32)
            return ConstantAnswer(f"the mean {mean:.4g}", self.scores(split, predictions))
        most = int(np.bincount(labels.astype(int)).argmax())
        predictions = np.eye(len(self.labels), dtype=np.float32)[np.full(len(labels), most)]
        return ConstantAnswer(f"{self.labels[most]!r}, the majority class", self.scores(split, predictions))

    def only_answer(self, split: Split, predictions: np.ndarray) -> str:
        """Returns the predicted class or score if the model predicts the same answer for every example; see `Task`."""
        labels = split.columns["label_ids"].numpy()
        if np.ptp(labels) == 0:
            return ""
        if self.is_regression:
            is_one = np.ptp(predictions) < _SAME_SCORE * np.std(labels)
            return f"the same score, {predictions.mean():.4g}" if is_one else ""
        answers = np.argmax(predictions, axis=1)
        return repr(self.labels[answers[0]]) if np.ptp(answers) == 0 else ""

    def keep_evaluation(
        self, folder: str, split: Split, predictions: np.ndarray, step: int | None, prefix: str = "dev"
    ) -> None:
        """Writes `dev_predictions.jsonl` for the report; see `evaluation_lines`."""
        classes = functools.partial(evaluation_lines.classes, labels=self.labels)
        answers = evaluation_lines.scores if self.is_regression else classes
        evaluation_lines.write(folder, split, predictions, answers, prefix)

    def write_predictions(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        """Writes two files with one line per example.

        `test_results.tsv` contains the probabilities of the classes, or the score, in the format of
        google-research/bert. `test_predictions.tsv` has a header, and also contains the predicted label and the
        example's id. If an example has no id, the file contains the example's index, counted from 0.
        """
        rows = predictions if self.is_regression else probabilities(predictions)
        results = [list(map(repr, row.tolist())) for row in rows]
        names = [self.example_name(split, number) for number in range(len(results))]
        if self.is_regression:
            named = [["index", "score"], *([name, *row] for name, row in zip(names, results, strict=True))]
        else:
            best = np.argmax(rows, axis=1)
            named = [["index", "label", *(f"probability of {label}" for label in self.labels)]]
            named += [[names[number], self.labels[best[number]], *row] for number, row in enumerate(results)]
        return self.write_tables(folder, split, results, named)

    @staticmethod
    def example_name(split: Split, number: int) -> str:
        """Returns the id of an example; if the example has no id, returns its index as text."""
        return getattr(split.examples[number], "id", None) or str(number)

    def write_tables(
        self, folder: str, split: Split, results: Sequence[Sequence[str]], named: Sequence[Sequence[str]]
    ) -> list[str]:
        """Writes `test_results.tsv` and `test_predictions.tsv`; returns the paths.

        Args:
          folder: folder of the files.
          split: the predicted split.
          results: cells of each line of `test_results.tsv`.
          named: cells of each line of `test_predictions.tsv`; the first line is the header.
        """
        paths = [os.path.join(folder, name) for name in ("test_results.tsv", "test_predictions.tsv")]
        for path, lines in zip(paths, (results, named), strict=True):
            storage.write_text(path, "".join("\t".join(line) + "\n" for line in lines))
        return paths

    def training_flops(self, config: BertConfig, length: int, examples: int = 1) -> int:
        whole = flops.training_flops(config, length, outputs=len(self.labels) or 1, examples=examples)
        if self.reading.pooling != "cls":
            return whole
        return whole - flops.unread_position_flops(config, length, examples)


def parse_score(text: str, score_range: tuple[float, float] = (-math.inf, math.inf)) -> float:
    """Converts the label of a regression to a score.

    Raises:
      InputError: the label is not a finite number, or is out of range.
    """
    low, high = score_range
    try:
        score = float(text.replace("_", " "))  # `float` would accept underscores in numbers
    except ValueError as error:
        raise InputError(f"the score {text!r} is not a number; fix or remove the line") from error
    if not math.isfinite(score):
        raise InputError(f"the score {text!r} is not a finite number; fix or remove the line")
    if not low <= score <= high:
        raise InputError(f"the score {text} is outside {low:g} to {high:g}")
    return score


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Computes the softmax of logits over the last axis, float32 [N, C]."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)
