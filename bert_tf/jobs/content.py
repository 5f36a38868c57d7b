"""Hashes of the contents of files, computed in parallel."""

import dataclasses
import hashlib
import os
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.jobs.runner import Runner

_HASHED_AT_ONCE = 64 << 20


@dataclasses.dataclass(frozen=True)
class HashTask:
    """A range of a file whose SHA-256 is to be computed."""

    path: str
    start: int


def _plan(files: Sequence[str]) -> list[HashTask]:
    """Splits all files into ranges."""
    return [
        HashTask(path, start)
        for path in files
        for start in range(0, max(1, tf.io.gfile.stat(path).length), _HASHED_AT_ONCE)
    ]


def _hash(task: HashTask) -> tuple[HashTask, str]:
    """Computes the SHA-256 of a range, in hexadecimal."""
    digest, left = hashlib.sha256(), _HASHED_AT_ONCE
    with tf.io.gfile.GFile(task.path, "rb") as file:
        file.seek(task.start)
        while left and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
    return task, digest.hexdigest()


def corpus_entries(files: Sequence[str], runner: Runner) -> list[dict]:
    """Returns name, size in bytes and fingerprint (SHA-256 over the SHA-256 of its ranges) of each file."""
    parts, hashes = dict.fromkeys(files, ""), dict(runner.map(_hash, _plan(files)))
    for task in sorted(hashes, key=lambda task: task.start):
        parts[task.path] += hashes[task]
    entries = []
    for path in files:
        digest = hashlib.sha256(parts[path].encode()).hexdigest()
        entries.append({"name": os.path.basename(path), "bytes": tf.io.gfile.stat(path).length, "fingerprint": digest})
    return entries
