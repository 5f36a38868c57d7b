"""The interface of a fine-tuning task, which `engine.run_finetuning` runs.

Paper: section 3.2.

Letters: B batch, S sequence length, N rows.
"""

import abc
import dataclasses
import functools
import hashlib
import os
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.finetuning import stratified_split
from bert_tf.finetuning.stratified_split import HeldOut
from bert_tf.runs import run_folder
from bert_tf.settings import FineTuningSettings
from bert_tf.tokenization import BertTokenizer
from bert_tf.training import flops
from bert_tf.training.metrics import Form, Metric

LOSS = Metric("loss", "loss", "task")
ACCURACY = Metric("accuracy", "acc", "task", form=Form.FRACTION, higher_is_better=True)
SPLITS = ("train", "dev", "test")
_TEXTS_PER_CALL = 4096

Columns = Mapping[str, tf.Tensor | tf.RaggedTensor | np.ndarray]


@dataclasses.dataclass(frozen=True)
class ConstantAnswer:
    """The same answer to every example. A useful model must exceed its scores.

    Attributes:
      answer: name of the answer in messages.
      scores: scores of the answer, with the names of `Task.scores`.
    """

    answer: str
    scores: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Split:
    """An encoded split of a task's data.

    Attributes:
      examples: the examples that `Task.read` returned.
      columns: the columns that `Task.encode` returned; the first axis of each column has N rows.
      example_ids: int64 [N], index of each row's example.
      lengths: int32 [N], number of tokens of each row; None if no model will read the rows.
      tokenizer: the tokenizer that encoded the rows, for tasks that convert tokens back to text.
      activations: a frozen encoder's activations for the rows, see `activations.StoredActivations`; None if the encoder
        runs.
    """

    examples: Sequence[Any]
    columns: Columns
    example_ids: np.ndarray
    lengths: np.ndarray | None = None
    tokenizer: BertTokenizer | None = None
    activations: Any = None

    def __len__(self) -> int:
        return len(self.example_ids)

    def first(self, count: int) -> "Split":
        """Returns a split with all rows of the first examples, at most `count` examples."""
        ends = [*np.flatnonzero(np.diff(self.example_ids)) + 1, len(self)]  # the rows of an example are consecutive
        rows = int(ends[min(count, len(ends)) - 1])
        columns = {name: column[:rows] for name, column in self.columns.items()}
        lengths = None if self.lengths is None else self.lengths[:rows]
        return dataclasses.replace(self, columns=columns, example_ids=self.example_ids[:rows], lengths=lengths)


