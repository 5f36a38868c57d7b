"""The deterministic input pipeline from TFRecords to batches, which can start at any batch.

The pipeline parses, checks, masks and packs all records of a window together. Each row contains the position in the
data after this row. A batch therefore shows where the next batch starts, for any batch size, number of workers and
number of epochs.

Letters: N examples per row, M records per window, R rows per window.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.core.datasets import without_autotune
from bert_tf.core.errors import InputError
from bert_tf.input import packed_rows, record_order
from bert_tf.input.per_replica import per_replica_batches
from bert_tf.input.record_order import BEGINNING, Position
from bert_tf.text import masking
from tfrecords import reader, schema

_BEYOND_VOCABULARY = "ids beyond vocab_size"


@dataclasses.dataclass(frozen=True)
class DynamicMasking:
    """Parameters for masking records while they are read."""

    rule: masking.MaskingRule
    special_ids: tuple[int, ...]  # the ids of [CLS] and [SEP], which are never masked


@dataclasses.dataclass(frozen=True)
class ReadingOptions:
    """How record files are read, both in training and in evaluation."""

    features: Sequence[schema.Feature]  # features of the records; see `schema.pretraining_features`
    vocab_size: int  # upper bound (exclusive) of all ids
    seed: int = 0  # seed of the order and of dynamic masking
    # how to mask unmasked rows; None without dynamic masking. The masks differ in each epoch of training, and are the
    # same in every evaluation.
    dynamic_masking: DynamicMasking | None = None
    # directionality of the model; a unidirectional model predicts every token of unmasked rows
    directionality: str = "bidi"


# AutoGraph has nothing to rewrite in the mapped functions, and its search takes longer than tracing.
@tf.autograph.experimental.do_not_convert
def pretraining_batches(
    files: Sequence[str],
    reading: ReadingOptions,
    *,
    batch_size: int,
    training: bool,
    start: Position = BEGINNING,
    input_context: tf.distribute.InputContext | None = None,
    packing: packed_rows.RowShape | None = None,
) -> tf.data.Dataset:
    """Returns a dataset of batches of pre-training examples. Training shuffles and repeats endlessly, in an order that
    depends only on the seed. Evaluation reads the files once, in their order, and drops no example.
    `reading`: contents of the records, and how to read them.
    `batch_size`: global batch size in rows; each element of the dataset is a per-replica batch.
    `training`: whether to shuffle, repeat, and return full batches only.
    `start`: the position at which reading starts, for example the `data_position` of the previous batch.
    `input_context`: the context that identifies this worker; None for a single replica.
    `packing`: shape of packed rows; None for one example per row.
    The result is a dataset of dicts with these columns, int32 or float32:
    - the features of the records, [B, length], except `next_sentence_labels`, which is [B]. Packed rows have the
      columns of `packed_rows.pack_rows` instead.
    - `masked_lm_positions`, `masked_lm_ids` and `masked_lm_weights`, if the pipeline masks rows or the model predicts
      every token.
    - `data_position` [B, 3], the `Position` after this batch, which is equal in all rows and on all workers."""
    seed, dynamic_masking = reading.seed, reading.dynamic_masking
    windows = record_order.windows(files, shuffled=training, seed=seed, start=start)

    def to_rows(epoch, first, records):
        columns = _parse(records, reading.features, reading.vocab_size)
        if dynamic_masking or packing:
            columns = _made_in_numpy(columns, (seed, int(training)), epoch, first, dynamic_masking, packing)
        if reading.directionality != "bidi":
            columns |= every_token_predicted(columns, reading.directionality)
        columns["data_position"] = _positions(epoch, first, tf.size(records), tf.shape(columns["input_ids"])[0])
        is_first = (epoch == start.epoch) & (first == start.examples)
        used = tf.where(is_first, start.rows, 0)
        return {name: column[used:] for name, column in columns.items()}

    rows = windows.prefetch(tf.data.AUTOTUNE).map(to_rows, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    batches = rows.rebatch(batch_size, drop_remainder=training)
    per_replica = per_replica_batches(batches, batch_size if training else None, input_context)
    return without_autotune(per_replica.prefetch(tf.data.AUTOTUNE))


def _positions(epoch: tf.Tensor, first: tf.Tensor, examples: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Returns the position in the data after each row of a window, int32 [R, 3]."""
    used = tf.range(1, rows + 1)
    first = tf.cast(first, tf.int32)
    # After the last row of a window, the position is the start of the next window.
    first, used = tf.where(used == rows, first + examples, first), tf.where(used == rows, 0, used)
    return tf.stack([tf.fill([rows], tf.cast(epoch, tf.int32)), first, used], axis=1)


