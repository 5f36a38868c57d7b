"""Reads columns of tab-separated, comma-separated and JSON Lines files.

The formats: `tsv` separates columns by tabs. `csv` is RFC 4180, with quoted cells that may hold commas and newlines.
`jsonl` has one JSON object a line.
"""

import csv
import dataclasses
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.tasks import json_lines

EXTENSIONS = {"tsv": (".tsv",), "csv": (".csv",), "jsonl": (".jsonl", ".json")}
FORMATS = tuple(EXTENSIONS)
# Longer cells than the csv module accepts by default are ordinary documents.
_LONGEST_CELL = 1 << 30
_QUOTE = '"'
_BLOCK = 1 << 22
_QUOTE_HINT = "; if cells stand in double quotes, give --quoted"
# The first bytes of files that are not text, and what to do with such a file.
_BINARY = {
    b"\x1f\x8b": "is compressed with gzip; unpack the file (gunzip)",
    b"BZh91AY&SY": "is compressed with bzip2; unpack the file (bunzip2)",
    b"\xfd7zXZ": "is compressed with xz; unpack the file (unxz)",
    b"PK\x03\x04": "is a workbook (.xlsx, .ods) or another zip archive; save the table as CSV in UTF-8",
    b"\xd0\xcf\x11\xe0": "is an Excel workbook; save the table as CSV in UTF-8",
    b"PAR1\x15": "is a Parquet file; write its table as CSV or JSON Lines",
    b"\xff\xfe": "is UTF-16; save the file as UTF-8",
    b"\xfe\xff": "is UTF-16; save the file as UTF-8",
}
_PUNCTUATION = {"\t": "tabs", ",": "commas", ";": "semicolons"}


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a file is read.

    Attributes:
      format: of `FORMATS`.
      has_header: whether the first line names the columns; JSON names them in each line.
      quoted: tsv only: whether cells may stand in double quotes, as spreadsheets write them. False keeps quotes as
        text. None also does, but refuses a file whose texts all stand in quotes.
    """

    format: str = "tsv"
    has_header: bool = True
    quoted: bool | None = False


def files_in(folder: str, split: str, format: str = "") -> list[str]:
    """Returns the paths of a folder's files that are named as a split, with an extension of a format or of any."""
    ends = _extensions(format) if folder else []
    return [path for end in ends if tf.io.gfile.exists(path := os.path.join(folder, split + end))]


def _extensions(format: str) -> list[str]:
    return [end for name in FORMATS if format in ("", name) for end in EXTENSIONS[name]]


def without_file(split: str) -> str:
    """Returns what else gives a split that has no file, for messages."""
    return ", or give --dev_share=0.1 to hold out a tenth of the training data" if split == "dev" else ""


def find_file(folder: str, split: str, format: str = "") -> str:
    """Returns the path of a split's file in a folder: the split's name and the extension of a format.

    Raises:
      InputError: there is no such file, or more than one.
    """
    extensions, found = _extensions(format), files_in(folder, split, format)
    if len(found) > 1:
        names = " and ".join(map(os.path.basename, found))
        raise InputError(f"{folder}: has {names}; remove one, or choose by --data_format")
    if not found:
        more = f" (nor one with {', '.join(extensions[1:])})" if extensions[1:] else ""
        raise InputError(
            f"{os.path.join(folder, split + extensions[0])}: no such file{more}; check --data_dir{without_file(split)}"
        )
    return found[0]


def format_of(path: str) -> str:
    """Returns the format that a file's extension says.

    Raises:
      InputError: the extension is none of `EXTENSIONS`.
    """
    for name, extensions in EXTENSIONS.items():
        if path.lower().endswith(extensions):
            return name
    known = ", ".join(end for extensions in EXTENSIONS.values() for end in extensions)
    raise InputError(f"{path}: its extension is none of {known}; give --data_format")