class Task(abc.ABC):
    """A task defines its data, its head, its loss, its scores and its files.

    An example is the unit that a person labels; a row is the unit that the model reads. An example has one or several
    rows.

    Attributes:
      kind: kind of the task; it determines the served model.
      name: the value of `--task_name`.
      labels: names of the classes in the order of their ids; () if there are none.
      parameters: other values that the served model needs; they are stored in `task.json`, so JSON must allow them.
      metrics: the loss terms and metrics that `losses` returns.
    """

    kind: str
    name: str
    labels: tuple[str, ...]

    @property
    def parameters(self) -> Mapping[str, Any]:
        """See the class."""
        return {}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """See the class."""
        return (LOSS,)

    def check(self, config: BertConfig, settings: FineTuningSettings) -> None:  # noqa: B027 - a default
        """Raises InputError for a model or settings that the task cannot use; by default, accepts all."""

    def data_facts(self) -> dict[str, Any]:
        """Returns the settings that decide how the files are read; they are part of a run's identity."""
        return {"dev_share": self.held_out.share, "dev_seed": self.held_out.seed} if self.held_out else {}

    # The data that is held out of the training data; None if there is none.
    held_out: HeldOut | None = None

    # Whether there are files with dev data.
    has_dev_files: bool = True

    # Folder of a frozen encoder's activations, which the head reads from disk; "" if the encoder runs.
    activations_dir: str = ""

    # Whether encoded rows may be cached on disk; the `repr` of an example must then show all of its content.
    is_cached: bool = True

    # The names of examples and rows in messages.
    unit_names: tuple[str, str] = ("examples", "rows")

    # Flags, other than `max_seq_length`, that keep more of long texts; None if the user has chosen the truncation.
    truncation_remedies: Sequence[str] | None = ()

    # The length of rows if the data is already encoded, so that truncation is unknown; None if the task reads texts.
    row_length: int | None = None

    # Whether "dev" and "test" are the same data, so that only one of them is predicted.
    test_is_dev: bool = False

    # Names of the prediction files that both `write_predictions` and `keep_evaluation` write.
    evaluation_predictions: Sequence[str] = ()

    def files(self, split: str) -> list[str]:
        """Returns the paths of the files from which "train", "dev" or "test" is read."""
        return self.files_of(self._origin(split))

    def fingerprint(self, split: str) -> list[str]:
        """Returns the identity of a split's data."""
        found = self.fingerprint_of(self._origin(split))
        if self._origin(split) == split:
            return found
        return [f"{entry}, {self.held_out.share:g} held out by seed {self.held_out.seed}" for entry in found]

    def data_name(self, split: str) -> str:
        """Returns the name of a split's data for reports and messages."""
        name = self.data_name_of(self._origin(split))
        return name if self._origin(split) == split else f"{self.held_out.share:.3g} of {name}"

    def digest(self, examples: Sequence[Any]) -> str:
        """Returns a hash of the content of examples, without their ids and their origin."""
        found = hashlib.sha256()
        for example in examples:
            content = dataclasses.replace(example, id=None) if hasattr(example, "id") else example
            found.update(repr(content).encode("utf-8", "surrogatepass") + b"\0")
        return found.hexdigest()

    def is_labeled(self, examples: Sequence[Any]) -> bool:
        """Returns whether the right answers to all examples are known, so that scores can be computed."""
        return all(getattr(example, "label", None) is not None for example in examples)

    def read(self, split: str) -> Sequence[Any]:
        """Reads the examples of a split, and checks all labels.

        Raises:
          InputError: the data is invalid (the message names the file and the line), or `held_out` leaves train or dev
            empty.
        """
        if self.held_out and self._origin(split) == "train":
            examples, numbers = self._divided[0], self._divided[1][split]
            return self.some_of(examples, numbers)
        return self.read_files(split)

    def number_of(self, split: str, index: int) -> int:
        """Returns the index in the split's files of an example that `read` returned at `index`; both count from 0."""
        is_part = self.held_out and self._origin(split) == "train"
        return int(self._divided[1][split][index]) if is_part else index

    def _origin(self, split: str) -> str:
        """Returns the name of the split whose files contain a split's data."""
        return "train" if split == "dev" and self.held_out and self.held_out.is_dev else split

    @functools.cached_property
    def _divided(self) -> tuple[Sequence[Any], dict[str, np.ndarray]]:
        """The examples of the training files, and the indices of the examples of train and of dev."""
        examples = self.read_files("train")
        contents, classes = self.contents_and_classes(examples)
        is_held = stratified_split.held_out(contents, classes, self.held_out.share, self.held_out.seed)
        return examples, {"train": np.flatnonzero(~is_held), "dev": np.flatnonzero(is_held)}

    @abc.abstractmethod
    def files_of(self, split: str) -> list[str]:
        """Returns the paths of a split's own files."""

    def fingerprint_of(self, split: str) -> list[str]:
        """Returns the identity of a split's own files; by default, their names, sizes and hashes."""
        return run_folder.fingerprint(self.files_of(split), whole=True)

    def data_name_of(self, split: str) -> str:
        """Returns the name of a split's own data; by default, the names of its files."""
        return ", ".join(os.path.basename(path) for path in self.files_of(split)) or "texts"

    @abc.abstractmethod
    def read_files(self, split: str) -> Sequence[Any]:
        """Reads all examples of a split's own files; see `read`."""

    def contents_and_classes(self, examples: Sequence[Any]) -> tuple[list[str], list[Hashable]]:
        """Returns the arguments of `stratified_split.held_out`; by default, the `repr` of examples, and no classes."""
        return list(map(repr, examples)), [None] * len(examples)

    def some_of(self, examples: Sequence[Any], numbers: np.ndarray) -> Sequence[Any]:
        """Returns the examples of `read_files` with these indices."""
        return [examples[number] for number in numbers.tolist()]

    def check_examples(self, examples: Mapping[str, Sequence[Any]]) -> None:  # noqa: B027 - a default
        """Raises InputError for examples that cannot be learned, and warns about doubtful examples.

        Args:
          examples: the examples of each split that a run reads.
        """

    @abc.abstractmethod
    def encode(self, examples: Sequence[Any], tokenizer: BertTokenizer, max_seq_length: int) -> Columns:
        """Tokenizes examples into rows.

        Returns:
          Columns with N rows each. `example_ids`, int [N], is the index of each row's example; if it is absent, each
          example has one row. Test data has columns of labels too; unknown labels have arbitrary values.
        """

    def group_sizes(self, split: Split) -> np.ndarray | None:
        """Returns the number of rows of each example, int [G], if these rows must be in one batch of one replica.

        `--train_batch_size` then counts examples. The rows of an example are consecutive and in order in the `batch` of
        `losses`. None, the default, means that each row may be in any batch.
        """
        return None

    @abc.abstractmethod
    def model_inputs(self, columns: Columns, tokenizer: BertTokenizer, max_seq_length: int) -> dict[str, tf.Tensor]:
        """Makes the model's inputs for a batch in a graph; training and the served model both call this method.

        Args:
          columns: the columns of `encode`, with B rows.
          tokenizer: provides the ids of special tokens.
          max_seq_length: S.

        Returns:
          The inputs of `BertEncoder`: `input_ids`, `input_mask`, `segment_ids`, int32 [B, S], with padding at the end;
          and optionally more columns for the head and the losses. All dimensions except B are static.
        """

    @abc.abstractmethod
    def head(self, config: BertConfig) -> keras.layers.Layer:
        """Returns a layer that maps one of the encoder's outputs to logits; its attribute `reads` names the output.

        A layer with a true attribute `reads_mask` is also called with `input_mask`, int32 [B, S]. A layer with a true
        attribute `is_per_token` maps each token separately, from [..., H] to [..., outputs], so it is applied to packed
        rows directly. The attribute `checkpoint_name` is the layer's name in checkpoints; the default is "head".
        A layer whose `reads` is "activations" has an attribute `layers`. It gets these layers' activations, float
        [B, S, K, H], see `FineTunedBert.activations`, and `read_mask`, int32 [B, S], which is 1 for the tokens to read.
        """

    def weights(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the weight of each value of `losses`, float32 [B] or [B, S]; by default the weights of the rows."""
        return batch["row_weights"]

    @abc.abstractmethod
    def losses(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the loss and the metrics of training.

        Args:
          logits: the head's output.
          batch: the model's inputs and the columns of `encode`.

        Returns:
          "loss" and the other declared metrics, float32 with the shape of `weights`. Training computes their weighted
          means.
        """

    def prediction(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the values of each row for `scores` and `write_predictions`, [B, ...]; by default the logits."""
        return logits

    def by_example(self, split: Split, predictions: np.ndarray) -> tuple[Split, np.ndarray]:
        """Converts predictions of rows to the arguments of `scores` and `write_predictions`; by default no change.

        Args:
          split: a split with N rows.
          predictions: predictions of the rows, [N, ...].

        Returns:
          A split and its predictions, for instance with one row per example.
        """
        return split, predictions

    @abc.abstractmethod
    def scores(self, split: Split, predictions: np.ndarray) -> dict[str, float]:
        """Computes the task's metrics from the predictions [N, ...] of all rows; the main metric comes first."""

    def baseline(self, split: Split) -> ConstantAnswer | None:
        """Returns the best constant answer to the examples of a split; None, the default, if there is none."""
        return None

    def only_answer(self, split: Split, predictions: np.ndarray) -> str:
        """Returns the answer if all predictions are equal although the right answers differ, else an empty string."""
        return ""

    def keep_evaluation(  # noqa: B027 - a default
        self, folder: str, split: Split, predictions: np.ndarray, step: int | None, prefix: str = "dev"
    ) -> None:
        """Writes the task's own files of an evaluation atomically, in addition to the scores; by default, none.

        Args:
          folder: folder for the files.
          split: the split that `by_example` returned.
          predictions: the predictions that `by_example` returned.
          step: step of the weights; None for an ensemble.
          prefix: beginning of the names of files with predictions: "dev" for the run's dev data, else "eval".
        """

    def check_checkpoint(self, folder: str, step: int) -> None:  # noqa: B027 - a default
        """Raises InputError if the files of `keep_evaluation` belong to a different checkpoint than `step`."""

    @abc.abstractmethod
    def write_predictions(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        """Writes prediction files into a folder atomically, from the predictions [N, ...]; returns the paths."""

    def overwrites(self, name: str) -> bool:
        """Returns whether new predictions take the place of this file, which has predictions for other data."""
        return True

    def training_flops(self, config: BertConfig, length: int, examples: int = 1) -> int:
        """Computes the model FLOPs of training for one row.

        Args:
          config: configuration of the encoder.
          length: length of the row, in tokens.
          examples: maximum number of examples in a packed row.
        """
        return flops.training_flops(config, length, examples=examples)


def tokenize(texts: Sequence[str], tokenizer: BertTokenizer) -> tf.RaggedTensor:
    """Tokenizes any number of texts, in calls of limited size.

    Returns:
      Token ids, int32 [N, (tokens)].
    """
    # A tf.function would not help, because tracing would take as long as a hundred calls.
    parts = [
        tokenizer.encode(tf.constant(texts[i : i + _TEXTS_PER_CALL], tf.string))
        for i in range(0, max(1, len(texts)), _TEXTS_PER_CALL)
    ]
    return tf.concat(parts, axis=0)
