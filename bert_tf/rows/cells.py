"""Converts and checks the cells of a row by the type that an example needs: text, number, label or set of labels."""

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.core.errors import InputError
from bert_tf.core.json_lines import meaning, without_surrogates
from bert_tf.rows.delimited import TextCells

# NumPy writes no commas between the elements of a list.
_BETWEEN_STRINGS, _BETWEEN_NUMBERS = re.compile(r"(?<=['\"])\s+(?=['\"])"), re.compile(r"(?<=[\d.])\s+(?=[-\d])")
_UNREADABLE_LIST = re.compile(r"\[[^\[\]]*[\s,'\"][^\[\]]*\]")
_WHOLE_FLOAT = re.compile(r"\A(-?\d+)\.0+\Z")
_DECIMAL_COMMA = re.compile(r"\A\s*([+-]?\d+),(\d+)\s*\Z")


def is_missing(cell: Any) -> bool:
    """Returns whether a cell is null, pandas' NaN or NA, or a text without characters."""
    if isinstance(cell, str):
        return not cell.strip()
    return cell is None or type(cell).__name__ == "NAType" or (isinstance(cell, float) and math.isnan(cell))


def text(place: str, row: Mapping[str, Any], name: str) -> str:
    """Returns the text of a cell; "" if the cell is missing."""
    cell = row.get(name)
    if isinstance(cell, str):
        return without_surrogates(cell)
    if not is_missing(cell):
        raise InputError(f"{place}: the text is {meaning(cell)}, not a string; fix the line")
    return ""


def number(place: str, row: Mapping[str, Any], name: str) -> float:
    """Returns a finite number. In a file with semicolons between the columns, 1,5 is a number."""
    cell = row.get(name)
    if isinstance(cell, str):
        is_local = getattr(row, "has_decimal_comma", False)
        cell = (_DECIMAL_COMMA.sub(r"\1.\2", cell) if is_local else cell).replace("_", " ")  # float accepts 1_0
    if is_missing(cell):
        raise InputError(f"{place}: the {name} is empty; remove the line, or give it a number")
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{place}: the {name} {cell!r:.60} is not a number; fix or remove the line") from error
    if not math.isfinite(value):
        raise InputError(f"{place}: the {name} {cell!r:.60} is not a finite number; fix or remove the line")
    return value


def label(place: str, row: Mapping[str, Any], name: str) -> str:
    """Returns the name of a class; the cell is a string, a boolean or a number."""
    return label_text(place, row.get(name), isinstance(row, TextCells))


def label_text(place: str, cell: Any, is_untyped: bool = False) -> str:
    """Returns the text of a label without white space around it.
    `is_untyped`: whether each cell of the file is a string. Then 1.0 is the class 1, because pandas writes the integers
      of a column with missing values as floats."""
    if isinstance(cell, int):  # pandas too writes booleans into tables as True and False
        return str(cell)
    if isinstance(cell, float) and math.isinf(cell):  # for example 1e999
        raise InputError(f"{place}: the label is a number beyond float64; fix or remove the line")
    if is_missing(cell):
        raise InputError(f"{place}: the label is empty; remove the line, or give it a label")
    if isinstance(cell, float):
        return str(int(cell)) if cell == int(cell) and abs(cell) < 1e15 else repr(cell)
    if not isinstance(cell, str):
        remedy = "for several labels, give --multi_label" if isinstance(cell, list) else "fix or remove the line"
        raise InputError(f"{place}: the label is {meaning(cell)}; {remedy}")
    cell = cell.strip()
    if list_in(cell) is not None:
        raise InputError(f"{place}: the label is the list {cell}; for several labels, give --multi_label")
    if not cell.isprintable():
        strange = next(character for character in cell if not character.isprintable())
        character = f"U+{ord(strange):04X}, which is not printable"
        raise InputError(f"{place}: the label {cell!r} has the character {character}; rename the label")
    return _WHOLE_FLOAT.sub(r"\1", cell) if is_untyped else cell


def labels(place: str, row: Mapping[str, Any], name: str, separator: str) -> tuple[str, ...]:
    """Returns the labels in a cell, without repetitions. The cell may be empty, a list, or labels with separators
    between them."""
    cell, is_untyped = row.get(name), isinstance(row, TextCells)
    parts = cell
    if isinstance(cell, str):
        parts = list_in(cell)
        if parts is None and _UNREADABLE_LIST.fullmatch(cell.strip()):
            raise InputError(f"{place}: the list of labels {cell.strip()} cannot be read; write it as ['a', 'b']")
        if parts is None:
            parts = [part.strip() for part in cell.split(separator)] if cell.strip() else []
            if "" in parts:
                raise InputError(
                    f"{place}: one of the labels {cell.strip()!r} is empty; remove a separator "
                    f"({separator!r}), or give another --label_separator"
                )
    if not isinstance(parts, list):
        raise InputError(f"{place}: the labels are {meaning(cell)}; give a list of strings, or [] for no label")
    names = tuple(label_text(place, part, is_untyped) for part in parts)
    words = " ".join(names).split()
    if {*words} <= {"0", "1"} and len({*words}) < len(words):
        raise InputError(
            f"{place}: the labels are {cell!r}, which are 0 or 1 for each label; write the names of the "
            "labels that apply"
        )
    return tuple(dict.fromkeys(names))


def marked_labels(place: str, row: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns that mark a label with 1 or true."""
    marks = {name: label(place, row, name).lower() for name in columns}
    for name, mark in marks.items():
        if mark not in ("0", "1", "false", "true"):
            raise InputError(f"{place}: {name} is {mark!r}, but with several columns of labels, a cell is 0 or 1")
    return tuple(name for name, mark in marks.items() if mark in ("1", "true"))


def items(row: Mapping[str, Any], name: str) -> Any:
    """Returns a cell that may hold a list, which pandas writes into tables as text."""
    cell = row.get(name)
    parts = list_in(cell) if isinstance(row, TextCells) and isinstance(cell, str) else None
    return cell if parts is None else parts


def list_in(cell: str) -> list | None:
    """Returns the list in a cell that JSON, Python, pandas or NumPy wrote; None for other cells."""
    content = cell.strip()
    if content == "set()":
        return []
    if not content or content[0] + content[-1] not in ("[]", "()", "{}"):
        return None
    for parse in (json.loads, _literal):
        try:
            value = parse(content)
        except (ValueError, SyntaxError):
            continue
        if isinstance(value, (list, tuple, set)):
            return sorted(value) if isinstance(value, set) else list(value)
    return None


def _literal(content: str) -> Any:
    between = _BETWEEN_STRINGS if re.search("['\"]", content) else _BETWEEN_NUMBERS
    return ast.literal_eval(between.sub(", ", content))
