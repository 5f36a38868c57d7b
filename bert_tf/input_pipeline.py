"""From TFRecords to batches: deterministic, and able to start at any step.

Letters: B batch, S sequence length, P predictions.
"""

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from tfrecords import reader, schema
from tfrecords.errors import InputError

_SHUFFLE_BUFFER = 10_000
_BEYOND_VOCABULARY = "ids beyond vocab_size"


def pretraining_batches(
    files: Sequence[str],
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    vocab_size: int,
    batch_size: int,
    training: bool,
    seed: int = 0,
    start_step: int = 0,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Batches of masked-LM / next-sentence examples.

    Training shuffles and repeats for ever, in an order that seed alone decides; evaluation reads the
    files once, in their order, and drops nothing.

    Args:
      files: TFRecords.
      max_seq_length: S.
      max_predictions_per_seq: P.
      vocab_size: ids must be below it.
      batch_size: rows over all replicas; each batch holds one replica's share.
      training: shuffle, repeat, and give full batches only.
      seed: seed of the order.
      start_step: batches to pass over, so that a resumed run goes on where it was.
      input_context: this worker's share, where there are several.

    Returns:
      A dataset of dicts: the record's features, int32 and float32, [B, length]; `next_sentence_labels` [B].
    """
    features = schema.pretraining_features(max_seq_length, max_predictions_per_seq)
    dataset = tf.data.Dataset.from_tensor_slices(list(files))
    if training:
        dataset = dataset.shuffle(len(files), seed=seed)
    dataset = dataset.interleave(tf.data.TFRecordDataset, cycle_length=min(8, len(files)) if training else 1)
    if training:
        dataset = dataset.shuffle(_SHUFFLE_BUFFER, seed=seed).repeat()
    dataset = batch_share(
        dataset, batch_size, start_step if training else 0, drop_remainder=training, input_context=input_context
    )

    def parse(records):
        return _parse_batch(records, features, vocab_size)

    return dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)


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
