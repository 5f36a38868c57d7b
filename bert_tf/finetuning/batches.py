"""Encoded rows to batches, in an order that can start at any position.

Letters: B batch, N rows.
"""

import tensorflow as tf

from bert_tf.finetuning.task import Split, Task
from bert_tf.input.per_replica import per_replica_batches
from bert_tf.input.record_order import BEGINNING, Position
from bert_tf.tokenization import BertTokenizer


def row_batches(
    split: Split,
    task: Task,
    tokenizer: BertTokenizer,
    *,
    max_seq_length: int,
    batch_size: int,
    training: bool,
    seed: int = 0,
    start: Position = BEGINNING,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Returns a dataset of batches of a split's rows.

    Training shuffles all rows in each epoch, in an order that depends only on the seed, and repeats endlessly.
    Otherwise the rows come once, in their order. Rows of weight 0 fill the last batch.

    Args:
      split: the rows.
      task: makes the model's inputs.
      tokenizer: gives the ids of special tokens.
      max_seq_length: S.
      batch_size: global batch size in rows; each element of the dataset is one replica's share.
      training: whether to shuffle and repeat.
      seed: seed of the order.
      start: the position to start from: the `data_position` of the previous batch.
      input_context: identifies this worker's share if there are several workers.

    Returns:
      Dataset of dicts: the task's `model_inputs` and the columns of its rows; `row_weights` float32 [B], 0 on rows
      that only fill the batch; `row_ids` int64 [B]; `data_position` int32 [B, 3], the `Position` after this batch.
    """
    count = len(split)
    if training:
        # One shuffled pass after the other: skipping rows of ids costs next to nothing, even for millions.
        order = tf.data.Dataset.range(count).shuffle(count, seed=seed).repeat()
        first = start.epoch * count + start.examples
        order = order.skip(first)
    else:
        first, order = 0, tf.data.Dataset.range(count + -count % batch_size)

    def with_position(number, row_ids):
        used = first + (number + 1) * batch_size
        position = tf.cast(tf.stack([used // count, used % count, 0]), tf.int32)
        return {"row_ids": row_ids, "data_position": tf.repeat(position[tf.newaxis], batch_size, axis=0)}

    def gather(batch):
        row_ids = batch["row_ids"]
        real = row_ids < count
        rows = tf.where(real, row_ids, 0)
        columns = {name: tf.gather(column, rows) for name, column in split.columns.items()}
        inputs = task.model_inputs(columns, tokenizer, max_seq_length)
        dense = {name: column for name, column in columns.items() if not isinstance(column, tf.RaggedTensor)}
        return dense | inputs | batch | {"row_weights": tf.cast(real, tf.float32)}

    batches = order.batch(batch_size, drop_remainder=True).enumerate().map(with_position)
    shares = per_replica_batches(batches, batch_size, input_context)
    return shares.map(gather, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)
