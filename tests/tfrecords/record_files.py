"""Record files for tests."""

import gzip
from collections.abc import Iterable

from tfrecords import writer


def write_file(path: str, records: Iterable[bytes], packed: bool = False) -> None:
    """Writes records in order; packed as one gzip member, like shards."""
    writer.write_records(path, records)
    if packed:
        with open(path, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(gzip.compress(content, mtime=0))
