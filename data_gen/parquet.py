"""Reads documents from Parquet files, such as the cleaned Wikipedia dumps on the Hugging Face hub; needs PyArrow."""

import itertools
from collections.abc import Iterator

from bert_tf.core import parquet_files
from bert_tf.core.errors import InputError
from data_gen.jsonl import LineError, sentences_of

_ROWS_AT_ONCE = 256


def row_groups(path: str, size: int) -> list[tuple[int, int]]:
    """Divides `size` bytes into a range for each row group. A range only names its row group."""
    with parquet_files.opened(path) as file:
        return _ranges(file.num_row_groups, size)


def _ranges(count: int, size: int) -> list[tuple[int, int]]:
    # Equal ranges are never empty, even for row groups without rows, so each start belongs to one row group.
    return list(itertools.pairwise(size * end // count for end in range(count + 1))) if count else []


def read(
    path: str, size: int, start: int, text_field: str, chunk_bytes: int, language: str
) -> Iterator[list[list[str]]]:
    """Yields the documents of a row group in lists of about `chunk_bytes` of text; a row without text is empty.
    `start`: start of the row group's range; see `row_groups`."""
    documents, length = [], 0
    with parquet_files.opened(path) as file:
        if text_field not in file.schema_arrow.names:
            have = ", ".join(file.schema_arrow.names)
            raise InputError(f"{path}: has no column {text_field!r}; give one of its columns as --text_field: {have}")
        group = [first for first, _ in _ranges(file.num_row_groups, size)].index(start)
        for batch in file.iter_batches(_ROWS_AT_ONCE, [group], [text_field]):
            for text in batch.column(0).to_pylist():
                try:
                    documents.append(sentences_of(text, text_field, language))
                except LineError as error:
                    raise InputError(f"{path}: {error}") from error
                length += sum(map(len, documents[-1]))
                if length >= chunk_bytes:
                    yield documents
                    documents, length = [], 0
    if documents:
        yield documents
