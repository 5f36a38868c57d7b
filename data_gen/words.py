"""Counts the words of a corpus, as the tokenizer splits them, in bounded memory.

The counts are exact while the corpus has no more different words than the limit. Beyond the limit, the rarest words
are dropped, and counted from zero if they occur again (lossy counting). A count can then be too low, by at most
`WordCounts.largest_error`, but never too high.
"""

import dataclasses
import io
import itertools
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import tensorflow as tf

from bert_tf.core.progress_bar import ProgressBar
from bert_tf.text.word_splitting import TOO_LONG, WordSplitter
from data_gen.compressed import is_compressed, open_binary
from data_gen.documents import plan_sources, read_documents, without_tag_lines

# Number of bytes of text that are split into words in one call.
_BLOCK = 1 << 18
# Noisy web text has long words, so the total size of the words in memory is limited too, to `max_words` times this
# number of bytes.
_BYTES_PER_WORD = 24


@dataclasses.dataclass(frozen=True)
class WordCounts:
    """Word counts, and the effect of the limit on the number of different words."""

    counts: dict[str, int]  # number of occurrences of each word
    dropped_words: int  # number of rare words dropped; a word dropped twice counts twice
    dropped_occurrences: int  # number of occurrences of the dropped words
    largest_error: int  # upper bound of the error of a count; 0 if no word was dropped


def count_words(
    files: Sequence[str],
    do_lower_case: bool,
    max_words: int,
    input_format: str = "lines",
    text_field: str = "text",
    strip_accents: bool | None = None,
) -> WordCounts:
    """Counts words as the tokenizer splits them: normalized, split at spaces and punctuation.
    `files`: paths of text files, compressed or not (see `compressed.open_binary`).
    `max_words`: maximum number of different words in memory, about 150 bytes each.
    `input_format`: a value of --input_format.
    `text_field`: a value of --text_field.
    `strip_accents`: whether to strip accents; None for the same as `do_lower_case`.
    Returns the counts, which are deterministic. If no word was dropped, the counts do not depend on the order of the
    lines."""
    split = WordSplitter(do_lower_case, do_lower_case if strip_accents is None else strip_accents)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def unique_words(lines):
        words, _, counts = tf.unique_with_counts(split(lines).values)
        return words, counts

    is_counted = input_format != "parquet" and not any(map(is_compressed, files))
    sizes = sum(tf.io.gfile.stat(path).length for path in files) if is_counted else None
    total = _BoundedCounter(max_words)
    with ProgressBar("counting words", sizes, "B") as progress:
        for path in files:
            for block, size in _blocks(path, input_format, text_field):
                words, counts = unique_words(tf.constant(block.split(b"\n")))
                total.add(words.numpy().tolist(), counts.numpy().tolist())
                progress.update(size)
    return total.result()


def _blocks(path: str, input_format: str, text_field: str) -> Iterator[tuple[bytes, int]]:
    """Yields blocks of a file's lines, and for each block the number of bytes by which the progress bar advances."""
    if input_format in ("lines", "documents"):
        # Word counts ignore document boundaries, so these formats need no limit on the length of a document.
        with open_binary(path) as file:
            yield from ((without_tag_lines(block), len(block)) for block in read_blocks(file))
        return
    for source in plan_sources(path, input_format):
        for documents in read_documents(source, input_format, text_field):
            text = "".join(f"{sentence}\n" for document in documents for sentence in document).encode()
            size = len(text) if is_compressed(path) or input_format == "parquet" else source.end - source.start
            for block in read_blocks(io.BytesIO(text)):
                yield block, size * len(block) // len(text)


def read_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yields a text in blocks of bounded size, split at line ends where possible. A line longer than a block is split
    at a space, or between two characters if the block has no space. A block without a space is usually one word that is
    too long for the tokenizer, or its script has no spaces and each character is a word. So the split hardly changes
    the counts."""
    rest = b""
    while block := file.read(_BLOCK):
        block = rest + block
        end = block.rfind(b"\n") + 1 or block.rfind(b" ") + 1
        if not end and len(block) >= _BLOCK:
            end = _start_of_last_character(block)
        rest = block[end:]
        if end:
            yield block[:end]
    if rest:
        yield rest


def _start_of_last_character(block: bytes) -> int:
    # A UTF-8 character has at most three continuation bytes.
    starts = (i for i in range(len(block) - 1, max(len(block) - 5, -1), -1) if block[i] & 0xC0 != 0x80)
    return next(starts, len(block))


class _BoundedCounter:
    """Counts words and drops the rarer half whenever the words exceed the limits."""

    def __init__(self, max_words: int):
        self._max_words, self._max_bytes = max_words, _BYTES_PER_WORD * max_words
        # Bytes take less memory than str for short words and need no decoding.
        self._counts: dict[bytes, int] = {}
        self._bytes = 0
        self._dropped_words = self._dropped_occurrences = self._largest_error = 0

    def add(self, words: Sequence[bytes], counts: Sequence[int]) -> None:
        total = self._counts
        before = len(total)
        for word, count in zip(words, counts, strict=True):
            total[word] = total.get(word, 0) + count
        if len(total) > before:  # a dict keeps insertion order, so new words are last
            self._bytes += sum(map(len, itertools.islice(reversed(total), len(total) - before)))
            if len(total) > self._max_words or self._bytes > self._max_bytes:
                self._drop_rarest()

    def result(self) -> WordCounts:
        self._counts.pop(chr(TOO_LONG).encode(), None)  # drops the common entry of all too long words
        # Move words one by one, so that they are not all in memory twice.
        words = list(self._counts)
        counts = {word.decode("utf-8"): self._counts.pop(word) for word in words}
        return WordCounts(counts, self._dropped_words, self._dropped_occurrences, self._largest_error)

    def _drop_rarest(self) -> None:
        """Keeps the most frequent words, up to half of the limits. Of equally frequent words, the newest are kept."""
        # Of equally frequent words, an older word took longer to reach its count.
        order = list(reversed(self._counts))
        order.sort(key=self._counts.__getitem__, reverse=True)
        ends = np.cumsum([len(word) for word in order])
        dropped = order[min(self._max_words // 2, int(np.searchsorted(ends, self._max_bytes // 2, side="right"))) :]
        self._largest_error += self._counts[dropped[0]]
        self._dropped_words += len(dropped)
        self._dropped_occurrences += sum(map(self._counts.pop, dropped))
        self._bytes -= sum(map(len, dropped))
