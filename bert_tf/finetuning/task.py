"""What a fine-tuning task is: a value that `engine.run_finetuning` runs.

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
    """The same answer to every example, which needs no model; its scores are what a model must exceed.

    Attributes:
      answer: as messages name it.
      scores: by the names of `Task.scores`.
    """

    answer: str
    scores: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Split:
    """One of a task's data sets, encoded.

    Attributes:
      examples: as `Task.read` returned them.
      columns: as `Task.encode` returned them; the first axis of each column has N rows.
      example_ids: int64 [N], index of the example that each row comes from.
      lengths: int32 [N], number of tokens of each row; None where no model reads the rows any more.
      tokenizer: that encoded them, for tasks that convert tokens back to text.
      activations: what a frozen encoder gives for the rows; see `activations.StoredActivations`. None if it runs.
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
        """Returns all rows of its first examples, at most so many examples."""
        ends = [*np.flatnonzero(np.diff(self.example_ids)) + 1, len(self)]  # the rows of an example follow each other
        rows = int(ends[min(count, len(ends)) - 1])
        columns = {name: column[:rows] for name, column in self.columns.items()}
        lengths = None if self.lengths is None else self.lengths[:rows]
        return dataclasses.replace(self, columns=columns, example_ids=self.example_ids[:rows], lengths=lengths)


