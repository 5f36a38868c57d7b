"""Describes files, settings and models by values that JSON can represent, and tells how two descriptions differ."""

import hashlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.core.errors import InputError

# Number of bytes at each end of a file that `fingerprint` reads.
_BLOCK = 1 << 20


def fingerprint(paths: Sequence[str]) -> list[str]:
    """Describes each file by its name, its size and a hash of its first and last MiB, because pre-training data may be
    terabytes large. The result does not depend on the folder."""
    import tensorflow as tf

    entries = []
    for path in paths:
        size = tf.io.gfile.stat(path).length
        with tf.io.gfile.GFile(path, "rb") as file:
            content = hashlib.sha256(file.read(_BLOCK))
            file.seek(max(0, size - _BLOCK))
            content.update(file.read())
        entries.append(f"{os.path.basename(path)}, {size:,} bytes, {content.hexdigest()[:16]}")
    return entries


def text_of(fingerprint: Sequence[str]) -> str:
    """Returns the fingerprint of several files as one text: the name of the first file, the numbers, and the id."""
    if len(fingerprint) < 2:
        return "".join(fingerprint)
    name, count = fingerprint[0].rsplit(", ", 2)[0], len(fingerprint)
    return f"{name} and {count - 1:,} more, {count:,} files, {id_of(without_names(fingerprint))}"


def without_names(fingerprint: Sequence[str]) -> list[str]:
    """Returns the entries of a fingerprint without the names, which may differ in copies."""
    return [", ".join(entry.rsplit(", ", 2)[1:]) for entry in fingerprint]


def id_of(value: Any) -> str:
    """Returns a hash of a value, 16 hexadecimal digits. Values that JSON cannot represent count by their `repr`."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=repr).encode()).hexdigest()[:16]


def differences(old: Mapping, new: Mapping) -> list[str]:
    """Describes the entries that differ, for messages. Only the first difference in a list is described."""
    lines = []
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += differences(before, after)
        elif before != after:
            lines.append(_difference(key, before, after))
    return lines


def require_same(what: str, old: Mapping, new: Mapping, remedy: str) -> None:
    """Raises InputError with all entries that differ."""
    if different := differences(old, new):
        raise InputError(f"{what} ({'; '.join(different)}); {remedy}")


def _difference(key: str, old: Any, new: Any) -> str:
    if isinstance(old, list) and isinstance(new, list):  # a list of files may be long
        lengths = f" ({len(old)} before, {len(new)} now)" if len(old) != len(new) else ""
        pairs = itertools.zip_longest(old, new)
        at, (old, new) = next((at, pair) for at, pair in enumerate(pairs, 1) if pair[0] != pair[1])
        key = f"{key} number {at}{lengths}"
    return f"{key} was {old!r}, is {new!r}"
