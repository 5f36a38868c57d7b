"""Opens Parquet files, and reads their rows; needs PyArrow."""

import contextlib
import decimal
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.core.errors import InputError, unreadable


@contextlib.contextmanager
def opened(path: str) -> Iterator:
    """Provides a `pyarrow.parquet.ParquetFile`.
    Raises InputError: PyArrow is not installed, or the file is damaged."""
    import tensorflow as tf

    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise InputError(f"{path}: a Parquet file needs PyArrow: pip install '.[parquet]'") from error
    with unreadable(path), tf.io.gfile.GFile(path, "rb") as file:
        file.closed = False  # PyArrow needs this attribute
        try:
            yield parquet.ParquetFile(file)
        except ArrowException as error:
            raise InputError(f"{path}: is not a Parquet file, or is damaged ({str(error).splitlines()[0]})") from error


def rows(path: str, names_classes: bool = True) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the number of each row, counted from 1, and its cells by the names of the columns.
    `names_classes`: whether cells with classes contain the names of the classes. The library datasets stores classes as
      numbers, and their names beside the data. The number -1 means that the class is unknown, and becomes None."""
    with opened(path) as file:
        classes = _stated_classes(file)
        if not names_classes:
            classes = {name: range(len(names)) for name, names in classes.items() if names}
        batches = (batch.to_pylist() for batch in file.iter_batches())
        for number, row in enumerate(itertools.chain.from_iterable(batches), 1):
            yield number, {name: _named(cell, classes.get(name)) for name, cell in row.items()}


def class_names(path: str, column: str) -> tuple[str, ...]:
    """Returns the names of the classes that a file states for a column; () for other columns and other files."""
    if not path.lower().endswith(".parquet"):
        return ()
    with opened(path) as file:
        return tuple(_stated_classes(file).get(column) or ())


def _stated_classes(file) -> dict[str, Sequence[str] | None]:
    described = json.loads((file.schema_arrow.metadata or {}).get(b"huggingface", "{}"))
    return {name: _classes(feature) for name, feature in described.get("info", {}).get("features", {}).items()}


def _classes(feature: Any) -> Sequence[str] | None:
    """Returns the names of the classes in a column of classes, or of lists of classes; None for other columns."""
    inner = feature.get("feature", feature) if isinstance(feature, Mapping) else feature
    return inner.get("names") if isinstance(inner, Mapping) and inner.get("_type") == "ClassLabel" else None


def _named(cell: Any, names: Sequence[str] | Sequence[int] | None) -> Any:
    if names is None or cell is None:
        return float(cell) if isinstance(cell, decimal.Decimal) else cell  # databases write numbers as decimals
    if isinstance(cell, list):
        return [_named(each, names) for each in cell]
    return names[cell] if cell >= 0 else None
