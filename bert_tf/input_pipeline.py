"""From TFRecords to batches: deterministic, and able to start at any step.

Letters: B batch, S sequence length, P predictions.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf import masking
from tfrecords import reader, schema
from tfrecords.errors import InputError

_SHUFFLE_BUFFER = 10_000
_BEYOND_VOCABULARY = "ids beyond vocab_size"


@dataclasses.dataclass(frozen=True)
class DynamicMasking:
    """How rows that were written unmasked are masked when they are read.

    Attributes:
      rule: see `masking.MaskingRule`.
      special_ids: ids that are never masked: of [CLS] and [SEP].
    """

    rule: masking.MaskingRule
    special_ids: tuple[int, ...]


def pretraining_batches(
    files: Sequence[str],
    *,
    features: Sequence[schema.Feature],
    vocab_size: int,
    batch_size: int,
    training: bool,
    seed: int = 0,
    start_step: int = 0,
    input_context: tf.distribute.InputContext | None = None,
    dynamic_masking: DynamicMasking | None = None,
    directionality: str = "bidi",
) -> tf.data.Dataset:
    """Batches of pre-training examples.

    Training shuffles and repeats for ever, in an order that seed alone decides; evaluation reads the
    files once, in their order, and drops nothing.

    Args:
      files: TFRecords.
      features: what the records hold, `schema.pretraining_features`.
      vocab_size: ids must be below it.
      batch_size: rows over all replicas; each batch holds one replica's share.
      training: shuffle, repeat, and give full batches only.
      seed: seed of the order.
      start_step: batches to pass over, so that a resumed run goes on where it was.
      input_context: this worker's share, where there are several.
      dynamic_masking: masks rows that were written unmasked, anew each time they come by; in evaluation
        each time alike.
      directionality: of the model; one that looks one way predicts every piece of unmasked rows.

    Returns:
      A dataset of dicts: the record's features, int32 and float32, [B, length]; `next_sentence_labels` [B];
      and where rows are masked or predicted here, `masked_lm_positions`, `masked_lm_ids`, `masked_lm_weights`.
    """
    compressions = [reader.compression(path) for path in files]
    dataset = tf.data.Dataset.from_tensor_slices((list(files), compressions))
    if training:
        dataset = dataset.shuffle(len(files), seed=seed)
    dataset = dataset.interleave(
        lambda path, compression: tf.data.TFRecordDataset(path, compression_type=compression),
        cycle_length=min(8, len(files)) if training else 1,
    )
    if training:
        dataset = dataset.shuffle(_SHUFFLE_BUFFER, seed=seed).repeat()
    dataset = batch_share(
        dataset, batch_size, start_step if training else 0, drop_remainder=training, input_context=input_context
    )

    def parse(records):
        batch = _parse_batch(records, features, vocab_size)
        return batch if directionality == "bidi" else batch | every_piece_predicted(batch, directionality)

    dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    if dynamic_masking:
        worker, batches = 0, 1
        if input_context:
            # a step takes one batch for each of this worker's replicas
            worker = input_context.input_pipeline_id
            batches = input_context.num_replicas_in_sync // input_context.num_input_pipelines
        first_batch = start_step * batches if training else 0
        dataset = _masked_anew(dataset, dynamic_masking, (seed, int(training), worker), first_batch)
    return dataset.prefetch(tf.data.AUTOTUNE)


def _masked_anew(
    dataset: tf.data.Dataset, dynamic: DynamicMasking, seed: tuple[int, ...], first_batch: int
) -> tf.data.Dataset:
    """Masks every batch by the numbers of its own place in the run, so that a resumed run masks alike."""
    most = dynamic.rule.max_predictions_per_seq

    def mask(index, input_ids, input_mask):
        rng = np.random.default_rng((*seed, int(index)))
        maskable = (input_mask > 0) & ~np.isin(input_ids, dynamic.special_ids)
        masked = masking.mask(input_ids, input_mask.sum(axis=1), maskable, dynamic.rule, rng)
        return masked.input_ids, masked.positions, masked.labels, masked.weights

    def add_masks(index, batch):
        types = (tf.int32, tf.int32, tf.int32, tf.float32)
        outputs = tf.numpy_function(mask, (index, batch["input_ids"], batch["input_mask"]), types, stateful=False)
        names = ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
        masked = dict(zip(names, outputs, strict=True))
        rows, length = batch["input_ids"].shape
        for name, tensor in masked.items():
            tensor.set_shape([rows, length if name == "input_ids" else most])
        return {**batch, **masked}

    dataset = dataset.enumerate(start=first_batch)
    return dataset.map(add_masks, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def every_piece_predicted(batch: Mapping[str, tf.Tensor], directionality: str) -> dict[str, tf.Tensor]:
    """What a model that looks one way predicts: at every position the piece that it sees next.

    [CLS] and [SEP] are not predicted, so that perplexities are of the text.

    Paper: section 5.1, "LTR".

    Args:
      batch: unmasked rows; `input_ids` and `input_mask`, int32 [B, S].
      directionality: "ltr" or "rtl".

    Returns:
      `masked_lm_positions` and `masked_lm_ids`, int32, and `masked_lm_weights`, float32, [B, S - 1].
    """
    ids, mask = batch["input_ids"], batch["input_mask"]
    rows, length = tf.shape(ids)[0], ids.shape[1]
    # every row begins with [CLS] and ends with [SEP], whatever their ids are
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


def batch_share(
    dataset: tf.data.Dataset,
    batch_size: int,
    start_step: int,
    *,
    drop_remainder: bool,
    input_context: tf.distribute.InputContext | None,
) -> tf.data.Dataset:
    """Batches this worker's share of a dataset.

    Args:
      dataset: single elements in an order that all workers agree on.
      batch_size: elements a step over all replicas; each batch holds one replica's share.
      start_step: steps to pass over.
      drop_remainder: whether to leave out a last batch that is not full.
      input_context: which worker this is, where there are several.
    """
    if input_context is None:
        return dataset.skip(start_step * batch_size).batch(batch_size, drop_remainder=drop_remainder)
    workers = input_context.num_input_pipelines
    dataset = dataset.shard(workers, input_context.input_pipeline_id).skip(start_step * (batch_size // workers))
    return dataset.batch(input_context.get_per_replica_batch_size(batch_size), drop_remainder=drop_remainder)


def _parse_batch(records: tf.Tensor, features: Sequence[schema.Feature], vocab_size: int):
    dtypes = {"int64": tf.int64, "float": tf.float32}
    spec = {f.name: tf.io.FixedLenFeature([f.length], dtypes[f.kind]) for f in features}
    batch = tf.io.parse_example(records, spec)
    # on an accelerator a gather beyond the table gives zeros, not an error; so it is caught here
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
    """Turns what tf.data reports of bad records into a line that names the file and the mend.

    Raises:
      InputError: a record is damaged, or holds ids that the model has no embedding for.
    """
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
            f"{files[0]}: holds ids at or beyond vocab_size={vocab_size} of the configuration; "
            "give the bert_config.json that belongs to the vocabulary of the data"
        ) from error
