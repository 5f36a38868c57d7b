"""Computes the hashes of files in parallel."""

import os
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.core import storage
from bert_tf.jobs.runner import Runner


def _hashed(path: str) -> tuple[str, str]:
    return path, storage.sha256(path)


def corpus_entries(files: Sequence[str], runner: Runner) -> list[dict]:
    """Returns name, size in bytes and fingerprint (SHA-256) of each file."""
    hashes = dict(runner.map(_hashed, dict.fromkeys(files)))
    return [
        {"name": os.path.basename(path), "bytes": tf.io.gfile.stat(path).length, "fingerprint": hashes[path]}
        for path in files
    ]
