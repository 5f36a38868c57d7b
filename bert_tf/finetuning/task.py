"""The interface of a fine-tuning task, which `engine.run_finetuning` runs.

Paper: section 3.2.

Letters: K layers that a head reads, G examples.
"""

import abc
import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.finetuning.stored_rows import StoredRows
from bert_tf.finetuning.task_data import TaskData
from bert_tf.settings import FineTuningSettings
from bert_tf.tokenization import BertTokenizer
from bert_tf.training import flops
from bert_tf.training.metrics import Form, Metric

LOSS = Metric("loss", "loss", "task")
ACCURACY = Metric("accuracy", "acc", "task", form=Form.FRACTION, higher_is_better=True)
_TEXTS_PER_CALL = _ROWS_PER_CALL = 4096

# The columns of encoded rows, by name.
Encoded = Mapping[str, tf.Tensor | tf.RaggedTensor | np.ndarray]


@dataclasses.dataclass(frozen=True)
class ConstantAnswer:
    """The same answer to every example, as a baseline. A useful model must have better scores."""

    answer: str
    scores: Mapping[str, float]  # scores of the answer, with the same names as in `Task.scores`


@dataclasses.dataclass(frozen=True)
class Split:
    """An encoded split of a task's data."""

    examples: Sequence[Any]  # the examples that `TaskData.read` returned
    columns: Encoded  # the columns that `Task.encode` returned; the first axis of each column has N rows
    example_ids: np.ndarray  # int64 [N], index of each row's example
    lengths: np.ndarray | None = None  # int32 [N], number of tokens of each row; None if no model will read the rows
    # the tokenizer that encoded the rows; some tasks need it to convert tokens back to text
    tokenizer: BertTokenizer | None = None
    # stored activations of a frozen encoder for the rows, see `activations`; None if training and evaluation run the
    # encoder
    activations: StoredRows | None = None
    # stored outputs of a teacher for the rows, see `distillation`; None without a teacher
    teacher_outputs: StoredRows | None = None

    def __len__(self) -> int:
        return len(self.example_ids)

    def digest(self) -> str:
        """Returns a hash of the columns."""
        digest = hashlib.sha256()
        for name, column in sorted(self.columns.items()):
            is_ragged = isinstance(column, tf.RaggedTensor)
            for values in [column.flat_values, *column.nested_row_splits] if is_ragged else [column]:
                digest.update(name.encode() + values.numpy().tobytes())
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Distillation:
    """What a student learns from a teacher, which is a model of the same kind of task."""

    # function of a teacher's outputs, float32 [B, ...], the logits, the temperature and the batch; returns the loss of
    # each row or token. If the logits have an axis of tokens, the teacher's outputs are padded to the same length.
    losses: Callable[..., tf.Tensor]
    weights: Callable[..., tf.Tensor]  # function of a batch that returns the weight of each value of `losses`
    outputs: Callable[..., tf.Tensor]  # function of logits and a batch that returns the outputs of a teacher
    # function of the student's split, the teacher's task, its split of the same examples, and its outputs for its own
    # rows; returns the outputs for the student's rows, one row after another. By default, both have the same rows.
    of_rows: Callable[..., np.ndarray] = lambda split, teacher, taught, outputs: outputs


