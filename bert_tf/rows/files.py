"""Reads the rows of a file in any format: tables, JSON Lines, JSON as pandas writes it, and Parquet."""

import dataclasses
import itertools
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from bert_tf.core import json_lines, parquet_files
from bert_tf.core.errors import InputError
from bert_tf.rows import Row, delimited
from bert_tf.rows.delimited import Layout
from bert_tf.rows.text_files import decoded_lines, json_of, require_file

EXTENSIONS = {"tsv": (".tsv",), "csv": (".csv",), "jsonl": (".jsonl", ".json"), "parquet": (".parquet",)}
# The formats whose rows have named cells of any type.
OF_OBJECTS = ("jsonl", "parquet")
# Possible names of a split's file in a folder, without the extension.
_SPLIT_NAMES = {"train": ("train",), "dev": ("dev", "val", "validation"), "test": ("test",)}
_REMEDY = "write one list of objects, or one object per line"
DEFAULT_LAYOUT = Layout()


def names_of(split: str, format: str = "") -> list[str]:
    """Returns the names that a split's file may have in a format; "" means all formats. The Parquet files of a dataset
    on the Hugging Face hub match a glob."""
    ends = [end for name, extensions in EXTENSIONS.items() if format in ("", name) for end in extensions]
    ends += ["-*-of-*.parquet"] if format in ("", "parquet") else []
    return [name + end for name in _SPLIT_NAMES[split] for end in ends]


def format_of(path: str) -> str:
    """Returns the format that belongs to a file's extension."""
    for name, extensions in EXTENSIONS.items():
        if path.lower().endswith(extensions):
            return name
    every = ", ".join(end for extensions in EXTENSIONS.values() for end in extensions)
    raise InputError(f"{path}: the extension is not one of {every}; give --data_format")


def has_objects(path: str) -> bool:
    """Returns whether a file's extension belongs to a format of `OF_OBJECTS`."""
    return any(path.lower().endswith(EXTENSIONS[name]) for name in OF_OBJECTS)


def class_names(path: str, column: str) -> tuple[str, ...]:
    """See `parquet_files.class_names`."""
    require_file(path)
    return parquet_files.class_names(path, column)


def rows(
    path: str,
    columns: Mapping[str, str] | None = None,
    optional: Collection[str] = (),
    layout: Layout = DEFAULT_LAYOUT,
    names_classes: bool = True,
) -> Iterator[Row]:
    """Yields the rows of a file.
    `columns`: maps the names that cells get to columns of the file, by name or, in tables, by number from 0; None for
      all columns under their own names.
    `optional`: the keys of `columns` that a row may lack.
    `names_classes`: see `parquet_files.rows`."""
    format = layout.format or format_of(path)
    if format in OF_OBJECTS:
        objects = _objects(path, names_classes)
        numbered = ((line, _selected(f"{path}, line {line}", row, columns, optional)) for line, row in objects)
    else:
        numbered = delimited.read(path, dataclasses.replace(layout, format=format), columns, optional)
    return ((f"{path}, line {line}", cells) for line, cells in numbered)


def _selected(
    place: str, row: Mapping[str, Any], columns: Mapping[str, str] | None, optional: Collection[str]
) -> Mapping[str, Any]:
    if columns is None:
        return row
    for name, column in columns.items():
        if column not in row and name not in optional:
            have = ", ".join(row) or "none"
            raise InputError(f"{place}: there is no field {column!r}; the line has {have}")
    return {name: row[column] for name, column in columns.items() if column in row}


def _objects(path: str, names_classes: bool) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the number of each line or row of a file, counted from 1, and its object; skips blank lines."""
    require_file(path)
    if path.lower().endswith(EXTENSIONS["parquet"]):
        yield from parquet_files.rows(path, names_classes)
        return
    for number, line in enumerate(_json_lines(path), 1):
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


def _json_lines(path: str) -> Iterator[str]:
    """Yields the objects of a file as JSON. A file that is one JSON value holds a list of objects, or a table in one of
    the forms in which pandas writes it."""
    lines = decoded_lines(path)
    head = list(itertools.islice(lines, 2))
    lines, first = itertools.chain(head, lines), "".join(head[:1]).strip()
    if first.startswith("[") or (path.lower().endswith(".json") and (first == "{" or len(head) == 1)):
        yield from map(json.dumps, table_in(json_of(path, lines, _REMEDY)))
    else:
        yield from lines


def table_in(value: Any) -> list[Any]:
    """Returns the rows of a table that pandas wrote as JSON, with any `orient`; a list with any other value."""
    match value:
        case [*rows]:
            return rows
        case {"columns": [*names], "data": [*rows]}:
            return [dict(zip(names, row, strict=True)) for row in rows]
        case {"schema": _, "data": [*rows]}:
            return rows
    cells = list(value.values()) if isinstance(value, dict) else []
    if not cells or not all(isinstance(cell, dict) and cell.keys() == cells[0].keys() for cell in cells):
        return [value]
    return cells if "0" in value else [{name: value[name][number] for name in value} for number in cells[0]]
