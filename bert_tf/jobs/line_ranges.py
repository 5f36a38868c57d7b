"""Cuts text files into sources; a source is a range of lines that one task reads.

The cuts depend only on the files and the number of shards, so the sources are the same in every run and for any number
of workers.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.core.errors import InputError

_BLOCK_BYTES = 1 << 20
# A line may have at most this many bytes, because a whole line must fit into memory.
_LONGEST_LINE = 16 << 20
# If possible, a source has from `_LEAST_LINES` to `_MOST_LINES` lines, and there are about `_SOURCES` sources.
_LEAST_LINES, _MOST_LINES, _SOURCES = 64, 4096, 1024


@dataclasses.dataclass(frozen=True)
class LineRange:
    """A range of lines of a file.

    Attributes:
      lines: number of lines.
      first_line: index of the first line among the lines of all files.
      first_in_file: index of the first line in the file.
    """

    path: str
    start: int
    end: int
    lines: int
    first_line: int
    first_in_file: int


def plan_sources(files: Sequence[str], shards: int) -> list[LineRange]:
    """Cuts files into at least as many sources as there are shards."""
    lines_each = 1 if shards > 1 else _LEAST_LINES
    cuts = [_Cuts(path, lines_each, 4 * max(_SOURCES, shards)) for path in files]
    total = sum(cut.lines for cut in cuts)
    if not any(cut.has_text for cut in cuts):
        raise InputError(f"--input_file: {', '.join(files[:3])}: contains no text; give a file with one text per line")
    if total < shards:
        raise InputError(f"--output_file names {shards} shards, but the input has {total} lines; give at most {total}")
    wanted = min(max(_LEAST_LINES, total // _SOURCES), _MOST_LINES, max(1, total // shards))
    return list(_sources(cuts, wanted))


def read_lines(source: LineRange) -> Iterator[bytes]:
    """Yields the lines of a source without their newlines."""
    with tf.io.gfile.GFile(source.path, "rb") as file:
        file.seek(source.start)
        for _ in range(source.lines):
            yield file.readline().removesuffix(b"\n")


def _sources(cuts: Sequence["_Cuts"], wanted: int) -> Iterator[LineRange]:
    first_line = 0
    for cut in cuts:
        edges = cut.edges(wanted)
        for (line, start), (next_line, end) in itertools.pairwise(edges):
            yield LineRange(cut.path, start, end, next_line - line, first_line + line, line)
        first_line += cut.lines


class _Cuts:
    """The cuts of a file: the byte offsets at which some of its lines start.

    Args:
      lines_each: initial number of lines between two cuts.
      most: maximum number of cuts. If there are more, every second cut is dropped, unless the cuts are already
        `_MOST_LINES` lines apart.

    Attributes:
      lines: number of lines.
      has_text: whether the file contains more than white space.
    """

    def __init__(self, path: str, lines_each: int, most: int):
        self.path, self.lines, self._most, self.has_text = path, 0, most, False
        self._each, self._starts = lines_each, [0]
        self._size = begins = 0
        with tf.io.gfile.GFile(path, "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                if not self._size:
                    _refuse_other_formats(path, block)
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1 + self._size
                self._size += len(block)
                self.has_text = self.has_text or bool(block.strip())
                self._check_lengths(begins, ends)
                self._add(ends)
                begins = int(ends[-1]) if len(ends) else begins
        if begins < self._size:  # the last line has no newline
            self.lines += 1

    def _add(self, ends: np.ndarray) -> None:
        """Counts lines and adds cuts, given the byte offsets at which the lines end."""
        numbers = np.arange(self.lines + 1, self.lines + 1 + len(ends))  # numbers of the lines that begin at `ends`
        self._starts += ends[numbers % self._each == 0].tolist()
        self.lines += len(ends)
        while len(self._starts) > self._most and self._each < _MOST_LINES:
            self._each *= 2
            self._starts = self._starts[::2]

    def _check_lengths(self, begins: int, ends: np.ndarray) -> None:
        edges = np.concatenate([[begins], ends, [self._size]])
        longest = int(np.argmax(np.diff(edges)))
        if edges[longest + 1] - edges[longest] > _LONGEST_LINE:
            raise InputError(
                f"{self.path}, line {self.lines + longest + 1}: is longer than {_LONGEST_LINE >> 20} MiB; put each "
                "text on a separate line"
            )

    def edges(self, wanted: int) -> list[tuple[int, int]]:
        """Returns (line number, byte offset) of cuts about `wanted` lines apart, and of the end of the file."""
        step = max(1, wanted // self._each)
        cuts = [(number * self._each, start) for number, start in enumerate(self._starts)][::step]
        return [*(cut for cut in cuts if cut[0] < self.lines), (self.lines, self._size)]


def _refuse_other_formats(path: str, block: bytes) -> None:
    if b"\0" in block[:4096] or block.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ")):
        raise InputError(f"--input_file: {path}: is compressed, or is not UTF-8 text; save it as plain UTF-8 text")
