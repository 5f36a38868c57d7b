"""Reads texts from JSON Lines, and from lines that contain one text, or two texts as `a ||| b`."""

import dataclasses
import re
from collections.abc import Iterator

from bert_tf.core import json_lines
from bert_tf.core.errors import InputError
from bert_tf.jobs.line_ranges import LineRange, read_lines
from bert_tf.settings.features import FeaturesSettings

# As in the original, the last separator splits the line.
_PAIR = re.compile(r"(.*) \|\|\| (.*)", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Text:
    """One or two texts from one line."""

    line: int  # index of the line among the lines of all input files
    segments: tuple[str, ...]
    starts: tuple[int, ...]  # for each segment, the index of its first character in the line or field
    id: str | int | None = None  # the id for the output; None if the text has no id
    is_damaged: bool = False  # whether bytes that are not UTF-8 were dropped


def read_texts(source: LineRange, settings: FeaturesSettings) -> Iterator[Text]:
    """Yields the texts of a source. An empty line is an empty text; in JSON Lines, empty lines are skipped."""
    for line in read_lines(source):
        content = line.raw.decode("utf-8", "ignore")
        is_damaged = len(content.encode()) != len(line.raw)
        if settings.input_format == "lines":
            yield dataclasses.replace(text_of_line(content, line.index), is_damaged=is_damaged)
        elif content.strip("\ufeff \t\r\n"):
            text = _text_of_json(content, line.index, line.where, settings)
            yield dataclasses.replace(text, is_damaged=is_damaged)


def text_of_line(content: str, line: int) -> Text:
    """Strips a line; returns the text of the line, or the two texts around ` ||| `."""
    stripped = content.strip()
    start = len(content) - len(content.lstrip()) if stripped else 0
    if match := _PAIR.fullmatch(stripped):
        return Text(line, match.groups(), (start, start + match.start(2)))
    return Text(line, (stripped,), (start,))


def _text_of_json(content: str, line: int, where: str, settings: FeaturesSettings) -> Text:
    names = {"text_field": settings.text_field, "text_b_field": settings.text_b_field}
    try:
        record = json_lines.parse(content)
        segments = tuple(_string(record, name, flag) for flag, name in names.items() if name)
        return Text(line, segments, (0,) * len(segments), _id(record, settings.id_field))
    except json_lines.LineError as error:
        raise InputError(f"{where}: {error}") from error


def _string(record: dict, names: str, flag: str) -> str:
    several, values = names.split(","), []
    # of several fields, some may be missing or null, such as the titles of a collection
    for name in [name for name in several if record.get(name) is not None] or several[:1]:
        value = json_lines.field(record, name, flag)
        if not isinstance(value, str):
            raise json_lines.LineError(f"the field {name!r} must be a string; fix the line")
        values.append(json_lines.without_surrogates(value))
    return " ".join(values).strip() if len(several) > 1 else values[0]


def _id(record: dict, name: str) -> str | int | None:
    value = json_lines.field(record, name, "id_field") if name else None
    if isinstance(value, bool) or (name and not isinstance(value, str | int)):
        raise json_lines.LineError(f"the field {name!r} must be a string or a whole number; fix the line")
    return value
