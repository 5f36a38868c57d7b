"""Writes TFRecord files atomically: a file appears under its name only when it is complete and on disk."""

import contextlib
import gzip
import hashlib
import os
from collections.abc import Iterable

import tensorflow as tf

from bert_tf.core.storage import atomic_path


def write_records(path: str, records: Iterable[bytes]) -> None:
    """Writes serialized records as one TFRecord file, atomically."""
    with atomic_path(path) as temporary, tf.io.TFRecordWriter(temporary) as file:
        for record in records:
            file.write(record)


def write_framed(path: str, parts: Iterable[bytes], gzip_compress: bool = False) -> tuple[int, str]:
    """Atomically writes records that already have their TFRecord framing; creates the folder if necessary.
    `parts`: byte strings, each with one or several framed records.
    Returns the number of bytes written and their SHA-256 in hexadecimal."""
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    with atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
        counted = _CountingFile(file)
        out = gzip.GzipFile("", "wb", fileobj=counted, mtime=0) if gzip_compress else contextlib.nullcontext(counted)
        with out as target:
            for part in parts:
                target.write(part)
    return counted.size, counted.digest.hexdigest()


class _CountingFile:
    """Wraps a file, and computes the size and SHA-256 of the bytes that are written."""

    def __init__(self, file):
        self._file = file
        self.size, self.digest = 0, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._file.write(data)
        self.size += len(data)
        self.digest.update(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()
