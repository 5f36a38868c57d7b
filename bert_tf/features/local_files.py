"""Files on any file system for libraries that read and write only local ones."""

import contextlib
import os
import tempfile
from collections.abc import Iterator

import tensorflow as tf

from tfrecords import writer


@contextlib.contextmanager
def written(path: str) -> Iterator[str]:
    """Yields a local path whose file becomes `path` if the block succeeds; atomic, and creates the folder."""
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    with writer.atomic_path(path) as temporary:
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
