"""Reads tab-separated and comma-separated files.

In the format `tsv`, tabs separate the columns. The format `csv` follows RFC 4180: quoted cells may contain commas and
newlines. If the header of a `csv` file has semicolons and no comma, semicolons separate the columns, as in files from
spreadsheets in countries with a decimal comma. A first line such as `sep=;`, which Excel writes, names the separator.
"""

import csv
import dataclasses
import io
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.rows.text_files import decoded_lines

# A document may be longer than the csv module's default limit for a cell.
_LONGEST_CELL = 1 << 30
_QUOTE = '"'
_QUOTE_HINT = "; if cells are in double quotes, give --quoted"
_PUNCTUATION = {"\t": "tabs", ",": "commas", ";": "semicolons"}
_SEPARATOR = re.compile(r"sep=([,;\t])\s*", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Layout:
    """The layout of a file."""

    format: str = ""  # a key of `files.EXTENSIONS`; "" for the format of the file's extension
    # `has_header`, `quoted`, `skips_incomplete`: only for tsv and csv
    has_header: bool = True  # whether the first line contains the names of the columns
    # for tsv, whether cells may be in double quotes, as in files from spreadsheets. If False, quotes are text. If None,
    # quotes are also text, but a file is refused if each cell of the first requested column is in quotes, or if a cell
    # in quotes has doubled quotes inside.
    quoted: bool | None = None
    # whether rows that lack cells or a label are left out with a warning; if false, they are refused
    skips_incomplete: bool = False


class TextCells(dict):
    """The cells of a row whose file has no types: each cell is a string, also a number."""

    has_decimal_comma = False  # whether 1,5 is a number


class DecimalCommaCells(TextCells):
    """The cells of a row of a file with semicolons between the columns."""

    has_decimal_comma = True


def read(
    path: str, layout: Layout, columns: Mapping[str, str] | None = None, optional: Collection[str] = ()
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the number of each row's first line, counted from 1, and the row's cells; see `files.rows`."""
    is_quoted = layout.format == "csv" or bool(layout.quoted)
    table, delimiter = _quoted_rows(path, layout) if is_quoted else (_plain_rows(decoded_lines(path)), "\t")
    first = next(table, None)
    if first is None:
        return
    header = _Header(path, [name.strip() for name in first[1]], layout.has_header, delimiter, is_quoted)
    places = header.places(columns, optional)
    of_type = DecimalCommaCells if delimiter == ";" else TextCells
    skipped, quoted, doubled, text = [], [], 0, next(iter(places.values()))
    for line, row in table if layout.has_header else itertools.chain([first], table):
        is_incomplete = len(row) != len(header.names) or ("label" in places and not row[places["label"]].strip())
        if layout.skips_incomplete and is_incomplete:
            skipped.append(line)
            continue
        header.check_width(line, row)
        cells = of_type(zip(places, map(row.__getitem__, places.values()), strict=True))
        if layout.quoted is None and not is_quoted:
            quoted.append(_is_quoted(row[text]))
            doubled = doubled or (line if any(map(_has_doubled_quotes, cells.values())) else 0)
        yield line, cells
    if doubled or (quoted and all(quoted)):  # the quotes are probably not part of the texts
        where, what = f"{path}, line {doubled}", "a text is in double quotes and has doubled quotes inside"
        if all(quoted):
            where, what = path, "every text is in double quotes"
        raise InputError(f"{where}: {what}; save the file as .csv or .jsonl, or give run_classifier --quoted to remove "
                         "the quotes, or --noquoted if they are part of the texts")  # fmt: skip
    if skipped:
        shown = ", ".join(map(str, skipped[:5])) + (", ..." if len(skipped) > 5 else "")
        logging.warning("%s: skipped %d lines that lack cells or a label: line %s", path, len(skipped), shown)


@dataclasses.dataclass(frozen=True)
class _Header:
    """The columns of a file."""

    path: str
    names: Sequence[str]  # the cells of the first line
    has_names: bool  # whether the cells of the first line are names; else, they belong to the first row
    delimiter: str
    is_quoted: bool  # whether cells may be in quotes

    def places(self, columns: Mapping[str, str] | None, optional: Collection[str]) -> dict[str, int]:
        """Returns the index of the column of each cell; see `files.rows`."""
        if not any(self.names):
            raise InputError(f"{self.path}, line 1: is blank; remove blank lines, and add a line for each text")
        if columns is None:
            return {name if self.has_names else str(place): place for place, name in enumerate(self.names)}
        places = {name: self._place(column, name in optional) for name, column in columns.items()}
        return {name: place for name, place in places.items() if place is not None}

    def _place(self, column: str, is_optional: bool) -> int | None:
        """Returns the index of a column; `column` is the column's name, or its number counted from 0."""
        named = self.names.count(column) if self.has_names else 0
        if named == 1:
            return self.names.index(column)
        if named:
            reason = f"{named} columns are named {column!r}; give the column's number, from 0"
            raise InputError(f"{self.path}, line 1: {reason}")
        if column.isascii() and column.isdigit() and int(column) < len(self.names):
            return int(column)
        if is_optional:
            return None
        have = ", ".join(self.names) if self.has_names else f"{len(self.names)} columns, counted from 0"
        raise InputError(f"{self.path}, line 1: there is no column {column!r}; the file has {have}{self._hint()}")

    def _hint(self) -> str:
        if any(map(_is_quoted, self.names)) and not self.is_quoted:
            return _QUOTE_HINT
        for other, name in _PUNCTUATION.items():
            if len(self.names) == 1 and other != self.delimiter and other in self.names[0]:
                return f"; separate columns by {_PUNCTUATION[self.delimiter]}, not {name}"
        return "; name the columns of your data with the flags that end in _column"

    def check_width(self, line: int, row: Sequence[str]) -> None:
        """Raises InputError unless a row has as many cells as the first line."""
        if len(row) == len(self.names):
            return
        if not row:
            raise InputError(f"{self.path}, line {line}: is blank; remove the line")
        hint = _QUOTE_HINT if not self.is_quoted and any(cell.startswith(_QUOTE) for cell in row) else ""
        if self.delimiter != "\t":
            hint = f"; put cells that contain {_PUNCTUATION[self.delimiter]}, quotes or newlines in double quotes"
        raise InputError(
            f"{self.path}, line {line}: has {len(row)} columns, the first line has {len(self.names)}; separate columns "
            f"by single {_PUNCTUATION[self.delimiter]}{hint}"
        )


def _is_quoted(cell: str) -> bool:
    return len(cell) > 1 and cell.startswith(_QUOTE) and cell.endswith(_QUOTE)


def _has_doubled_quotes(cell: str) -> bool:
    """Whether a cell is written as pandas writes a text that contains quotes."""
    return _is_quoted(cell) and _QUOTE * 2 in cell[1:-1] and _QUOTE not in cell[1:-1].replace(_QUOTE * 2, "")


def _plain_rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
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


def _quoted_rows(path: str, layout: Layout) -> tuple[Iterator[tuple[int, list[str]]], str]:
    """Returns the rows of a file in which cells may be in quotes, and the separator of the columns."""
    lines, delimiter, start = list(decoded_lines(path)), "\t", 0
    if layout.format == "csv":
        header = lines[0] if lines and layout.has_header else ""
        delimiter = ";" if ";" in header and "," not in header else ","
        if stated := _SEPARATOR.fullmatch(lines[0] if lines else ""):
            delimiter, start = stated[1], 1
    return _csv_rows(path, lines, delimiter, start), delimiter


def _csv_rows(path: str, lines: Sequence[str], delimiter: str, start: int) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(_LONGEST_CELL)
    text = io.StringIO("\n".join(lines[start:]), newline="")
    # People write a space after each comma. BERT does not see it, but a quote after a space does not begin a cell.
    reader, blank = csv.reader(text, "excel", delimiter=delimiter, strict=True, skipinitialspace=True), []
    while True:
        line = reader.line_num + 1 + start
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(
                f"{path}, line {line}: wrong quotes ({error}); write each quote in a cell as two quotes"
            ) from error
        if row is None:  # an empty text is written as two quotes, so a blank line at the end is not an example
            return
        if row:
            yield from blank
            yield line, row
        blank = [] if row else [*blank, (line, row)]