def read_table(path: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Reads all columns of a comma-separated file.

    Returns:
      The names of the columns; and the number of the line on which each row starts, from 1, and its cells. Lines that
      are blank at the end of the file are left out.

    Raises:
      InputError: the file is missing, not UTF-8, or damaged. The message names file and line.
    """
    rows = list(_quoted_rows(path, list(decoded_lines(path)), ","))
    while rows and len(rows[-1][1]) < 2 and not any(map(str.strip, rows[-1][1])):
        rows.pop()
    if not rows:
        raise InputError(f"{path}: is empty; the first line must name the columns")
    (_, header), *rows = rows
    for line, row in rows:
        check_width(path, line, row, len(header), ",", quoted=True)
    return header, rows


def read_columns(path: str, layout: Layout, columns: Sequence[str]) -> list[tuple[int, tuple[Any, ...]]]:
    """Reads columns of a file.

    Args:
      path: of the file.
      layout: of the file.
      columns: by name, or by number from 0.

    Returns:
      The number of the line on which each row starts, from 1, and its cells, one a column: strings; in JSON any value.

    Raises:
      InputError: the file is missing, empty, not UTF-8, damaged or lacks a column. The message names file and line.
    """
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path}: no such file; check its path")
    if tf.io.gfile.isdir(path):
        raise InputError(f"{path}: is a folder, not a file; check its path")
    read = json_lines.read_columns if layout.format == "jsonl" else _read_delimited
    lines = list(decoded_lines(path))
    refuse_same(path, columns, columns)
    rows = read(path, lines, layout, columns) if any(map(str.strip, lines)) else []
    if not rows:
        raise InputError(f"{path}: holds no example; add a line for each text")
    return rows


def heading(path: str, layout: Layout, column: str) -> str:
    """Returns what a file calls a column, given by its name or by its number from 0; "" if it does not name columns."""
    if layout.format == "jsonl":
        return column
    if not layout.has_header:
        return ""
    lines, delimiter = decoded_lines(path), "," if layout.format == "csv" else "\t"
    quoted = layout.format == "csv" or bool(layout.quoted)
    _, row = next(_quoted_rows(path, list(lines), delimiter) if quoted else plain_rows(lines, delimiter))
    header = [name.strip() for name in row]
    return header[column_index(path, column, header, True, delimiter, quoted)]


def decoded_lines(path: str) -> Iterator[str]:
    """Yields the lines of a file without their newline.

    Raises:
      InputError: the file is missing or not UTF-8.
    """
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path}: no such file; check --data_dir")
    for number, line in enumerate(_lines(path), 1):
        if number == 1:
            refuse_binary(path, line)
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise not_utf8(f"{path}, line {number}", error) from error


def refuse_binary(path: str, beginning: bytes) -> None:
    """Raises an InputError if a file begins as no text does: compressed, or a workbook."""
    for magic, what in _BINARY.items():
        if beginning.startswith(magic):
            raise InputError(f"{path}: {what}")


def not_utf8(place: str, error: UnicodeDecodeError) -> InputError:
    """Returns the error of a file, or its line, that does not decode."""
    return InputError(f"{place}: not UTF-8 (byte {error.start + 1:,}, {error.reason}); save the file as UTF-8")


def _lines(path: str) -> Iterator[bytes]:
    """Reads in blocks: MNLI's 400 MB would take several times their size, and `readline` three times as long."""
    rest = b""
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(_BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            yield from lines
    if rest:
        yield rest


def _read_delimited(
    path: str, lines: Sequence[str], layout: Layout, columns: Sequence[str]
) -> list[tuple[int, tuple[str, ...]]]:
    delimiter = "," if layout.format == "csv" else "\t"
    quoted = layout.format == "csv" or layout.quoted
    rows = list(_quoted_rows(path, lines, delimiter) if quoted else plain_rows(lines, delimiter))
    # Blank lines at the end; in a file of one column without quotes, they could be empty texts.
    while rows and (quoted or len(rows[0][1]) > 1) and not any(rows[-1][1]) and len(rows[-1][1]) < 2:
        rows.pop()
    if len(rows) <= layout.has_header:
        return []
    header = [name.strip() for name in rows[0][1]] if layout.has_header else rows[0][1]
    places = [column_index(path, column, header, layout.has_header, delimiter, quoted) for column in columns]
    refuse_same(path, columns, places)
    for line, row in rows:
        check_width(path, line, row, len(header), delimiter, quoted)
    selected = [(line, tuple(row[place] for place in places)) for line, row in rows[layout.has_header :]]
    if layout.quoted is None and not quoted and all(_is_quoted(cells[0]) for _, cells in selected):
        raise InputError(
            f"{path}: every text stands in double quotes; give --quoted to remove them, or --noquoted if they belong "
            "to the texts"
        )
    return selected


def refuse_same(path: str, columns: Sequence[str], places: Sequence[Any]) -> None:
    """Raises an InputError if two columns, which have these places in a file, are the same one."""
    for column, place in zip(columns, places, strict=True):
        if places.count(place) > 1:
            raise InputError(
                f"{path}: column {column!r} is named for two purposes; check --text_a_column, --text_b_column, "
                "--label_column and --id_column"
            )


def check_width(
    path: str, line: int, row: Sequence[str], width: int, delimiter: str = "\t", quoted: bool = False
) -> None:
    """Raises an InputError unless a row has as many cells as the first line."""
    if len(row) == width:
        return
    hint = _QUOTE_HINT if not quoted and any(cell.startswith(_QUOTE) for cell in row) else ""
    if not row:
        raise InputError(f"{path}, line {line}: is blank; remove the line")
    if delimiter == ",":
        hint = "; put cells that hold commas, quotes or newlines in double quotes"
    raise InputError(
        f"{path}, line {line}: has {len(row)} columns, the first line has {width}; single {_PUNCTUATION[delimiter]} "
        f"separate columns{hint}"
    )


def _is_quoted(cell: str) -> bool:
    return len(cell) > 1 and cell.startswith(_QUOTE) and cell.endswith(_QUOTE)


def plain_rows(lines: Iterable[str], delimiter: str = "\t") -> Iterator[tuple[int, list[str]]]:
    """Yields the number of each line, from 1, and its cells; quotes are text."""
    for number, line in enumerate(lines, 1):
        yield number, line.rstrip("\r").split(delimiter)


def _quoted_rows(path: str, lines: Sequence[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(_LONGEST_CELL)
    text = io.StringIO("\n".join(lines), newline="")
    reader = csv.reader(text, "excel", delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(f"{path}, line {line}: wrong quotes ({error}); double a quote within quotes") from error
        if row is None:
            return
        yield line, row


def column_index(
    path: str, column: str, header: Sequence[str], has_header: bool, delimiter: str = "\t", quoted: bool = False
) -> int:
    """Returns the place of a column, given by its name or by its number from 0.

    Raises:
      InputError: there is none, or several have the name.
    """
    if not any(map(str.strip, header)):
        raise InputError(f"{path}, line 1: is blank; remove blank lines, and add a line for each text")
    named = header.count(column) if has_header else 0
    if named == 1:
        return header.index(column)
    if named:
        raise InputError(f"{path}, line 1: {named} columns are named {column!r}; give the number of one, from 0")
    if column.isascii() and column.isdigit() and int(column) < len(header):
        return int(column)
    have = ", ".join(header) if has_header else f"{len(header)} columns, counted from 0"
    raise InputError(
        f"{path}, line 1: there is no column {column!r}; the file has {have}{_hint(header, delimiter, quoted)}"
    )


def _hint(header: Sequence[str], delimiter: str, quoted: bool) -> str:
    if any(map(_is_quoted, header)) and not quoted:
        return _QUOTE_HINT
    for other, name in _PUNCTUATION.items():
        if len(header) == 1 and other != delimiter and other in header[0]:
            return f"; {_PUNCTUATION[delimiter]} must separate columns, not {name}"
    return "; own data names its columns by the flags that end in _column"
