"""Makes files on any file system available to libraries that read and write only local files."""

import contextlib
import os
import tempfile
from collections.abc import Iterator

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
