"""Reads examples with one or two texts from tab-separated files in GLUE's format."""

import dataclasses
import itertools
from collections.abc import Sequence

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.tasks import tables
from bert_tf.tasks.classification.example import Example


@dataclasses.dataclass(frozen=True)
class ColumnNames:
    """The columns of a file. A column is given by its name in the header, or by its number counted from 0."""

    text_a: str
    text_b: str | None = None  # column of the second text; None if absent
    label: str | None = None  # column of the label; None in test files
    has_header: bool = True  # whether the first line contains the names of the columns


def read_examples(
    path: str, columns: ColumnNames, *, id_column: str | None = None, skip_incomplete: bool = False
) -> list[Example]:
    """Reads a tab-separated file; double quotes are part of the text, as in GLUE's files.
    `id_column`: name of the column with the value of `Example.id`; the file may lack this column. None if there are no
      ids.
    `skip_incomplete`: whether lines that lack cells or a label are skipped with a warning; if false, they are refused.
    """
    rows = tables.plain_rows(tables.decoded_lines(path))
    first = next(rows, None)
    examples, skipped = [], []
    if first is not None:
        header = first[1]
        ids = id_column if id_column in header else None
        names = (columns.text_a, columns.text_b, columns.label, ids)
        wanted = tuple(
            None if name is None else tables.column_index(path, name, header, columns.has_header) for name in names
        )
        for line, row in rows if columns.has_header else itertools.chain([first], rows):
            try:
                examples.append(_example(path, line, row, len(header), wanted))
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
    return examples


def _example(path: str, line: int, row: Sequence[str], width: int, wanted: Sequence[int | None]) -> Example:
    tables.check_width(path, line, row, width)
    a, b, label, ids = wanted
    text, place = None if label is None else row[label].strip(), f"{path}, line {line}"
    if text == "":
        raise InputError(f"{place}: the label is empty; remove the line, or give it a label")
    second, id = (None if column is None else row[column] for column in (b, ids))
    return Example(row[a], second, text, id or None, place=place)
