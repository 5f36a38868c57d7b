"""Reads records from any position on, in an order that depends only on the seed and the epoch.

Letters: F files, M records per window.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfrecords import manifest, reader

# The number of records that are shuffled together, and the number of records that are processed together.
_SHUFFLED = 8192
WINDOW = 1024
_OPEN_FILES = 8
_MOST_BLOCKS = 1 << 32
# Keys that keep the shuffles of files and of records independent under one seed.
_FILES, _RECORDS = 0, 1


class Position(NamedTuple):
    """A position in the data. A checkpoint stores the position, and a resumed run starts there."""

    epoch: int = 0  # number of finished passes over the data
    examples: int = 0  # number of examples in the previous windows of this epoch
    rows: int = 0  # number of used rows of the current window


BEGINNING = Position()


def windows(files: Sequence[str], *, shuffled: bool, seed: int, start: Position) -> tf.data.Dataset:
    """Returns a dataset of serialized records that starts at a position; each element is a window.
    `files`: paths of the F TFRecord files.
    `shuffled`: whether to repeat the files endlessly, in a different order in each epoch; if false, the files are read
      once, in the given order.
    `seed`: seed of the order.
    `start`: position of the first window; its `rows` are ignored.
    Returns dataset of tuples:
    - int64 [], the epoch.
    - int64 [], the number of examples before the window.
    - string [M], the records."""
    compressions = [reader.compression(path) for path in files]
    # The manifest contains the number of records of each file, so files before the start position are not read.
    sizes = manifest.examples_of(files) if start.examples else [None]
    open_files = min(_OPEN_FILES, len(files)) if shuffled else 1

    def of_epoch(epoch):
        order = tf.range(len(files), dtype=tf.int64)
        if shuffled:
            order = _shuffled(order, seed, _FILES, epoch)
        listed = (tf.gather(list(files), order), tf.gather(compressions, order))
        groups = tf.data.Dataset.from_tensor_slices(listed).batch(open_files)
        done = tf.where(epoch == start.epoch, tf.constant(start.examples, tf.int64), 0)
        first_block = done // _SHUFFLED
        unread = first_block * _SHUFFLED
        if None not in sizes:
            ends = tf.cumsum(tf.gather(tf.constant(sizes, tf.int64), order))[open_files - 1 :: open_files]
            passed_over = tf.searchsorted(ends, [unread], side="right", out_type=tf.int64)[0]
            groups = groups.skip(passed_over)
            unread -= tf.concat([[0], ends], axis=0)[passed_over]
        records = groups.flat_map(lambda *group: _side_by_side(group, open_files)).skip(unread)
        blocks = records.batch(_SHUFFLED).enumerate(first_block)

        def windows_of(block, records):
            order = tf.range(tf.size(records))
            if shuffled:
                order = _shuffled(order, seed, _RECORDS, epoch, block)
            before = block * _SHUFFLED
            starts = tf.data.Dataset.range(tf.maximum(done - before, 0), tf.size(order, tf.int64), WINDOW)

            def window(first):
                return epoch, before + first, tf.gather(records, order[first : first + WINDOW])

            return starts.map(window)

        return blocks.flat_map(windows_of)

    return tf.data.Dataset.range(start.epoch, tf.int64.max if shuffled else 1).flat_map(of_epoch)


def _side_by_side(group: Sequence[tf.Tensor], open_files: int) -> tf.data.Dataset:
    """Interleaves the records of `open_files` files; `group` contains the files' paths and compressions."""

    def of_file(path, compression):
        return tf.data.TFRecordDataset(path, compression_type=compression)

    return tf.data.Dataset.from_tensor_slices(group).interleave(
        of_file, cycle_length=open_files, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def _shuffled(values: tf.Tensor, seed: int, what: int, epoch: tf.Tensor, block: tf.Tensor | int = 0) -> tf.Tensor:
    """Shuffles values [n] in an order that depends only on the other arguments."""
    key = tf.stack([tf.constant(2 * seed + what, tf.int64), epoch * _MOST_BLOCKS + block])
    return tf.random.experimental.stateless_shuffle(values, key, alg="philox")
