"""Tab-separated files to examples of one or two texts."""

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence

import tensorflow as tf

from bert_tf.finetuning.tasks.classification import Example
from tfrecords.errors import InputError


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a file, by their name in the header or by their number from 0.

    Attributes:
      text_a: column of the first or only text.
      text_b: column of the second text; None for none.
      label: column of the label; None in test files.
      has_header: whether the first line names the columns.
      quoted: whether cells may stand in double quotes, as spreadsheets write them. False keeps quotes as text, as GLUE
        does. None also does, but refuses a file whose texts all stand in quotes.
    """

    text_a: str
    text_b: str | None = None
    label: str | None = None
    has_header: bool = True
    quoted: bool | None = False


def read_examples(path: str, columns: Columns) -> list[tuple[int, Example]]:
    """Reads a tab-separated file.

    Returns:
      The number of the line on which each example starts, from 1, and the example.

    Raises:
      InputError: the file is missing, empty, not UTF-8 or lacks a column; or a line has another number of columns than
        the first, or an empty label; or the quotes do not fit `columns.quoted`.
    """
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path}: no such file; check --data_dir")
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    rows = list(_quoted_rows(path, content) if columns.quoted else _plain_rows(path, content))
    if len(rows) <= columns.has_header:
        raise InputError(f"{path}: holds no example; add a line for each text")
    header = rows[0][1]
    wanted = {c: _index(path, c, header, columns) for c in _named(columns)}
    examples = []
    for line, row in rows[columns.has_header :]:
        if len(row) != len(header):
            raise InputError(
                f"{path}, line {line}: has {len(row)} columns, the first line has {len(header)}; single tabs separate "
                f"columns{_QUOTE_HINT if any(cell.startswith(_QUOTE) for cell in row) and not columns.quoted else ''}"
            )
        text_b = row[wanted[columns.text_b]] if columns.text_b is not None else None
        label = row[wanted[columns.label]].strip() if columns.label is not None else None
        if label == "":
            raise InputError(f"{path}, line {line}: the label is empty; remove the line, or give it a label")
        examples.append((line, Example(row[wanted[columns.text_a]], text_b, label)))
    if columns.quoted is None and all(_is_quoted(example.text_a) for _, example in examples):
        raise InputError(
            f"{path}: every text stands in double quotes; give --tsv_quoted to remove them, or --notsv_quoted if they "
            "belong to the texts"
        )
    return examples


_QUOTE = '"'
_QUOTE_HINT = "; if cells stand in double quotes, give --tsv_quoted"


def _is_quoted(cell: str) -> bool:
    return len(cell) > 1 and cell.startswith(_QUOTE) and cell.endswith(_QUOTE)


def _plain_rows(path: str, content: bytes) -> Iterator[tuple[int, list[str]]]:
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        yield number, _decoded(path, number, line.rstrip(b"\r")).split("\t")


def _quoted_rows(path: str, content: bytes) -> Iterator[tuple[int, list[str]]]:
    lines = content.split(b"\n")
    text = "\n".join(_decoded(path, number, line) for number, line in enumerate(lines, 1))
    reader = csv.reader(io.StringIO(text, newline=""), "excel-tab", strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(f"{path}, line {line}: wrong quotes ({error}); double a quote within quotes") from error
        if row is None:
            return
        yield line, row


def _decoded(path: str, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}, line {number}: not UTF-8 ({error.reason}); save the file as UTF-8") from error


def _named(columns: Columns) -> list[str]:
    return [c for c in (columns.text_a, columns.text_b, columns.label) if c is not None]


def _index(path: str, column: str, first_row: Sequence[str], columns: Columns) -> int:
    named = first_row.count(column) if columns.has_header else 0
    if named == 1:
        return first_row.index(column)
    if named:
        raise InputError(f"{path}, line 1: {named} columns are named {column!r}; give the number of one, from 0")
    if column.isascii() and column.isdigit() and int(column) < len(first_row):
        return int(column)
    have = ", ".join(first_row) if columns.has_header else f"{len(first_row)} columns, counted from 0"
    hint = ""
    if any(map(_is_quoted, first_row)) and not columns.quoted:
        hint = _QUOTE_HINT
    elif len(first_row) == 1 and "," in first_row[0]:
        hint = "; tabs must separate columns, not commas"
    raise InputError(f"{path}, line 1: there is no column {column!r}; the file has {have}{hint}")