class Task(abc.ABC):
    """The data, the head, the loss, the scores and the files of a task. A person labels an example. The model reads a
    row. An example has one or several rows.
    `parameters`: other values that the served model needs. They are stored in `task.json`, so JSON must be able to
      represent them.
    `metrics`: the loss terms and metrics that `losses` returns."""

    kind: str  # name of the kind of task; the kind determines the served model
    name: str  # the value of `--task_name`
    labels: tuple[str, ...]  # names of the classes in the order of their ids; () if the task has no classes
    data: TaskData
    distillation: Distillation

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (LOSS,)

    def check(self, config: BertConfig, settings: FineTuningSettings) -> None:  # noqa: B027 - a default
        """Raises InputError if the task cannot use the model or the settings; by default, accepts everything."""

    def data_facts(self) -> dict[str, Any]:
        """Returns the settings that determine how the files are read; these settings are part of a run's identity."""
        return self.data.reading_facts()

    def evaluation_facts(self) -> dict[str, Any]:
        """Returns the settings that determine only how predictions become answers. Later commands use these values by
        default, but may set other values. Therefore these settings are not part of a run's identity."""
        return {}

    # Folder of a frozen encoder's stored activations, which the head reads; "" if training runs the encoder.
    activations_dir: str = ""

    # What messages call the examples and the rows.
    example_and_row_names: tuple[str, str] = ("examples", "rows")

    # Flags, other than `max_seq_length`, with which less text is truncated. A warning suggests these flags. None if the
    # user has already chosen how to truncate.
    truncation_remedies: Sequence[str] | None = ()

    # The length of the rows if the data is already encoded; None if the task reads texts. For encoded data, it is
    # unknown which rows were truncated.
    row_length: int | None = None

    # The default length of rows, if the checkpoint's files state one that other tasks do not use.
    default_length: int | None = None

    # Whether the loss compares all rows of a batch. Then `losses` gets the rows of all micro-batches and replicas, and
    # all columns with one number per row.
    couples_rows: bool = False

    # Whether "dev" and "test" are the same data, so that only one of them is predicted.
    test_is_dev: bool = False

    def is_labeled(self, examples: Sequence[Any]) -> bool:
        """Returns whether the right answers to all examples are known, so that scores can be computed."""
        return all(getattr(example, "label", None) is not None for example in examples)

    def check_examples(self, examples: Mapping[str, Sequence[Any]]) -> None:  # noqa: B027 - a default
        """Raises InputError if a model cannot learn from the examples, and warns about doubtful examples."""

    @abc.abstractmethod
    def encode(self, examples: Sequence[Any], tokenizer: BertTokenizer, max_seq_length: int) -> Encoded:
        """Tokenizes examples into rows. Returns columns with N rows each. The column `example_ids`, int [N], contains
        the index of each row's example. Without this column, each example has one row. Test data also has the columns
        of labels; the values of unknown labels are arbitrary."""

    def rows_per_example(self, split: Split) -> np.ndarray | None:
        """Returns the number of rows of each example, int [G], if the rows of an example must stay together. All rows
        of an example are then in the same batch on the same replica, and `--train_batch_size` counts examples. In the
        argument `batch` of `losses`, the rows of an example are consecutive and in order. None, the default, means that
        each row may be in any batch."""
        return None

    @abc.abstractmethod
    def model_inputs(self, columns: Encoded, tokenizer: BertTokenizer, max_seq_length: int) -> dict[str, tf.Tensor]:
        """Makes the model's inputs for a batch. Training and the served model call this method in a graph.
        `columns`: the columns of `encode`, with B rows.
        `tokenizer`: provides the ids of special tokens.
        `max_seq_length`: sequence length, S.
        Returns the inputs of `BertEncoder`, which are `input_ids`, `input_mask` and `segment_ids`, int32 [B, S], with
        padding at the end. The result may have more columns for the head and the losses. All dimensions except B are
        static."""

    @abc.abstractmethod
    def head(self, config: BertConfig) -> keras.layers.Layer:
        """Returns the head, a layer that maps one of the encoder's outputs to logits. The attributes of the head:
        - `reads`: name of the encoder's output that the head reads, or "activations".
        - `columns`: names of the batch's columns that the head is also called with, such as `input_mask`.
        - `is_per_token`: if true, the head maps each token separately, from [..., H] to [..., outputs]. Such a head is
          applied to packed rows directly.
        - `checkpoint_name`: the head's name in checkpoints; by default, "head".
        - `layers`: if `reads` is "activations", the indices of the encoder layers whose activations the head reads. The
          head is called with these activations, float [B, S, K, H] (see `FineTunedBert.activations`), and with
          `read_mask`, int32 [B, S], which is 1 for the tokens to read."""

    def weights(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the weight of each value of `losses`, float32 [B] or [B, S]; by default, the weights of the rows."""
        return batch["row_weights"]

    @abc.abstractmethod
    def losses(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the loss and the metrics of training.
        `batch`: the model's inputs and the columns of `encode`.
        Returns "loss" and the other names in `metrics`, with float32 values that have the shape of `weights`. Training
        computes the weighted mean of each entry."""

    def prediction(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the predictions of rows for `scores` and `write_predictions`, [B, ...]; by default, the logits."""
        return logits

    def output_counts(self, split: Split) -> np.ndarray:
        """Returns the number of activations or teacher's outputs that files have for each row, int64 [N], such as one
        per labeled word; by default, one."""
        return np.ones(len(split), np.int64)

    def by_example(self, split: Split, predictions: np.ndarray) -> tuple[Split, np.ndarray]:
        """Converts the predictions of rows to the arguments of `scores` and `write_predictions`. By default, the
        arguments are returned unchanged.
        `split`: a split with N rows.
        `predictions`: predictions of the rows, [N, ...].
        Returns a split and its predictions, often with one row per example."""
        return split, predictions

    @abc.abstractmethod
    def scores(self, split: Split, predictions: np.ndarray) -> dict[str, float]:
        """Computes the task's metrics from the split and predictions of `by_example`; the main metric comes first."""

    def baseline(self, split: Split) -> ConstantAnswer | None:
        """Returns the best constant answer to the examples of a split; by default, None."""
        return None

    def only_answer(self, split: Split, predictions: np.ndarray) -> str:
        """Returns the predicted answer if all predictions are equal although the right answers differ, else ""."""
        return ""

    @property
    def tuned(self) -> Any:
        """The file with the thresholds that an evaluation tunes, a `TunedFile`; None if there are no thresholds."""
        return None

    def without_tuning(self, folder: str) -> "Task":
        """Returns the task without threshold tuning, so that an evaluation uses the thresholds in a run's folder."""
        return self

    def write_evaluation(  # noqa: B027 - a default
        self, folder: str, split: Split, predictions: np.ndarray, step: int | None, prefix: str = "dev"
    ) -> None:
        """Atomically writes the files that the task keeps for an evaluation; by default, no files.
        `split`: the split that `by_example` returned.
        `predictions`: the predictions that `by_example` returned.
        `step`: training step of the evaluated weights; None for an ensemble.
        `prefix`: prefix of the names of prediction files: "dev" for the run's dev data, else "eval"."""

    def write_files(self, folder: str, config: BertConfig, max_seq_length: int) -> None:  # noqa: B027 - a default
        """Writes further files of the model into a run's folder; by default, no files."""

    def check_checkpoint(self, folder: str, step: int) -> None:  # noqa: B027 - a default
        """Raises InputError if the files of `write_evaluation` do not belong to the checkpoint of `step`."""

    @abc.abstractmethod
    def write_predictions(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        """Atomically writes the predictions [N, ...] into prediction files in a folder; returns the paths."""

    def training_flops(self, config: BertConfig, length: int, examples: int = 1) -> int:
        """Computes the model FLOPs of training for one row.
        `length`: length of the row, in tokens.
        `examples`: maximum number of examples in a packed row."""
        return flops.training_flops(config, length, examples=examples)


def tokenize(texts: Sequence[str], tokenizer: BertTokenizer) -> tf.RaggedTensor:
    """Tokenizes any number of texts; each call of the tokenizer gets a limited number of texts. Returns token ids of
    the N texts, int32 [N, (tokens)]."""
    # A tf.function would not help, because tracing would take as long as a hundred calls.
    parts = [
        tokenizer.encode(tf.constant(texts[i : i + _TEXTS_PER_CALL], tf.string))
        for i in range(0, max(1, len(texts)), _TEXTS_PER_CALL)
    ]
    return tf.concat(parts, axis=0)


def encoded_split(task: Task, examples: Sequence[Any], tokenizer: BertTokenizer, max_seq_length: int) -> Split:
    columns = dict(task.encode(examples, tokenizer, max_seq_length))
    example_ids = np.asarray(columns.pop("example_ids", np.arange(len(examples))), np.int64)
    columns = {
        name: column if isinstance(column, tf.RaggedTensor) else tf.convert_to_tensor(column)
        for name, column in columns.items()
    }
    lengths = _lengths(task, columns, len(example_ids), tokenizer, max_seq_length)
    return Split(examples, columns, example_ids, lengths, tokenizer)


def _lengths(task: Task, columns: Encoded, count: int, tokenizer: BertTokenizer, max_seq_length: int) -> np.ndarray:
    parts = [np.zeros(0, np.int32)]
    for begin in range(0, count, _ROWS_PER_CALL):
        rows = {name: column[begin : begin + _ROWS_PER_CALL] for name, column in columns.items()}
        inputs = task.model_inputs(rows, tokenizer, max_seq_length)
        parts.append(tf.reduce_sum(inputs["input_mask"], axis=1).numpy())
    return np.concatenate(parts)
