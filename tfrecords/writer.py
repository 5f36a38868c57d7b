"""Atomic writing: a file appears under its name only when it is whole and on the disk."""

import contextlib
import hashlib
import itertools
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf

from tfrecords import gzip_join, reader
from tfrecords.errors import InputError

# Stands in the names of files that are being written; what a killed process leaves behind has it.
TEMPORARY = ".tmp-"
_BLOCK_BYTES = 1 << 20


@contextlib.contextmanager
def atomic_path(path: str) -> Iterator[str]:
    """Gives a temporary name beside `path`, renamed to `path` when the block ends without an error.

    Local files are flushed to the disk before the rename, so that a power cut cannot leave a
    whole name on half a file. On an error the temporary file is removed and `path` is as before.
    """
    # no two processes have the same name, even on different machines
    temporary = f"{path}{TEMPORARY}{uuid.uuid4().hex[:12]}"
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


def write_records(path: str, records: Iterable[bytes], gzip_compress: bool = False) -> None:
    """Writes serialized records as one TFRecord file, atomically."""
    with atomic_path(path) as temporary:
        # TensorFlow compresses in a way that cannot be joined, and it alone knows the records' checksums
        plain = f"{temporary}-plain" if gzip_compress else temporary
        try:
            with tf.io.TFRecordWriter(plain) as file:
                for record in records:
                    file.write(record)
            if gzip_compress:
                with tf.io.gfile.GFile(temporary, "wb") as file:
                    for block in gzip_join.packed(_blocks(plain)):
                        file.write(block)
        finally:
            if gzip_compress and tf.io.gfile.exists(plain):
                tf.io.gfile.remove(plain)


def join_files(path: str, parts: Sequence[str]) -> tuple[int, str]:
    """Writes files of `write_records`, all compressed or none, one after the other into one, atomically.

    Returns:
      The number of bytes and their SHA-256 in hexadecimal.
    """
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    digest, size = hashlib.sha256(), 0
    is_packed = any(reader.compression(part) for part in parts)
    blocks = gzip_join.joined(parts) if is_packed else itertools.chain.from_iterable(map(_blocks, parts))
    with atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as whole:
        for block in blocks:
            digest.update(block)
            whole.write(block)
            size += len(block)
    return size, digest.hexdigest()


def _blocks(path: str) -> Iterator[bytes]:
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def sha256(path: str) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    for block in _blocks(path):
        digest.update(block)
    return digest.hexdigest()


def write_text(path: str, text: str) -> None:
    """Writes a small text file atomically, making its folder where needed."""
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    with atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "w") as file:
        file.write(text)
