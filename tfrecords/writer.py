"""Atomic writing: a file appears under its name only when it is whole and on the disk."""

import contextlib
import gzip
import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from tfrecords.errors import InputError
from tfrecords.reader import FRAME_BYTES

# Stands in the names of files that are being written; what a killed process leaves behind has it.
TEMPORARY = ".tmp-"
_BLOCK_BYTES = 1 << 20
# Files of so many bytes together are held in memory to be shuffled.
MERGED_AT_ONCE = 64 << 20
_FRAMES_AT_ONCE = 1024


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


@contextlib.contextmanager
def atomic_folder(path: str) -> Iterator[str]:
    """Gives a temporary folder beside `path`, renamed to `path` when the block ends without an error.

    `path` must not exist, or be an empty folder. Local files are flushed to the disk before the rename. On an
    error the temporary folder is removed.
    """
    path = path.rstrip("/")
    temporary = f"{path}{TEMPORARY}{uuid.uuid4().hex[:12]}"
    try:
        tf.io.gfile.makedirs(temporary)
        yield temporary
        if "://" not in path:
            for folder, _, names in os.walk(temporary):
                for name in names:
                    with open(os.path.join(folder, name), "rb") as written:
                        os.fsync(written.fileno())
        if tf.io.gfile.exists(path):  # an empty folder, which a rename would not replace
            tf.io.gfile.rmtree(path)
        tf.io.gfile.rename(temporary, path)
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.rmtree(temporary)


def check_new_folder(path: str, flag: str) -> None:
    """Refuses an output folder that holds something.

    Raises:
      InputError: names the flag and the path.
    """
    if tf.io.gfile.exists(path) and (not tf.io.gfile.isdir(path) or tf.io.gfile.listdir(path)):
        raise InputError(f"--{flag}={path}: holds something already; give a new folder")


def check_outputs(outputs: Sequence[str], read: Sequence[str], flag: str = "output_file") -> None:
    """Refuses outputs that would overwrite what is read or each other, or that are folders.

    Raises:
      InputError: names the path.
    """
    taken = {_real_path(path): "is read too" for path in read}
    for path in outputs:
        reason = "is a folder" if path.endswith("/") or tf.io.gfile.isdir(path) else taken.get(_real_path(path))
        if reason:
            raise InputError(f"--{flag}: {path} {reason}; give another name")
        taken[_real_path(path)] = "is given twice"


def _real_path(path: str) -> str:
    return path if "://" in path else os.path.realpath(path)


def write_records(path: str, records: Iterable[bytes]) -> None:
    """Writes serialized records as one TFRecord file, atomically."""
    with atomic_path(path) as temporary, tf.io.TFRecordWriter(temporary) as file:
        for record in records:
            file.write(record)


def merge_shuffled(
    path: str, parts: Sequence[str], seed: Sequence[int], gzip_compress: bool = False
) -> tuple[int, str]:
    """Writes the records of several uncompressed TFRecord files into one, shuffled, atomically.

    As many files as fit in MERGED_AT_ONCE bytes are shuffled together, at least one; then the next ones.

    Args:
      path: the file to write.
      parts: the files to read.
      seed: integers that decide the order.
      gzip_compress: whether to compress what is written.

    Returns:
      The number of bytes written and their SHA-256 in hexadecimal.
    """
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    rng = np.random.default_rng(seed)
    with atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
        counted = _CountingFile(file)
        with contextlib.ExitStack() as stack:
            target = counted
            if gzip_compress:
                target = stack.enter_context(gzip.GzipFile("", "wb", fileobj=counted, mtime=0))
            for frames in _frames_in_groups(parts):
                order = rng.permutation(len(frames)).tolist()
                for start in range(0, len(order), _FRAMES_AT_ONCE):
                    target.write(b"".join([frames[index] for index in order[start : start + _FRAMES_AT_ONCE]]))
    return counted.size, counted.digest.hexdigest()


def _frames_in_groups(parts: Sequence[str]) -> Iterator[list[bytes]]:
    """Records with their lengths and checksums around them, those of several files together."""
    frames: list[bytes] = []
    size = 0
    for part in parts:
        with tf.io.gfile.GFile(part, "rb") as file:
            data = file.read()
        if frames and size + len(data) > MERGED_AT_ONCE:
            yield frames
            frames, size = [], 0
        size += len(data)
        start = 0
        while start < len(data):
            end = start + int.from_bytes(data[start : start + 8], "little") + FRAME_BYTES
            frames.append(data[start:end])
            start = end
    if frames:
        yield frames


class _CountingFile:
    """Takes the size and SHA-256 of what is written to a file on its way."""

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


def sha256(path: str) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def write_text(path: str, text: str) -> None:
    """Writes a small text file atomically, making its folder where needed."""
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    with atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "w") as file:
        file.write(text)
