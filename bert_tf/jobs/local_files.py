"""Makes files on any file system available to libraries that read and write only local files."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence

import tensorflow as tf

from bert_tf.core import storage


@contextlib.contextmanager
def written(path: str) -> Iterator[str]:
    """Yields a local path whose file atomically becomes `path` if the block succeeds; creates the folder of `path`."""
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    with storage.atomic_path(path) as temporary:
        if "://" not in path:
            yield temporary
            return
        with tempfile.TemporaryDirectory() as folder:
            yield f"{folder}/file"
            tf.io.gfile.copy(f"{folder}/file", temporary)


@contextlib.contextmanager
def read(path: str) -> Iterator[str]:
    """Yields a local path with the contents of `path`."""
    if "://" not in path:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        tf.io.gfile.copy(path, f"{folder}/file")
        yield f"{folder}/file"


def concatenate(path: str, parts: Sequence[str]) -> None:
    """Writes the contents of `parts` one after another to `path`, atomically and in bounded memory."""
    with written(path) as temporary, open(temporary, "wb") as whole:
        for part in parts:
            with tf.io.gfile.GFile(part, "rb") as file:
                shutil.copyfileobj(file, whole, 1 << 20)
