"""Writes a work unit's records in random order, so that each range is a random sample; reads ranges of records."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.core import storage
from tfrecords import writer
from tfrecords.reader import FRAME_BYTES

_INDEX = ".index"
_OFFSET = np.dtype("<i8")


def write(path: str, records: Sequence[bytes], rng: np.random.Generator) -> int:
    """Writes serialized records in random order, and an index of their byte offsets.
    `path`: TFRecord file to write. The name of the index is `path` with a suffix. Both files are written atomically.
    `records`: N serialized records.
    Returns size of the TFRecord file in bytes."""
    order = rng.permutation(len(records)).tolist()
    writer.write_records(path, (records[index] for index in order))
    offsets = np.zeros(len(records) + 1, _OFFSET)
    np.cumsum([len(records[index]) + FRAME_BYTES for index in order], out=offsets[1:])
    with storage.atomic_path(path + _INDEX) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
        file.write(offsets.tobytes())
    return int(offsets[-1])


def exist(path: str) -> bool:
    return tf.io.gfile.exists(path) and tf.io.gfile.exists(path + _INDEX)


def read(path: str, start: int, count: int) -> tuple[bytes, np.ndarray]:
    """Reads a range of records with their TFRecord framing (length and checksums).
    `path`: the path given to `write`.
    `start`: index of the first record.
    `count`: number of records, at least 1.
    Returns:
    `data`: the bytes of the range.
    `offsets`: int64 [count + 1], the start of each record in `data`, then the end of the last record.
    Raises OSError: the file or its index is shorter than when it was written."""
    with _open(path + _INDEX) as index:
        index.seek(start * _OFFSET.itemsize)
        offsets = np.frombuffer(index.read((count + 1) * _OFFSET.itemsize), _OFFSET)
    with _open(path) as file:
        file.seek(int(offsets[0]))
        data = file.read(int(offsets[-1] - offsets[0]))
    if len(offsets) != count + 1 or len(data) != offsets[-1] - offsets[0]:
        raise OSError(f"{path}: shorter than when it was written; delete it and run the same command again")
    return data, offsets - offsets[0]


def _open(path: str):
    # TensorFlow reads half a megabyte at a time, which is much more than a range needs.
    return tf.io.gfile.GFile(path, "rb") if "://" in path else open(path, "rb")
