"""Reads the rows of tables in memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.core.errors import InputError


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


def class_names(table: Any, column: Any) -> tuple[str, ...]:
    """Returns the names of the classes that a Dataset of the library datasets states for a column; () if none. `column`
    is the column, or its name in `table`."""
    if not isinstance(column, str):
        table, column = getattr(column, "source", None), getattr(column, "column_name", None)
    feature = (getattr(table, "features", None) or {}).get(column)
    return tuple(getattr(getattr(feature, "feature", feature), "names", ()))  # the names of one class or of a list


def with_class_names(cell: Any, names: Sequence[str]) -> Any:
    """Replaces the number of a class, also in lists, by the name of the class."""
    if isinstance(cell, list):
        return [with_class_names(one, names) for one in cell]
    return names[cell] if cell in range(len(names)) else cell  # -1 means no label
