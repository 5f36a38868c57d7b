"""Reads tagged sentences from JSON Lines and Parquet files.

A row has a sentence's words and tags, as in files of the library datasets, or a text with ranges of characters.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.core.errors import InputError
from bert_tf.tasks import tables
from bert_tf.tasks.tagging import annotated_texts, tag_schemes
from bert_tf.tasks.tagging.conll_files import BLANK, Sentence

_WORDS, _TAGS = ("tokens", "words"), ("ner_tags", "tags")


def read_sentences(path: str, with_tags: bool) -> list[Sentence]:
    """Reads the sentences of a file."""
    rows = [(line, annotated_texts.unwrapped(f"{path}, line {line}", row)) for line, row in tables.read_objects(path)]
    sentences = []
    if rows and _is_annotated(rows[0][1]):
        sentences, rows = annotated_texts.read_sentences(path, rows, with_tags), []
    for line, row in rows:
        place = f"{path}, line {line}"
        words, tags = _strings(place, row, _WORDS), None
        if with_tags:
            tags = _strings(place, row, _TAGS)
            _check(place, words, tags)
        if words:
            sentences.append(Sentence(words, tags, line, has_lines=False, path=path))
    if not sentences:
        raise InputError(f"{path}: holds no sentence; write a sentence in each row")
    return sentences


def _is_annotated(row: Mapping[str, Any]) -> bool:
    """Whether a row has a text and no words; Prodigy's tokens are objects."""
    words = next((row[name] for name in _WORDS if name in row), None)
    return annotated_texts.TEXT in row and (not words or isinstance(words[0], Mapping))


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
    cells = row[column]
    if not isinstance(cells, list) or not all(isinstance(cell, str) for cell in cells):
        raise InputError(
            f"{place}: {column} is not a list of strings; write the names of the tags instead of numbers, or give the "
            "Parquet file of a dataset, which has the names too"
        )
    found = tuple(cell.strip(BLANK) for cell in cells)
    if "" in found:
        raise InputError(f"{place}: number {found.index('')} of {column}, counted from 0, is empty; remove the word")
    return found
