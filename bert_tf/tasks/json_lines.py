"""Reads JSON Lines files, which have one JSON object per line."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bert_tf.core.errors import InputError

_MEANING = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}


def read_objects(path: str, lines: Iterable[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the number of each line, counted from 1, and the line's object; skips blank lines."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, _parse(f"{path}, line {number}", line)


def meaning(value: Any) -> str:
    """Returns the name of a JSON value's type, for messages."""
    return _MEANING.get(type(value), "null")


def _parse(place: str, line: str) -> Mapping[str, Any]:
    try:
        entries = json.loads(line)
        if "\\u" in line:
            json.dumps(entries, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{place}: has half of a surrogate pair, which is not a character; fix the text") from error
    except ValueError as error:
        raise InputError(f"{place}: is not JSON ({error}); write one object per line") from error
    if not isinstance(entries, dict):
        raise InputError(
            f"{place}: is {meaning(entries)}, not an object; write one object per line (`jq -c '.[]' FILE` converts a "
            "list)"
        )
    return entries
