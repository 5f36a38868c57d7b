"""Record files for tests."""

import gzip
import hashlib
import json
import pathlib
from collections.abc import Iterable

from tfrecords import writer


def write_file(path: str, records: Iterable[bytes], packed: bool = False) -> None:
    """Writes records in their order; packed as one gzip member, as shards are."""
    writer.write_records(path, records)
    if packed:
        with open(path, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(gzip.compress(content, mtime=0))


def differing(path: str) -> list[str]:
    """Returns the names of the shards that are not as the manifest of a set says."""
    folder = pathlib.Path(path).parent
    shards = json.loads(pathlib.Path(path).read_text())["shards"]
    return [one["name"] for one in shards
            if hashlib.sha256((folder / one["name"]).read_bytes()).hexdigest() != one["sha256"]]  # fmt: skip
