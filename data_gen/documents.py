"""Reads a corpus as a stream of documents; each document is a list of sentences.

A plain file is split into byte ranges that end at document boundaries. Many workers can then read one file, and
no worker holds a whole file in memory. A compressed file does not support random access: it forms a single range,
which is read as a stream and split into chunks on the fly.
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import tensorflow as tf

from bert_tf.core import parquet_files
from bert_tf.core.errors import InputError
from bert_tf.core.json_lines import LineError, field, meaning, parse, without_surrogates
from data_gen import compressed, wikipedia
from data_gen.sentences import ENGLISH, split_sentences

# Approximate size of the text of one work unit. The unit's examples, at most about 200,000, fit in memory.
CHUNK_BYTES = 2 << 20
# Maximum size of a document, because each document is held in memory as a whole.
MAX_DOCUMENT_BYTES = 64 << 20
# Patterns that match the end of a document, where a file can be split.
_ENDS = {
    "lines": re.compile(rb"\n(?:</doc>)?[ \t\r\v\f]*\n"),
    "documents": re.compile(rb"\n"),
    "jsonl": re.compile(rb"\n"),
    "wikipedia": re.compile(rb"</page>"),
}
_FORMATS = {".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".xml": "wikipedia"}
_REMEDY = {
    "lines": "separate documents by a blank line",
    "documents": "give one document per line",
    "jsonl": "give one JSON object per line, or check --input_format",
    "wikipedia": "is it a MediaWiki XML dump? check --input_format",
}
_PARQUET_ROWS = 256  # number of rows that are read at once
# Two consecutive reads share this many bytes, because a match may span both reads. Longer matches are not found.
_OVERLAP = 1 << 10
# The lines that WikiExtractor writes before and after each article. The lookbehind finds the start of a line. It is
# not the first part of the pattern, because a search for a literal is 15 times as fast.
_TAG_LINE = re.compile(rb"<(?<![^\n]<)(?:/doc|doc id=[^<>\n]*)>[ \t\r\v\f]*$", re.MULTILINE)

Document = list[str]


@dataclasses.dataclass(frozen=True)
class Source:
    """A byte range of a file. The range of a compressed file is the whole file, and `end` is the compressed size. In a
    Parquet file, each range is a row group."""

    path: str
    start: int
    end: int


def format_of(files: Sequence[str], flag: str | None) -> str:
    """Returns the value of --input_format; if it is not given, the format that the extensions of the files state, or
    "lines" if they state none."""
    formats = {_FORMATS.get(os.path.splitext(compressed.plain_name(path))[1].lower(), "lines") for path in files}
    if not flag and len(formats) > 1:
        raise InputError(f"--input_file: has the formats {', '.join(sorted(formats))}; give files of one format")
    return flag or formats.pop()


def plan_sources(path: str, input_format: str, chunk_bytes: int = CHUNK_BYTES) -> list[Source]:
    """Splits a file into ranges of about `chunk_bytes` that end at document boundaries. Only a few kilobytes around
    each boundary are read."""
    size, start, sources = tf.io.gfile.stat(path).length, 0, []
    if input_format == "parquet":
        with parquet_files.opened(path) as file:
            return _row_groups(file.num_row_groups, path)
    if compressed.is_compressed(path):
        return [Source(path, 0, size)]
    with compressed.open_binary(path) as file:
        while start < size:
            file.seek(min(start + chunk_bytes, size))
            end = start + chunk_bytes + _bytes_to_end(file, path, input_format)
            sources.append(Source(path, start, min(end, size)))
            start = end
        return sources


def read_chunks(source: Source, input_format: str, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yields the source's text in chunks that end at document boundaries. A range of a plain file is one chunk."""
    with compressed.open_binary(source.path) as file:
        if not compressed.is_compressed(source.path):
            file.seek(source.start)
            yield file.read(source.end - source.start)
            return
        rest = b""
        while data := rest + file.read(chunk_bytes):
            at_end = len(data) < chunk_bytes
            while not at_end and not (end := _last_end(data, input_format)):
                _check_length(len(data), source.path, input_format)
                more = file.read(chunk_bytes)
                data, at_end = data + more, not more
            yield data if at_end else data[:end]
            rest = b"" if at_end else data[end:]


def read_documents(
    source: Source, input_format: str, text_field: str = "text", chunk_bytes: int = CHUNK_BYTES, language: str = ""
) -> Iterator[list[Document]]:
    """Yields the source's documents, one list per chunk of `read_chunks`. Documents may contain empty sentences and may
    be empty. The default of the language is a dump's own, else English."""
    header = wikipedia.header(source.path) if input_format == "wikipedia" else wikipedia.Header()
    header = header._replace(language=language or header.language)
    if input_format == "parquet":
        yield from _read_row_group(source, text_field, chunk_bytes, header.language)
        return
    position = source.start
    for chunk in read_chunks(source, input_format, chunk_bytes):
        if input_format == "jsonl":
            yield list(_json_documents(chunk, source.path, position, text_field, header.language))
        elif input_format == "documents":
            lines = without_tag_lines(chunk).decode("utf-8", errors="ignore").split("\n")
            yield [split_sentences(line, header.language) for line in lines]
        elif input_format == "wikipedia":
            yield _articles(chunk, source.path, position, header)
        else:
            yield split_lines(chunk)
        position += len(chunk)


def without_tag_lines(text: bytes) -> bytes:
    """Makes the lines with WikiExtractor's tags blank."""
    return _TAG_LINE.sub(b"", text)


