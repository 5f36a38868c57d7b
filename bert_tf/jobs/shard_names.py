"""The names of the shards of a set: `--output_file=PATH@N`."""

import os
import re
from collections.abc import Sequence

from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import items


def output_paths(output_file: str) -> list[str]:
    """Expands `--output_file`, a comma-separated list in which an entry is a path, or PATH@N for N shards."""
    paths = []
    for part in items(output_file):
        name, at, number = os.path.basename(part).rpartition("@")
        if not at:
            paths.append(part)
            continue
        if not name or not re.fullmatch(r"[0-9]{1,5}", number) or not int(number):
            raise InputError(
                f"--output_file={part}: give NAME@N, with a number of shards N between 1 and 99999, or a name without @"
            )
        path, count = part.removesuffix(f"@{number}"), int(number)
        paths += [f"{path}-{shard:05d}-of-{count:05d}" for shard in range(count)]
    if not paths:
        raise InputError("--output_file is empty; give the file to write")
    return paths


def relative_names(outputs: Sequence[str]) -> list[str]:
    """Returns the shards' paths relative to the manifest, which is in the folder of the first shard."""
    folder = os.path.dirname(outputs[0])
    names = [os.path.relpath(path, folder or ".") for path in outputs]
    for path, name in zip(outputs, names, strict=True):
        if name.startswith(os.pardir) or ("://" in path and os.path.dirname(path) != folder):
            raise InputError(f"--output_file: {path} is not in {folder or os.curdir}; give shards in one folder")
    return names
