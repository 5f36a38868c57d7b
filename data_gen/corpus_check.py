"""Checks, before long work starts, that the beginning of each file of a corpus is text in the given format."""

import re
from collections.abc import Iterator, Sequence

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.core.file_signatures import why_no_text
from data_gen.compressed import open_binary
from data_gen.documents import without_tag_lines

_SAMPLE_BYTES = 1 << 15
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_JSON_LINE = re.compile(r'\{\s*"')
# If the lines have more characters than this on average, most sentences do not fit into a row.
_LONG_LINE = 1000
_NOT_UTF8 = (
    "has bytes that are not UTF-8 and are dropped; convert it, for example from Latin-1: iconv -f LATIN1 -t UTF-8"
)


def check_corpus(files: Sequence[str], input_format: str, sentences: bool = True) -> None:
    """Refuses files that are not text, and warns of files that look like another format.
    `input_format`: a value of --input_format.
    `sentences`: whether the caller needs the ends of sentences. If so, this function also warns about very long lines.
    """
    if input_format == "parquet":
        return  # the reader refuses other files
    doubtful: dict[str, list[str]] = {}
    for path in files:
        with open_binary(path) as file:
            start = file.read(_SAMPLE_BYTES)
        _refuse_binary(path, start)
        for doubt in _doubts(start, input_format, sentences):
            doubtful.setdefault(doubt, []).append(path)
    for doubt, paths in doubtful.items():
        others = f" (other files like this: {len(paths) - 1})" if paths[1:] else ""
        logging.warning("--input_file: %s %s%s", paths[0], doubt, others)


def _refuse_binary(path: str, start: bytes) -> None:
    if reason := why_no_text(start):
        raise InputError(f"{path}: {reason}")
    # Web text often contains a few stray control characters.
    if len(_CONTROL.findall(start)) > max(10, len(start) // 100):
        if start.count(0) > len(start) // 5:
            raise InputError(
                f"{path}: is binary data or UTF-16; if it is UTF-16, convert it: iconv -f UTF-16LE -t UTF-8"
            )
        raise InputError(f"{path}: is binary data, not text; check --input_file")


def _doubts(start: bytes, input_format: str, sentences: bool) -> Iterator[str]:
    text = without_tag_lines(start).decode("utf-8", "ignore").lstrip("\ufeff")
    if not text.strip() and len(start) < _SAMPLE_BYTES:
        yield "contains no text"
        return
    lost = len(start) - len(start.decode("utf-8", "ignore").encode())
    if len(start) == _SAMPLE_BYTES:
        lost -= 3  # the sample may end within a character
    if lost * 10_000 > len(start):
        yield _NOT_UTF8
    if input_format not in ("lines", "documents"):
        return
    if "\n" not in text and text.count("\r") > 5:
        yield r"has only carriage returns as line ends; convert them: tr '\r' '\n'"
        return
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not lines:  # a long beginning without text
        return
    tagged = sum(line.startswith("<") and line.endswith(">") for line in lines)
    if lines[0].startswith(("<?xml", "<!DOCTYPE", "<html")) or tagged > len(lines) / 2:
        yield (
            "looks like XML or HTML, whose tags are read as text; extract its text, or for a MediaWiki dump give "
            "--input_format=wikipedia"
        )
    elif sum(map(bool, map(_JSON_LINE.match, lines))) > len(lines) / 2:
        yield "looks like JSON Lines, whose keys are read as text; give --input_format=jsonl"
    elif re.match(r'\[\s*[{"]', text.lstrip()):
        yield "looks like JSON; write one object per line and give --input_format=jsonl"
    elif sentences and input_format == "lines" and sum(map(len, lines)) > _LONG_LINE * len(lines):
        yield (
            f"has lines of more than {_LONG_LINE} characters on average, but each line must be one sentence; if each "
            "line is a document, give --input_format=documents"
        )
