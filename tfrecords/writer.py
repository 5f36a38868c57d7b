"""Atomic writing: a file appears under its name only when it is whole and on the disk."""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfrecords.errors import InputError
from tfrecords.manifest import Shard
from tfrecords.schema import Feature


@contextlib.contextmanager
def atomic_path(path: str) -> Iterator[str]:
    """Gives a temporary name beside `path`, renamed to `path` when the block ends without an error.

    Local files are flushed to the disk before the rename, so that a power cut cannot leave a
    whole name on half a file. On an error the temporary file is removed and `path` is as before.
    """
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        yield temporary
        if "://" not in path:
            with open(temporary, "rb") as written:
                os.fsync(written.fileno())
        tf.io.gfile.rename(temporary, path, overwrite=True)
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)


def check_outputs(outputs: Sequence[str], read: Sequence[str], flag: str = "output_file") -> None:
    """Refuses outputs that would overwrite what is read or each other, or that are folders.

    Raises:
      InputError: names the path.
    """
    taken = {_real_path(path): "is read too" for path in read}
    for path in outputs:
        reason = "is a folder" if tf.io.gfile.isdir(path) else taken.get(_real_path(path))
        if reason:
            raise InputError(f"--{flag}: {path} {reason}; give another name")
        taken[_real_path(path)] = "is given twice"


def _real_path(path: str) -> str:
    return path if "://" in path else os.path.realpath(path)


def serialize(example: Mapping[str, np.ndarray], features: Sequence[Feature]) -> bytes:
    """Serializes one record.

    Args:
      example: feature name to values, each of the length that `features` states.
      features: what the record must hold.

    Returns:
      The bytes of a `tf.train.Example`.

    Raises:
      ValueError: a feature has another length than stated.
    """
    lists = {}
    for feature in features:
        values = np.asarray(example[feature.name]).reshape(-1)
        if len(values) != feature.length:
            raise ValueError(f"{feature.name} has {len(values)} values, the schema says {feature.length}")
        if feature.kind == "float":
            lists[feature.name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            lists[feature.name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=lists)).SerializeToString(deterministic=True)


def write_shards(
    paths: Sequence[str], examples: Iterable[Mapping[str, np.ndarray]], features: Sequence[Feature]
) -> list[Shard]:
    """Writes examples to the shards in turn, all shards appearing together at the end.

    Args:
      paths: the shards; example i goes to `paths[i % len(paths)]`, as in the original.
      examples: records, see `serialize`.
      features: what each record must hold.

    Returns:
      One `Shard` a path: its name, number of examples and SHA-256.
    """
    for path in paths:
        tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    counts = [0] * len(paths)
    with contextlib.ExitStack() as stack:
        temporaries = [stack.enter_context(atomic_path(path)) for path in paths]
        with contextlib.ExitStack() as writing:
            writers = [writing.enter_context(tf.io.TFRecordWriter(name)) for name in temporaries]
            for index, example in enumerate(examples):
                writers[index % len(paths)].write(serialize(example, features))
                counts[index % len(paths)] += 1
        checksums = [sha256(name) for name in temporaries]
    return [Shard(os.path.basename(p), n, c) for p, n, c in zip(paths, counts, checksums, strict=True)]


def sha256(path: str) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_text(path: str, text: str) -> None:
    """Writes a small text file atomically, making its folder where needed."""
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    with atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "w") as file:
        file.write(text)