class Task(abc.ABC):
    """A task: its data, its head, its loss, its scores and its files.

    An example is what a person labels; a row is what the model reads. An example becomes one or several rows.

    Attributes:
      kind: the shape of the task; export picks the served model by it.
      name: the value of `--task_name`.
      labels: names of the classes in the order of their ids; () if there are none.
      parameters: what else the served model needs, as JSON; `task.json` keeps it.
      metrics: declares the loss terms and metrics of `losses`.
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
        """Refuses a model or settings that the task cannot use, by an InputError; accepts all by default."""

    def data_facts(self) -> dict[str, Any]:
        """Returns the settings that decide how the files are read; a run with others is another run."""
        return {"dev_share": self.held_out.share, "dev_seed": self.held_out.seed} if self.held_out else {}

    # What is held out of the training data; None for nothing.
    held_out: HeldOut | None = None

    # Whether there are files of the dev data.
    has_dev_files: bool = True

    # Folder of the activations of an encoder that is not trained, which the head reads from disk; "" where it runs.
    activations_dir: str = ""

    # Whether the encoded rows may be kept on disk; the `repr` of an example then shows all of it.
    is_cached: bool = True

    # What messages call examples and rows.
    unit_names: tuple[str, str] = ("examples", "rows")

    # Flags besides `max_seq_length` that keep more of long texts; None where the user has chosen what is cut.
    truncation_remedies: Sequence[str] | None = ()

    # The length of rows that are encoded already, so that nobody knows which texts were cut; None where texts are read.
    row_length: int | None = None

    # Whether "dev" and "test" are the same data, so that one of them is predicted.
    test_is_dev: bool = False

    # Names of the prediction files that `keep_evaluation` writes, like `write_predictions`.
    evaluation_predictions: Sequence[str] = ()

    def files(self, split: str) -> list[str]:
        """Returns the paths of the files that "train", "dev" or "test" is read from."""
        return self.files_of(self._origin(split))

    def fingerprint(self, split: str) -> list[str]:
        """Returns what identifies the data of a split."""
        found = self.fingerprint_of(self._origin(split))
        if self._origin(split) == split:
            return found
        return [f"{entry}, {self.held_out.share:g} held out by seed {self.held_out.seed}" for entry in found]

    def data_name(self, split: str) -> str:
        """Returns how reports and messages name the data of a split."""
        name = self.data_name_of(self._origin(split))
        return name if self._origin(split) == split else f"{self.held_out.share:.3g} of {name}"

    def digest(self, examples: Sequence[Any]) -> str:
        """Returns a hash of the content of examples, wherever they were read from, without their ids."""
        found = hashlib.sha256()
        for example in examples:
            content = dataclasses.replace(example, id=None) if hasattr(example, "id") else example
            found.update(repr(content).encode("utf-8", "surrogatepass") + b"\0")
        return found.hexdigest()

    def is_labeled(self, examples: Sequence[Any]) -> bool:
        """Returns whether the right answers of all examples are known, so that they can be scored."""
        return all(getattr(example, "label", None) is not None for example in examples)

    def read(self, split: str) -> Sequence[Any]:
        """Reads the examples of a split and checks all labels.

        Raises:
          InputError: names the file and the line; or the share of the dev data leaves train or dev empty.
        """
        if self.held_out and self._origin(split) == "train":
            examples, numbers = self._divided[0], self._divided[1][split]
            return self.some_of(examples, numbers)
        return self.read_files(split)

    def number_of(self, split: str, index: int) -> int:
        """Returns the number of an example of `read`, from 0, among those in the split's files."""
        is_part = self.held_out and self._origin(split) == "train"
        return int(self._divided[1][split][index]) if is_part else index

    def _origin(self, split: str) -> str:
        """Returns the split whose files hold a split."""
        return "train" if split == "dev" and self.held_out and self.held_out.is_dev else split

    @functools.cached_property
    def _divided(self) -> tuple[Sequence[Any], dict[str, np.ndarray]]:
        """The examples of the training files, and the numbers of those of train and of dev."""
        examples = self.read_files("train")
        contents, classes = self.contents_and_classes(examples)
        is_held = stratified_split.held_out(contents, classes, self.held_out.share, self.held_out.seed)
        return examples, {"train": np.flatnonzero(~is_held), "dev": np.flatnonzero(is_held)}

    @abc.abstractmethod
    def files_of(self, split: str) -> list[str]:
        """Returns the paths of a split's own files."""

    def fingerprint_of(self, split: str) -> list[str]:
        """Returns what identifies a split's own files; by default, their names, sizes and hashes."""
        return run_folder.fingerprint(self.files_of(split))

    def data_name_of(self, split: str) -> str:
        """Returns the name of a split's own data; by default, the names of its files."""
        return ", ".join(os.path.basename(path) for path in self.files_of(split)) or "texts"

    @abc.abstractmethod
    def read_files(self, split: str) -> Sequence[Any]:
        """Reads all examples of a split's own files; see `read`."""

    def contents_and_classes(self, examples: Sequence[Any]) -> tuple[list[str], list[Hashable]]:
        """Returns what `stratified_split.held_out` takes; by default, each example stands alone and has no class."""
        return list(map(repr, examples)), [None] * len(examples)

    def some_of(self, examples: Sequence[Any], numbers: np.ndarray) -> Sequence[Any]:
        """Returns the examples of `read_files` that have these numbers."""
        return [examples[number] for number in numbers.tolist()]

    def check_examples(self, examples: Mapping[str, Sequence[Any]]) -> None:  # noqa: B027 - a default
        """Refuses examples that cannot be learned, by an InputError, and warns of doubtful ones.

        Args:
          examples: of all splits that a run reads, by the split.
        """

    @abc.abstractmethod
    def encode(self, examples: Sequence[Any], tokenizer: BertTokenizer, max_seq_length: int) -> Columns:
        """Tokenizes examples to rows.

        Returns:
          Columns with N rows each. `example_ids`, int [N], says which example each row comes from; without it, each
          example is one row. Columns of labels are there for test data too, with any value.
        """

    def group_sizes(self, split: Split) -> np.ndarray | None:
        """Returns the number of rows of each example if those must be in one batch of one replica, int [G].

        `--train_batch_size` then counts examples. The rows of an example follow each other, in their order, in the
        `batch` of `losses`. None, the default, means that each row may be in any batch.
        """
        return None

    @abc.abstractmethod
    def model_inputs(self, columns: Columns, tokenizer: BertTokenizer, max_seq_length: int) -> dict[str, tf.Tensor]:
        """Makes the model's inputs of a batch in the graph; training and the served model call the same code.

        Args:
          columns: B rows of each column of `encode`.
          tokenizer: gives the ids of special tokens.
          max_seq_length: S.

        Returns:
          What `BertEncoder` reads: `input_ids`, `input_mask`, `segment_ids`, int32 [B, S], with padding at the end;
          and perhaps more columns for the head and the losses. All shapes but B are static.
        """

    @abc.abstractmethod
    def head(self, config: BertConfig) -> keras.layers.Layer:
        """Returns a layer from one of the encoder's outputs, which its attribute `reads` names, to logits.

        A layer whose attribute `reads_mask` is true is also called with `input_mask`, int32 [B, S]. A layer whose
        attribute `is_per_token` is true maps each token by itself, [..., H] to [..., outputs], so that it is applied to
        packed rows as they are. The attribute `checkpoint_name` gives its name in checkpoints if it is not "head".
        A layer that reads "activations" takes what `FineTunedBert.activations` returns of the layers that its attribute
        `layers` names, float [B, S, K, H], and `read_mask`, int32 [B, S], which is 1 on the tokens that it reads.
        """

    def weights(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the weight of each value of `losses`, float32 [B] or [B, S]; the rows' own weight by default."""
        return batch["row_weights"]

    @abc.abstractmethod
    def losses(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the loss and the metrics of training.

        Args:
          logits: the head's output.
          batch: the model's inputs and the columns of `encode`.

        Returns:
          "loss" and other declared metrics, float32 in the shape of `weights`. Each is averaged by these weights.
        """

    def prediction(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns what `scores` and `write_predictions` need of each row, [B, ...]; the logits by default."""
        return logits

    def by_example(self, split: Split, predictions: np.ndarray) -> tuple[Split, np.ndarray]:
        """Converts predictions of rows to what `scores` and `write_predictions` get; by default nothing changes.

        Args:
          split: with N rows.
          predictions: [N, ...].

        Returns:
          A split and its predictions, for example with one row for each example.
        """
        return split, predictions

    @abc.abstractmethod
    def scores(self, split: Split, predictions: np.ndarray) -> dict[str, float]:
        """Computes the task's metrics from the predictions [N, ...] of all rows; the main metric comes first."""

    def baseline(self, split: Split) -> ConstantAnswer | None:
        """Returns the best constant answer to the examples of a split; None, the default, if there is none."""
        return None

    def only_answer(self, split: Split, predictions: np.ndarray) -> str:
        """Returns the one answer that all predictions are, though the right ones differ; "" for several."""
        return ""

    def keep_evaluation(  # noqa: B027 - a default
        self, folder: str, split: Split, predictions: np.ndarray, step: int | None, prefix: str = "dev"
    ) -> None:
        """Writes what a task keeps of the evaluation of a step besides its scores, atomically; nothing by default.

        Args:
          folder: where to write.
          split: as `by_example` returned it.
          predictions: likewise.
          step: of the weights; None for an ensemble.
          prefix: with which the names of files begin that hold predictions: "dev" for the run's dev data, else "eval".
        """

    def check_checkpoint(self, folder: str, step: int) -> None:  # noqa: B027 - a default
        """Refuses what `keep_evaluation` wrote for another step than that of the checkpoint that is used now."""

    @abc.abstractmethod
    def write_predictions(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        """Writes prediction files into a folder, atomically, from the predictions [N, ...]; returns their paths."""

    def overwrites(self, name: str) -> bool:
        """Whether `write_predictions` may overwrite a prediction file that this run wrote of other data."""
        return True

    def training_flops(self, config: BertConfig, length: int, examples: int = 1) -> int:
        """Computes the model FLOPs of training on one row.

        Args:
          config: shape of the encoder.
          length: of the row, in tokens.
          examples: places for examples in a packed row.
        """
        return flops.training_flops(config, length, examples=examples)


def tokenize(texts: Sequence[str], tokenizer: BertTokenizer) -> tf.RaggedTensor:
    """Tokenizes many texts in calls of limited size.

    Returns:
      Token ids, int32 [N, (tokens)].
    """
    # Not in a tf.function: tracing would take as long as a hundred calls.
    parts = [
        tokenizer.encode(tf.constant(texts[i : i + _TEXTS_PER_CALL], tf.string))
        for i in range(0, max(1, len(texts)), _TEXTS_PER_CALL)
    ]
    return tf.concat(parts, axis=0)
