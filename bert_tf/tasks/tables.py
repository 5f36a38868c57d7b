"""Reads columns of tab-separated, comma-separated, JSON Lines and Parquet files, and the rows of tables in memory.

In the format `tsv`, tabs separate the columns. The format `csv` follows RFC 4180: quoted cells may contain commas and
newlines. If the header of a `csv` file has semicolons and no comma, semicolons separate the columns, as in files from
spreadsheets in countries with a decimal comma. In the format `jsonl`, each line is a JSON object.
"""

import csv
import dataclasses
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.core import json_lines, parquet_files
from bert_tf.core.errors import InputError
from bert_tf.core.file_signatures import why_no_text

EXTENSIONS = {"tsv": (".tsv",), "csv": (".csv",), "jsonl": (".jsonl", ".json"), "parquet": (".parquet",)}
# The formats whose rows have named cells of any type; `read_objects` reads them.
OF_OBJECTS = ("jsonl", "parquet")
# Possible names of a split's file in a folder, without the extension.
_SPLIT_NAMES = {"train": ("train",), "dev": ("dev", "val", "validation"), "test": ("test",)}
# A document may be longer than the csv module's default limit for a cell.
_LONGEST_CELL = 1 << 30
_QUOTE = '"'
_BLOCK = 1 << 22
_DECIMAL_COMMA = re.compile(r"\A([+-]?\d+),(\d+)\Z")
_QUOTE_HINT = "; if cells are in double quotes, give --quoted"
_PUNCTUATION = {"\t": "tabs", ",": "commas", ";": "semicolons"}


@dataclasses.dataclass(frozen=True)
class Layout:
    """The layout of a file."""

    format: str = "tsv"  # a key of `EXTENSIONS`
    # whether the first line contains the names of the columns; has no effect on the formats `OF_OBJECTS`
    has_header: bool = True
    # for tsv, whether cells may be in double quotes, as in files from spreadsheets. If False, quotes are text. If None,
    # quotes are also text, but a file is refused if each cell of the first requested column is in quotes, or if a cell
    # in quotes has doubled quotes inside.
    quoted: bool | None = None
    # names of the columns with numbers, where 1,5 means 1.5 in a csv file with semicolons between the columns
    numbers: Sequence[str] = ()

    @property
    def has_quotes(self) -> bool:
        """Whether cells may be in double quotes; if false, quotes are text."""
        return self.format == "csv" or bool(self.quoted)


def file_names(split: str, format: str = "") -> list[str]:
    """Returns the names that a split's file may have in a format; "" means all formats. The Parquet files of a dataset
    on the Hugging Face hub match a glob."""
    ends = [end for name, found in EXTENSIONS.items() if format in ("", name) for end in found]
    ends += ["-*-of-*.parquet"] if format in ("", "parquet") else []
    return [name + end for name in _SPLIT_NAMES[split] for end in ends]


def format_of(path: str) -> str:
    """Returns the format that belongs to a file's extension."""
    for name, extensions in EXTENSIONS.items():
        if path.lower().endswith(extensions):
            return name
    known = ", ".join(end for extensions in EXTENSIONS.values() for end in extensions)
    raise InputError(f"{path}: the extension is not one of {known}; give --data_format")


def has_objects(path: str) -> bool:
    """Returns whether a file's extension belongs to a format of `OF_OBJECTS`."""
    return any(path.lower().endswith(EXTENSIONS[name]) for name in OF_OBJECTS)


class Columns(NamedTuple):
    """Columns of a file."""

    names: Sequence[str]  # the columns' names in the file; "" if the file does not name columns
    # for each row, the number of the row's first line, counted from 1, and a cell for each column. A cell is a string;
    # in the formats `OF_OBJECTS`, it is any JSON value.
    rows: list[tuple[int, Sequence[Any]]]


def rows_of(table: Any) -> list[Mapping[str, Any]] | None:
    """Returns the rows of a table: a list of dicts, a dict of lists, a DataFrame of pandas or polars, or a Dataset. The
    result is None for anything else, such as a list of texts. Arrays in cells become lists."""
    rows = _rows_in(table)
    if rows is None:
        return None
    return [{name: cell.tolist() if hasattr(cell, "tolist") else cell for name, cell in row.items()} for row in rows]


def _rows_in(table: Any) -> Sequence[Mapping[str, Any]] | None:
    if hasattr(table, "features") and not hasattr(table, "__len__"):  # a Dataset that streams
        return list(table)
    if hasattr(table, "to_dicts"):  # of polars
        return table.to_dicts()
    if hasattr(table, "to_dict") and hasattr(table, "columns"):  # of pandas
        return table.to_dict("records")
    if isinstance(table, Mapping):
        return _rows_of_columns(table)
    if isinstance(table, (str, bytes)) or not hasattr(table, "__len__") or not len(table):
        return None
    return table if all(isinstance(row, Mapping) for row in table) else None


