"""Converts one line of a JSON Lines file into the sentences of a document."""

import json

from data_gen.sentences import split_sentences


class LineError(ValueError):
    """A line that is not a document; the message states the reason, and the caller adds file and line."""


def document(line: bytes, text_field: str) -> list[str]:
    """Returns the sentences of one JSON line.

    Args:
        line: bytes, UTF-8, with or without its line end. Invalid bytes are dropped, as in the original; a byte
            order mark is skipped.
        text_field: str, the name of the field with the text: a string or a list of strings. In a string, line ends
            separate paragraphs. In a list, each string is a sentence or a paragraph. No sentence spans two paragraphs
            or two strings of a list.

    Returns:
        list of str, the sentences; empty for an empty line.

    Raises:
        LineError: The line is not a JSON object, or the field does not contain text.
        InputError: The library that splits text into sentences is not installed.
    """
    content = line.decode("utf-8", errors="ignore").removeprefix("\ufeff").strip()
    if not content:
        return []
    try:
        record = json.loads(content)
    except json.JSONDecodeError as error:
        raise LineError(
            f"not JSON: {error.msg} at character {error.pos + 1}; fix the line, or check --input_format"
        ) from error
    except (RecursionError, ValueError) as error:  # nesting is too deep, or an integer has too many digits
        raise LineError(f"JSON that cannot be read: {error}") from error
    if not isinstance(record, dict):
        raise LineError(f"expected a JSON object with the field {text_field!r}, found {_kind(record)}")
    if text_field not in record:
        found = ", ".join(map(repr, list(record)[:10])) or "none"
        raise LineError(f"no field {text_field!r}; give one of the line's fields as --text_field: {found}")
    text = record[text_field]
    if isinstance(text, str):
        paragraphs = text.splitlines()
    elif isinstance(text, list):
        wrong = next((item for item in text if not isinstance(item, str)), None)
        if wrong is not None or None in text:
            raise LineError(f"field {text_field!r} must be a list of strings, found {_kind(wrong)} in it")
        paragraphs = text
    else:
        raise LineError(f"field {text_field!r} must be a string or a list of strings, found {_kind(text)}")
    return [sentence for paragraph in paragraphs for sentence in split_sentences(_without_surrogates(paragraph))]


def _without_surrogates(text: str) -> str:
    """Drops lone surrogates: JSON can escape a lone surrogate, but UTF-8 cannot encode it."""
    return text.encode("utf-8", errors="ignore").decode("utf-8")


def _kind(value: object) -> str:
    """Returns the JSON name of a value's type."""
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