def split_lines(text: bytes) -> list[Document]:
    """Splits text in the original's format: one sentence per line, a blank line between documents. WikiExtractor's tags
    also separate documents. Invalid UTF-8 is dropped. White space is defined as in Unicode, so a line that contains
    only U+3000 is blank."""
    documents: list[Document] = [[]]
    for line in without_tag_lines(text).decode("utf-8", errors="ignore").split("\n"):
        stripped = line.strip()
        if stripped:
            documents[-1].append(stripped)
        elif documents[-1]:
            documents.append([])
    return documents


def _json_documents(chunk: bytes, path: str, position: int, text_field: str, language: str) -> Iterator[Document]:
    for line in chunk.split(b"\n"):
        try:
            yield json_document(line, text_field, language)
        except LineError as error:
            raise InputError(f"{path}, line {_line_number(path, position)}: {error}") from error
        position += len(line) + 1


def json_document(line: bytes, text_field: str, language: str = ENGLISH) -> Document:
    """Returns the sentences of one JSON line. Bytes that are not valid UTF-8 are dropped, as in the original.
    `text_field`: name of the field with the text: a string or a list of strings; null if there is none. In a string,
      line ends separate paragraphs. In a list, each string is a sentence or a paragraph. No sentence spans two
      paragraphs or strings.
    Raises LineError: the line is not a JSON object, or the field does not contain text."""
    content = line.decode("utf-8", errors="ignore").removeprefix("\ufeff").strip()
    if not content:
        return []
    return _sentences_of(field(parse(content), text_field, "text_field"), text_field, language)


def _sentences_of(text: Any, text_field: str, language: str) -> Document:
    """Returns the sentences of a field's value; see `json_document`."""
    if text is None:
        return []
    paragraphs = text.splitlines() if isinstance(text, str) else text
    if not isinstance(paragraphs, list):
        raise LineError(f"field {text_field!r} must be a string or a list of strings, found {meaning(text)}")
    for paragraph in paragraphs:
        if not isinstance(paragraph, str):
            raise LineError(f"field {text_field!r} must be a list of strings, found {meaning(paragraph)} in it")
    return [s for paragraph in paragraphs for s in split_sentences(without_surrogates(paragraph), language)]


def _row_groups(count: int, path: str) -> list[Source]:
    """Divides a Parquet file into a range for each of its row groups. A range only names its row group. Equal ranges
    are never empty, even for row groups without rows, so each range belongs to one row group."""
    size = tf.io.gfile.stat(path).length
    edges = [size * end // max(count, 1) for end in range(count + 1)]
    return [Source(path, *edge) for edge in itertools.pairwise(edges)]


def _read_row_group(source: Source, text_field: str, chunk_bytes: int, language: str) -> Iterator[list[Document]]:
    """Yields the documents of a row group in lists of about `chunk_bytes` of text; a row without text is empty."""
    path, documents, length = source.path, [], 0
    with parquet_files.opened(path) as file:
        if text_field not in file.schema_arrow.names:
            have = ", ".join(file.schema_arrow.names)
            raise InputError(f"{path}: has no column {text_field!r}; give one of its columns as --text_field: {have}")
        group = _row_groups(file.num_row_groups, path).index(source)
        for batch in file.iter_batches(_PARQUET_ROWS, [group], [text_field]):
            for text in batch.column(0).to_pylist():
                try:
                    documents.append(_sentences_of(text, text_field, language))
                except LineError as error:
                    raise InputError(f"{path}: {error}") from error
                length += sum(map(len, documents[-1]))
                if length >= chunk_bytes:
                    yield documents
                    documents, length = [], 0
    if documents:
        yield documents


def _articles(chunk: bytes, path: str, position: int, header: wikipedia.Header) -> list[Document]:
    start, text = 0, chunk
    if position:
        # Only the closing tag may follow the last page. Anything else is damage, which the parser must report.
        if chunk.strip() in (b"", b"</mediawiki>"):
            return []
        start = len(chunk) - len(chunk.lstrip())
        text = chunk[start:]
    elif chunk.rstrip().endswith(b"</page>") and not chunk.lstrip().startswith(b"<page>"):
        text = chunk + b"</mediawiki>"  # the first chunk contains the header, whose element must be closed
    return wikipedia.articles(text, path, position + start, header)


def _line_number(path: str, position: int) -> int:
    """Returns the line number, counted from 1, of a byte position in the decompressed text."""
    lines = 1
    with compressed.open_binary(path) as file:
        while position > 0 and (block := file.read(min(position, 1 << 20))):
            lines += block.count(b"\n")
            position -= len(block)
    return lines


def _bytes_to_end(file: BinaryIO, path: str, input_format: str) -> int:
    """Returns the number of bytes from the current position to the next end of a document or of the file."""
    passed, before = 0, b""
    while block := file.read(1 << 16):
        window = before + block
        if match := _ENDS[input_format].search(window):
            return passed - len(before) + match.end()
        passed += len(block)
        before = window[-_OVERLAP:]
        _check_length(passed, path, input_format)
    return passed


def _last_end(data: bytes, input_format: str) -> int:
    """Returns the position after the last complete document in `data`; 0 if there is none."""
    # Search backwards in growing steps: the last end is usually near the end of the data.
    step = 1 << 16
    while True:
        start = max(0, len(data) - step)
        ends = [match.end() for match in _ENDS[input_format].finditer(data, start)]
        if ends or not start:
            return ends[-1] if ends else 0
        step *= 4


def _check_length(length: int, path: str, input_format: str) -> None:
    if length > MAX_DOCUMENT_BYTES:
        raise InputError(f"{path}: a document is longer than {MAX_DOCUMENT_BYTES >> 20} MiB; {_REMEDY[input_format]}")
