"""Reads text files line by line."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.core.file_signatures import why_no_text

_BLOCK = 1 << 22


def require_file(path: str) -> None:
    """Raises InputError if the file does not exist or is a folder."""
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path}: no such file; check its path")
    if tf.io.gfile.isdir(path):
        raise InputError(f"{path}: is a folder, not a file; check its path")


def decoded_lines(path: str) -> Iterator[str]:
    """Yields the lines of a file without their newlines."""
    require_file(path)
    for number, line in enumerate(_lines(path), 1):
        if number == 1:
            if what := why_no_text(line):
                raise InputError(f"{path}: {what}")
            if b"\r" in line.rstrip(b"\r"):
                raise InputError(f"{path}, line 1: has CR inside the line; save the file with LF or CRLF as line ends")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            reason = f"not UTF-8 (byte {error.start + 1:,}, {error.reason}); save the file as UTF-8"
            raise InputError(f"{path}, line {number}: {reason}") from error


def json_of(path: str, lines: Iterable[str], remedy: str) -> Any:
    """Returns the value in the lines of a JSON file; `remedy` tells what to give instead of a file that is not JSON."""
    try:
        return json.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON ({error}); {remedy}") from error


def _lines(path: str) -> Iterator[bytes]:
    """Yields the lines of a file; reads the file in blocks. Reading the whole file at once would take several times the
    file's size in memory. `readline` would take three times as long."""
    rest = b""
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(_BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            yield from lines
    if rest:
        yield rest
