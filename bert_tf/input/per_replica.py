"""Splits global batches into per-replica batches.

Letters: B rows in a global batch.
"""

import tensorflow as tf


def per_replica_batches(
    batches: tf.data.Dataset, batch_size: int | None, input_context: tf.distribute.InputContext | None
) -> tf.data.Dataset:
    """Splits each global batch into batches for the replicas of this worker; all replicas get the same `data_position`.
    `batches`: the global batches, dicts of columns [B, ...] with `data_position` [B, 3].
    `batch_size`: the global batch size; None if the last batch may be smaller.
    `input_context`: the context that identifies this worker; None for a single replica.
    Returns dataset of the same columns. Shapes are static if `batch_size` is given."""
    replicas, workers, worker = 1, 1, 0
    if input_context:
        replicas, workers = input_context.num_replicas_in_sync, input_context.num_input_pipelines
        worker = input_context.input_pipeline_id
    local = replicas // workers

    # AutoGraph has nothing to rewrite in the three functions, and would search them for a quarter of a second.
    @tf.autograph.experimental.do_not_convert
    def of_replica(batch, replica):
        total = tf.shape(batch["data_position"])[0]
        begin, end = total * replica // replicas, total * (replica + 1) // replicas
        columns = {name: column[begin:end] for name, column in batch.items()}
        columns["data_position"] = tf.repeat(batch["data_position"][-1:], end - begin, axis=0)
        size = batch_size // replicas if batch_size else None
        return {name: tf.ensure_shape(column, [size, *column.shape[1:]]) for name, column in columns.items()}

    @tf.autograph.experimental.do_not_convert
    def first(batch):
        return of_replica(batch, 0)

    @tf.autograph.experimental.do_not_convert
    def split(batch):
        numbers = tf.data.Dataset.range(worker * local, (worker + 1) * local, output_type=tf.int32)
        return numbers.map(tf.autograph.experimental.do_not_convert(lambda replica: of_replica(batch, replica)))

    return batches.map(first) if replicas == 1 else batches.flat_map(split)
