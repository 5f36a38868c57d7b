"""Makes sentences of rows: rows with words and tags, rows with one word, and texts with ranges of characters."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.core.errors import InputError
from bert_tf.rows import Row, cells
from bert_tf.tasks.tagging import annotated_texts, tag_schemes
from bert_tf.tasks.tagging.conll_files import BLANK, Sentence, line_of

# Possible names of the cells of a sentence. In a table with one word in each row, `_NUMBERS` tells the sentences apart.
_WORDS, _TAGS = ("tokens", "words"), ("ner_tags", "tags")
_NUMBERS, _WORD, _TAG = ("sentence #", "sentence_id", "sentence"), "word", "tag"


def sentences_of(file: str, rows: Iterator[Row], with_tags: bool) -> list[Sentence]:
    """Returns the sentences of the rows of a file."""
    first = next(rows, None)
    if first is None:
        return []
    rows = itertools.chain([first], rows)
    if annotated_texts.is_annotated(first[1]):
        return annotated_texts.sentences_of(file, list(rows), with_tags)
    if any(name.lower() == _WORD for name in first[1]):
        rows = _joined(rows, with_tags)
    sentences = [sentence_of(place, row, with_tags) for place, row in rows]
    return [sentence for sentence in sentences if sentence.words]


def sentence_of(place: str, row: Mapping[str, Any], with_tags: bool) -> Sentence:
    """Returns the sentence of a row, which has its words and tags, as in files of the library datasets."""
    words, tags = _strings(place, row, _WORDS), None
    if with_tags:
        tags = _strings(place, row, _TAGS)
        _check(place, words, tags)
    return Sentence(words, tags, *line_of(place), row.get("starts_document", False), row.get("has_lines", False))


def _joined(rows: Iterator[Row], with_tags: bool) -> Iterator[Row]:
    """Yields a row for each sentence of a table with one word in each row. A sentence has a number in each of its rows,
    or only in its first."""
    sentence: Row | None = None
    number = ""
    for place, row in rows:
        row = type(row)((name.lower(), cell) for name, cell in row.items())
        named = next((name for name in _NUMBERS if name in row), "")
        if not named or _WORD not in row or (with_tags and _TAG not in row):
            raise InputError(f"{place}: a table with one word in each row needs the columns {_WORD}, {_TAG} and "
                             f"{_NUMBERS[0]}, the number of the sentence; it has {', '.join(row)}")  # fmt: skip
        if not sentence or (not cells.is_missing(row[named]) and row[named] != number):
            if sentence:
                yield sentence
            sentence, number = (place, {"words": [], "tags": [], "has_lines": True}), row[named]
        sentence[1]["words"].append(cells.text(place, row, _WORD))
        sentence[1]["tags"].append(row.get(_TAG))
    if sentence:
        yield sentence


def _check(place: str, words: Sequence[str], tags: Sequence[str]) -> None:
    if len(words) != len(tags):
        raise InputError(f"{place}: has {len(words)} words, but {len(tags)} tags; fix or remove the line")
    for tag in tags:
        try:
            tag_schemes.split_tag(tag)
        except ValueError as error:
            raise InputError(f"{place}: {error}; fix the tag") from error


def _strings(place: str, row: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    column = next((name for name in names if name in row), None)
    if column is None:
        raise InputError(f"{place}: there is no field {' or '.join(names)}; the line has {', '.join(row) or 'none'}")
    strings = cells.items(row, column)
    if not isinstance(strings, list) or not all(isinstance(each, str) for each in strings):
        raise InputError(
            f"{place}: {column} is not a list of strings; write the names of the tags instead of numbers, or give the "
            "Parquet file of a dataset, which has the names too"
        )
    strings = tuple(each.strip(BLANK) for each in strings)
    if "" in strings:
        raise InputError(f"{place}: number {strings.index('')} of {column}, counted from 0, is empty; remove the word")
    return strings
