"""Tab-separated files to examples of one or two texts."""

import csv
import dataclasses
import io
import itertools
from collections.abc import Iterator, Sequence

import tensorflow as tf
from absl import logging

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


def read_examples(
    path: str, columns: Columns, *, id_column: str | None = None, skip_incomplete: bool = False
) -> list[tuple[int, Example]]:
    """Reads a tab-separated file.

    Args:
      path: of the file.
      columns: where texts and labels are.
      id_column: name of the column of `Example.id`, if the file has it; None for none.
      skip_incomplete: whether lines that lack cells or a label are skipped with a warning rather than refused.

    Returns:
      The number of the line on which each example starts, from 1, and the example.

    Raises:
      InputError: the file is missing, empty, not UTF-8 or lacks a column; or a line has another number of columns than
        the first, or an empty label; or the quotes do not fit `columns.quoted`.
    """
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path}: no such file; check --data_dir")
    rows = _quoted_rows(path) if columns.quoted else _plain_rows(path)
    first = next(rows, None)
    examples, skipped = [], []
    if first is not None:
        header = first[1]
        ids = id_column if id_column in header else None
        names = (columns.text_a, columns.text_b, columns.label, ids)
        wanted = tuple(None if name is None else _index(path, name, header, columns) for name in names)
        for line, row in rows if columns.has_header else itertools.chain([first], rows):
            try:
                examples.append((line, _example(path, line, row, len(header), wanted, columns)))
            except InputError:
                if not skip_incomplete:
                    raise
                skipped.append(line)
    if not examples:
        what = f"all {len(skipped)} lines lack cells or a label" if skipped else "holds no example"
        raise InputError(f"{path}: {what}; add a line for each text")
    if skipped:
        shown = ", ".join(map(str, skipped[:5])) + (", ..." if len(skipped) > 5 else "")
        logging.warning("%s: skipped %d lines that lack cells or a label: line %s", path, len(skipped), shown)
    if columns.quoted is None and all(_is_quoted(example.text_a) for _, example in examples):
        raise InputError(
            f"{path}: every text stands in double quotes; give --tsv_quoted to remove them, or --notsv_quoted if they "
            "belong to the texts"
        )
    return examples


def _example(path: str, line: int, row: Sequence[str], width: int, wanted: Sequence, columns: Columns) -> Example:
    if len(row) != width:
        raise InputError(
            f"{path}, line {line}: has {len(row)} columns, the first line has {width}; single tabs separate "
            f"columns{_QUOTE_HINT if any(cell.startswith(_QUOTE) for cell in row) and not columns.quoted else ''}"
        )
    a, b, label, ids = wanted
    text = None if label is None else row[label].strip()
    if text == "":
        raise InputError(f"{path}, line {line}: the label is empty; remove the line, or give it a label")
    return Example(row[a], None if b is None else row[b], text, None if ids is None else row[ids])


_BLOCK = 1 << 22
_QUOTE = '"'
_QUOTE_HINT = "; if cells stand in double quotes, give --tsv_quoted"


def _is_quoted(cell: str) -> bool:
    return len(cell) > 1 and cell.startswith(_QUOTE) and cell.endswith(_QUOTE)


def _plain_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(_lines(path), 1):
        yield number, _decoded(path, number, line.rstrip(b"\r")).split("\t")


def _lines(path: str) -> Iterator[bytes]:
    """Reads in blocks: MNLI's 400 MB would take several times their size, and `readline` three times as long."""
    rest = b""
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(_BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            yield from lines
    if rest:
        yield rest


def _quoted_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    text = "\n".join(_decoded(path, number, line) for number, line in enumerate(_lines(path), 1))
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
