"""Parses a line of a JSON Lines file, which has one JSON object per line."""

import json
from typing import Any

_MEANING = {
    dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number",
    type(None): "null",
}  # fmt: skip


class LineError(ValueError):
    """A line without the expected content; the message states the reason, and the caller adds file and line."""


def parse(line: str) -> dict[str, Any]:
    """Returns the object of a line; raises LineError if the line is not a JSON object."""
    try:
        record = json.loads(line.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
        raise LineError(f"is not JSON ({reason}); write one object per line, or check the format") from error
    if not isinstance(record, dict):
        raise LineError(
            f"is {meaning(record)}, not an object; write one object per line (`jq -c '.[]' FILE` converts a list)"
        )
    return record


def field(record: dict[str, Any], name: str, flag: str) -> Any:
    """Returns the value of a field that a flag names; raises LineError if there is no such field."""
    if name not in record:
        names = ", ".join(map(repr, list(record)[:10])) or "none"
        raise LineError(f"no field {name!r}; give one of its fields as --{flag}: {names}")
    return record[name]


def without_surrogates(text: str) -> str:
    """Drops lone surrogates: JSON can escape a lone surrogate, but UTF-8 cannot encode it."""
    return text if text.isascii() else text.encode("utf-8", "ignore").decode("utf-8")


def meaning(value: Any) -> str:
    """Returns the name of the type of a value in JSON or Parquet, for messages."""
    return _MEANING.get(type(value), f"of the type {type(value).__name__}")
