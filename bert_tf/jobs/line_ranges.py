"""Divides the lines of text files among the tasks of a job. The ranges depend only on the files and their number."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.core.file_signatures import why_no_text

_BLOCK_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a file, without its newline."""

    index: int  # index of the line among the lines of all files
    path: str
    number: int  # number of the line in its file, counted from 1
    raw: bytes

    @property
    def where(self) -> str:
        """The place of the line, for messages."""
        return f"{self.path}, line {self.number}"


@dataclasses.dataclass(frozen=True)
class LineRange:
    """Consecutive lines of files."""

    first_line: int  # index of the first line among the lines of all files
    lines: int  # number of lines
    # for each file of the range: its path, the byte offset and the index in the file of the first line, and the number
    # of lines
    pieces: tuple[tuple[str, int, int, int], ...]


def plan_ranges(files: Sequence[str], count: int) -> list[LineRange]:
    """Divides the lines of files into `count` ranges of about the same number of lines."""
    scans = [_Scan(path) for path in files]
    if not any(scan.has_text for scan in scans):
        raise InputError(f"--input_file: {', '.join(files[:3])}: contains no text; give a file with one text per line")
    starts = np.cumsum([0, *(scan.lines for scan in scans)]).tolist()
    if starts[-1] < count:
        raise InputError(
            f"--output_file names {count} shards, but the input has {starts[-1]} lines; give at most {starts[-1]}"
        )
    ranges = []
    for number in range(count):
        first, end = (starts[-1] * edge // count for edge in (number, number + 1))
        pieces = []
        for scan, start in zip(scans, starts, strict=False):
            inside = max(first - start, 0), min(end - start, scan.lines)
            if inside[0] < inside[1]:
                pieces.append((scan.path, scan.offset(inside[0]), inside[0], inside[1] - inside[0]))
        ranges.append(LineRange(first, end - first, tuple(pieces)))
    return ranges


def read_lines(source: LineRange) -> Iterator[Line]:
    """Yields the lines of a range."""
    index = source.first_line
    for path, offset, first, count in source.pieces:
        with tf.io.gfile.GFile(path, "rb") as file:
            file.seek(offset)
            for number in range(first + 1, first + 1 + count):
                yield Line(index, path, number, file.readline().removesuffix(b"\n"))
                index += 1


class _Scan:
    """Counts the lines of a file; finds the offset of a line without a list of all lines.
    `lines`: number of lines.
    `has_text`: whether the file contains more than white space."""

    def __init__(self, path: str):
        self.path, self.has_text = path, False
        ends, last = [0], b"\n"  # number of newlines before each block
        with tf.io.gfile.GFile(path, "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                what = why_no_text(block) if len(ends) == 1 else ""
                if what or b"\0" in block[:4096]:
                    raise InputError(f"--input_file: {path}: {what or 'is not UTF-8 text; save it as UTF-8'}")
                ends.append(ends[-1] + block.count(b"\n"))
                self.has_text, last = self.has_text or bool(block.strip()), block[-1:]
        self._ends, self.lines = ends, ends[-1] + (last != b"\n")

    def offset(self, line: int) -> int:
        """Returns the byte offset of a line, which is counted from 0."""
        if not line:
            return 0
        block = int(np.searchsorted(self._ends, line)) - 1
        with tf.io.gfile.GFile(self.path, "rb") as file:
            file.seek(block * _BLOCK_BYTES)
            newlines = np.flatnonzero(np.frombuffer(file.read(_BLOCK_BYTES), np.uint8) == ord("\n"))
        return block * _BLOCK_BYTES + int(newlines[line - self._ends[block] - 1]) + 1
