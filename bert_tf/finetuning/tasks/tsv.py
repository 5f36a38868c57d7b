"""Tab-separated files to examples of one or two texts."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.finetuning.tasks.classification import Example
from tfrecords.errors import InputError


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a file, by their name in the header or by their number from 0."""

    text_a: str
    text_b: str | None = None
    label: str | None = None
    has_header: bool = True


def read_examples(path: str, columns: Columns) -> list[Example]:
    """Reads a tab-separated file; quotes mean nothing, as in GLUE.

    Raises:
      InputError: the file is missing, empty, not UTF-8, lacks a column, or a line has another number
        of columns than the first.
    """
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path}: no such file; check --data_dir")
    with tf.io.gfile.GFile(path, "rb") as file:
        lines = file.read().split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    rows = [_cells(path, number, line) for number, line in enumerate(lines, 1)]
    if len(rows) <= columns.has_header:
        raise InputError(f"{path}: holds no example")
    width = len(rows[0])
    wanted = {c: _index(path, c, rows[0], columns.has_header) for c in _named(columns)}
    examples = []
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise InputError(
                f"{path}, line {number}: has {len(row)} columns, the first line has {width}; "
                "columns are set apart by single tabs"
            )
        if number == 1 and columns.has_header:
            continue
        text_b = row[wanted[columns.text_b]] if columns.text_b is not None else None
        label = row[wanted[columns.label]].strip() if columns.label is not None else None
        examples.append(Example(row[wanted[columns.text_a]], text_b, label))
    return examples


def _named(columns: Columns) -> list[str]:
    return [c for c in (columns.text_a, columns.text_b, columns.label) if c is not None]


def _cells(path: str, number: int, line: bytes) -> list[str]:
    encoding = "utf-8-sig" if number == 1 else "utf-8"
    try:
        return line.rstrip(b"\r").decode(encoding).split("\t")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}, line {number}: not UTF-8 ({error.reason}); save the file as UTF-8") from error


def _index(path: str, column: str, first_row: Sequence[str], has_header: bool) -> int:
    if has_header and column in first_row:
        return first_row.index(column)
    if column.isdigit() and int(column) < len(first_row):
        return int(column)
    have = ", ".join(first_row) if has_header else f"{len(first_row)} columns, counted from 0"
    raise InputError(f"{path}, line 1: there is no column {column!r}; the file has {have}")