def _rows_of_columns(columns: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if any(hasattr(column, "column_names") for column in columns.values()):  # a DatasetDict of the library datasets
        raise InputError(f"a dict of the tables {', '.join(columns)} is not a table; give one of the tables")
    are_lists = all(hasattr(column, "__len__") and not isinstance(column, (str, bytes)) for column in columns.values())
    if not are_lists or len(set(map(len, columns.values()))) > 1:
        raise InputError("a dict is a table only if its values are lists of one length; give such lists, or a list")
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


class MissingColumn(InputError):
    """A file lacks a column that a flag names."""


def read_columns(path: str, layout: Layout, columns: Sequence[str] | None = None) -> Columns:
    """Reads columns of a file; returns no rows if the file contains no examples.
    `columns`: names or numbers (from 0) of columns; None for all columns, which is not possible for `OF_OBJECTS`.
    Raises MissingColumn: the file lacks a column."""
    if layout.format in OF_OBJECTS:
        objects = read_objects(path)
        return Columns(columns, [(line, _fields(f"{path}, line {line}", found, columns)) for line, found in objects])
    lines, quoted = list(decoded_lines(path)), layout.has_quotes
    delimiter = _delimiter(layout, lines)
    rows = _read_rows(path, lines, delimiter, quoted)
    if len(rows) <= layout.has_header:
        return Columns((), [])
    header = [name.strip() for name in rows[0][1]] if layout.has_header else rows[0][1]
    places = range(len(header))
    if columns is not None:
        places = [column_index(path, name, header, layout.has_header, delimiter, quoted) for name in columns]
    for line, row in rows:
        check_width(path, line, row, len(header), delimiter, quoted)
    numbers = {place for place, name in zip(places, columns or header, strict=True) if name in layout.numbers}
    if delimiter == ";" and numbers:
        for _, row in rows[layout.has_header :]:
            for place in numbers:
                row[place] = _DECIMAL_COMMA.sub(r"\1.\2", row[place])
    selected = [(line, tuple(row[place] for place in places)) for line, row in rows[layout.has_header :]]
    if layout.quoted is None and not quoted:
        _refuse_quotes(path, selected)
    return Columns([header[place] if layout.has_header else "" for place in places], selected)


def _delimiter(layout: Layout, lines: Sequence[str]) -> str:
    if layout.format != "csv":
        return "\t"
    header = lines[0] if lines and layout.has_header else ""
    return ";" if ";" in header and "," not in header else ","


def _read_rows(path: str, lines: Sequence[str], delimiter: str, quoted: bool) -> list[tuple[int, list[str]]]:
    if not any(map(str.strip, lines)):
        return []
    if not quoted:
        return list(plain_rows(lines))
    rows = list(_quoted_rows(path, lines, delimiter))
    # an empty text is written as two quotes, so a blank line at the end is not an example
    while rows and not rows[-1][1]:
        rows.pop()
    return rows


def _fields(place: str, entries: Mapping[str, Any], columns: Sequence[str]) -> tuple[Any, ...]:
    for column in columns:
        if column not in entries:
            have = ", ".join(entries) or "none"
            raise MissingColumn(f"{place}: there is no field {column!r}; the line has {have}")
    return tuple(entries[column] for column in columns)


def read_rows(
    path: str, names_classes: bool = True, numbers: Sequence[str] = ()
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Returns the number of each row's line and the row's cells by the names of the columns; see `read_objects`.
    `numbers`: see `Layout`."""
    layout = Layout(format_of(path), numbers=numbers)
    if layout.format in OF_OBJECTS:
        return read_objects(path, names_classes)
    names, rows = read_columns(path, layout)
    return ((line, dict(zip(names, cells, strict=True))) for line, cells in rows)


def read_objects(path: str, names_classes: bool = True) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the number of each line or row of a file, counted from 1, and its object; skips blank lines. The file is
    in JSON Lines or Parquet, or is a JSON list of objects.
    `names_classes`: see `parquet_files.rows`."""
    _require_file(path)
    if path.lower().endswith(EXTENSIONS["parquet"]):
        yield from parquet_files.rows(path, names_classes)
        return
    lines = decoded_lines(path)
    first = next(lines, "")
    lines = itertools.chain([first], lines)
    if first.lstrip().startswith("["):  # as pandas writes a table without lines=True
        lines = map(json.dumps, json_of(path, lines, "write one list of objects, or one object per line"))
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entries = json_lines.parse(line)
            if "\\u" in line:
                json.dumps(entries, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            reason = "has half of a surrogate pair, which is not a character; fix the text"
            raise InputError(f"{path}, line {number}: {reason}") from error
        except json_lines.LineError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
        yield number, entries


def json_of(path: str, lines: Iterable[str], remedy: str) -> Any:
    """Returns the value in the lines of a JSON file; `remedy` tells what to give instead of a file that is not JSON."""
    try:
        return json.loads("\n".join(lines))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: is not JSON ({error}); {remedy}") from error


def decoded_lines(path: str) -> Iterator[str]:
    """Yields the lines of a file without their newlines."""
    _require_file(path)
    for number, line in enumerate(_lines(path), 1):
        if number == 1:
            if what := why_no_text(line):
                raise InputError(f"{path}: {what}")
            if b"\r" in line.rstrip(b"\r"):
                raise InputError(f"{path}, line 1: has CR inside the line; save the file with LF or CRLF as line ends")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            reason = f"not UTF-8 (byte {error.start + 1:,}, {error.reason}); save the file as UTF-8"
            raise InputError(f"{path}, line {number}: {reason}") from error


def _require_file(path: str) -> None:
    """Raises InputError if the file does not exist or is a folder."""
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path}: no such file; check its path")
    if tf.io.gfile.isdir(path):
        raise InputError(f"{path}: is a folder, not a file; check its path")


def _lines(path: str) -> Iterator[bytes]:
    """Yields the lines of a file; reads the file in blocks. Reading the whole file at once would take several times the
    file's size in memory. `readline` would take three times as long."""
    rest = b""
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(_BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            yield from lines
    if rest:
        yield rest


def check_width(
    path: str, line: int, row: Sequence[str], width: int, delimiter: str = "\t", quoted: bool = False
) -> None:
    """Raises InputError unless a row has as many cells as the first line."""
    if len(row) == width:
        return
    hint = _QUOTE_HINT if not quoted and any(cell.startswith(_QUOTE) for cell in row) else ""
    if not row:
        raise InputError(f"{path}, line {line}: is blank; remove the line")
    if delimiter != "\t":
        hint = f"; put cells that contain {_PUNCTUATION[delimiter]}, quotes or newlines in double quotes"
    raise InputError(
        f"{path}, line {line}: has {len(row)} columns, the first line has {width}; separate columns by single "
        f"{_PUNCTUATION[delimiter]}{hint}"
    )


def _is_quoted(cell: str) -> bool:
    return len(cell) > 1 and cell.startswith(_QUOTE) and cell.endswith(_QUOTE)


def _has_doubled_quotes(cell: str) -> bool:
    """Whether a cell is written as pandas writes a text that contains quotes."""
    return _is_quoted(cell) and _QUOTE * 2 in cell[1:-1] and _QUOTE not in cell[1:-1].replace(_QUOTE * 2, "")


def _refuse_quotes(path: str, rows: Sequence[tuple[int, Sequence[str]]]) -> None:
    remedy = (
        "save the file as .csv or .jsonl, or give run_classifier --quoted to remove the quotes, or --noquoted if they "
        "are part of the texts"
    )
    if all(_is_quoted(cells[0]) for _, cells in rows):
        raise InputError(f"{path}: every text is in double quotes; {remedy}")
    for line, cells in rows:
        if any(map(_has_doubled_quotes, cells)):
            raise InputError(f"{path}, line {line}: a text is in double quotes and has doubled quotes inside; {remedy}")


def plain_rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields the number of each line, counted from 1, and the line's tab-separated cells; quotes are text. Leaves out
    blank lines at the end, unless the first line has only one cell: then a blank line may be an empty text."""
    blank, width = [], 0
    for number, line in enumerate(lines, 1):
        row = number, line.rstrip("\r").split("\t")
        width = width or len(row[1])
        if width > 1 and row[1] == [""]:
            blank.append(row)
            continue
        yield from blank
        yield row
        blank = []


def _quoted_rows(path: str, lines: Sequence[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(_LONGEST_CELL)
    text = io.StringIO("\n".join(lines), newline="")
    # People write a space after each comma. BERT does not see it, but a quote after a space does not begin a cell.
    reader = csv.reader(text, "excel", delimiter=delimiter, strict=True, skipinitialspace=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(
                f"{path}, line {line}: wrong quotes ({error}); write each quote in a cell as two quotes"
            ) from error
        if row is None:
            return
        yield line, row


def column_index(
    path: str, column: str, header: Sequence[str], has_header: bool, delimiter: str = "\t", quoted: bool = False
) -> int:
    """Returns the index of a column; `column` is the column's name, or its number counted from 0.
    Raises MissingColumn: there is no such column."""
    if not any(map(str.strip, header)):
        raise InputError(f"{path}, line 1: is blank; remove blank lines, and add a line for each text")
    named = header.count(column) if has_header else 0
    if named == 1:
        return header.index(column)
    if named:
        raise InputError(f"{path}, line 1: {named} columns are named {column!r}; give the column's number, from 0")
    if column.isascii() and column.isdigit() and int(column) < len(header):
        return int(column)
    have = ", ".join(header) if has_header else f"{len(header)} columns, counted from 0"
    raise MissingColumn(
        f"{path}, line 1: there is no column {column!r}; the file has {have}{_hint(header, delimiter, quoted)}"
    )


def _hint(header: Sequence[str], delimiter: str, quoted: bool) -> str:
    if any(map(_is_quoted, header)) and not quoted:
        return _QUOTE_HINT
    for other, name in _PUNCTUATION.items():
        if len(header) == 1 and other != delimiter and other in header[0]:
            return f"; separate columns by {_PUNCTUATION[delimiter]}, not {name}"
    return "; name the columns of your data with the flags that end in _column"