def _made_in_numpy(
    columns: Mapping[str, tf.Tensor],
    seed: tuple[int, ...],
    epoch: tf.Tensor,
    first: tf.Tensor,
    dynamic: DynamicMasking | None,
    packing: packed_rows.RowShape | None,
) -> dict[str, tf.Tensor]:
    """Masks and packs a window; the seed depends on the window's position, so a resumed run gets the same rows."""
    names = list(columns)
    length = columns["input_ids"].shape[1]
    widths = {name: tuple(column.shape[1:]) for name, column in columns.items()}
    if dynamic:
        widths |= dict.fromkeys(schema.PREDICTIONS, (dynamic.rule.max_predictions_per_seq,))
    if packing:
        widths = packed_rows.widths(widths, length, packing)

    def make(epoch, first, *values):
        made = dict(zip(names, values, strict=True))
        rng = np.random.default_rng((*seed, int(epoch), int(first)))
        if dynamic:
            made |= _masked(made["input_ids"], made["input_mask"], dynamic, rng)
        if packing:
            made = packed_rows.pack_rows(made, packing, rng)
        return [made[name] for name in widths]

    types = [tf.float32 if name.endswith("weights") else tf.int32 for name in widths]
    outputs = tf.numpy_function(make, (epoch, first, *columns.values()), types, stateful=False)
    made = dict(zip(widths, outputs, strict=True))
    for name, width in widths.items():
        made[name].set_shape([None, *width])
    return made


def _masked(
    input_ids: np.ndarray, input_mask: np.ndarray, dynamic: DynamicMasking, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    maskable = (input_mask > 0) & ~np.isin(input_ids, dynamic.special_ids)
    masked = masking.mask(input_ids, input_mask.sum(axis=1), maskable, dynamic.rule, rng)
    return {
        "input_ids": masked.input_ids,
        "masked_lm_positions": masked.positions,
        "masked_lm_ids": masked.labels,
        "masked_lm_weights": masked.weights,
    }


def every_token_predicted(batch: Mapping[str, tf.Tensor], directionality: str) -> dict[str, tf.Tensor]:
    """Returns the targets of a unidirectional model: for every position, the next token in the model's direction. [CLS]
    and [SEP] are not predicted, so that the perplexity measures only the text.
    Paper: section 5.1, "LTR".
    `batch`: unmasked rows; `input_ids` and `input_mask`, int32 [B, S].
    `directionality`: "ltr" or "rtl".
    Returns `masked_lm_positions` and `masked_lm_ids`: int32 [B, S - 1]. `masked_lm_weights`: float32 [B, S - 1]."""
    ids, mask = batch["input_ids"], batch["input_mask"]
    rows, length = tf.shape(ids)[0], ids.shape[1]
    # Every row starts with [CLS] and ends with [SEP], so the rows provide these ids.
    last = tf.maximum(tf.reduce_sum(mask, axis=1) - 1, 0)
    cls, sep = ids[:, :1], tf.gather(ids, last, batch_dims=1)[:, tf.newaxis]
    is_text = tf.cast((mask > 0) & (ids != cls) & (ids != sep), tf.float32)  # [B, S]
    looking_on = directionality == "ltr"
    positions = tf.range(length - 1) + (0 if looking_on else 1)
    predicted = slice(1, None) if looking_on else slice(None, -1)
    return {
        "masked_lm_positions": tf.tile(positions[tf.newaxis, :], [rows, 1]),
        "masked_lm_ids": ids[:, predicted],
        "masked_lm_weights": is_text[:, predicted],
    }


def _parse(records: tf.Tensor, features: Sequence[schema.Feature], vocab_size: int):
    dtypes = {"int64": tf.int64, "float": tf.float32}
    spec = {f.name: tf.io.FixedLenFeature([f.length], dtypes[f.kind]) for f in features}
    batch = tf.io.parse_example(records, spec)
    # Check the ids here: on an accelerator, tf.gather returns zeros for indices outside the table.
    tf.debugging.assert_less(
        tf.reduce_max(batch["input_ids"]),
        tf.constant(vocab_size, tf.int64),
        _BEYOND_VOCABULARY,
    )
    batch = {k: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for k, v in batch.items()}
    if "next_sentence_labels" in batch:
        batch["next_sentence_labels"] = tf.squeeze(batch["next_sentence_labels"], 1)
    return batch


@contextlib.contextmanager
def clear_errors(files: Sequence[str], vocab_size: int) -> Iterator[None]:
    """Converts errors of tf.data about invalid records into one line that names the file and the remedy."""
    try:
        yield
    except tf.errors.DataLossError as error:
        raise InputError(f"{reader.find_damage(files) or error}") from error
    except tf.errors.InvalidArgumentError as error:
        if "ParseExample" in str(error) or "parse serialized" in str(error):
            raise InputError(
                f"{', '.join(files)}: records of different lengths are mixed; make the data again"
            ) from error
        if _BEYOND_VOCABULARY not in str(error):
            raise
        raise InputError(
            f"{files[0]}: contains ids that are not below vocab_size={vocab_size} of the configuration; "
            "give the bert_config.json that belongs to the vocabulary of the data, or extend the checkpoint with "
            "convert_checkpoint --extended_vocab_file"
        ) from error
