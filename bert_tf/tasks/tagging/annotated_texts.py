"""Reads texts with entities that are ranges of characters, as annotation tools such as Prodigy and Doccano write them.

Each text is split into words as a served model splits it. Each word that an entity touches belongs to the entity.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.tasks.tagging import running_text, tag_schemes
from bert_tf.tasks.tagging.conll_files import Sentence
from bert_tf.tasks.tagging.tag_schemes import Entity

TEXT = "text"
_ENTITIES = ("spans", "entities", "ents", "label", "labels")
_START, _END, _TYPE = ("start", "start_offset"), ("end", "end_offset"), ("label", "labels", "type")


def unwrapped(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the text and the entities of a row of Label Studio, and any other row unchanged."""
    data, annotations = row.get("data"), row.get("annotations")
    if not isinstance(data, Mapping) or not isinstance(annotations, list):
        return row
    kept = next((each for each in annotations if not each.get("was_cancelled")), {})
    values = [region.get("value", {}) for region in kept.get("result", ())]
    return {**data, "entities": [value for value in values if "labels" in value]}


def read_sentences(path: str, rows: Sequence[tuple[int, Mapping[str, Any]]], with_tags: bool) -> list[Sentence]:
    """Returns a sentence for each text, although a text may have several sentences; the tags are in the scheme IOB2.
    `rows`: the line and the fields of each row. Rows that an annotator rejected (Prodigy's `answer`) are left out."""
    given = len(rows)
    rows = [(line, row) for line, row in rows if row.get("answer", "accept") == "accept"]
    lists = {name for _, row in rows for name in _ENTITIES if isinstance(row.get(name), list) and row[name]}
    field = next(filter(lists.__contains__, _ENTITIES), None)
    if with_tags and not field:
        raise InputError(
            f'{path}: the texts have no entities; write lists of them, such as [[0, 5, "PER"]], in the field entities'
        )
    texts = tf.constant([_text(f"{path}, line {line}", row) for line, row in rows], tf.string)
    words, starts, ends = running_text.of_sentences(texts)
    ranges, sentences, cut = words.with_values(tf.stack([starts, ends], 1)).to_list(), [], []
    for (line, row), found, places in zip(rows, words.to_list(), ranges, strict=True):
        tags = None
        if with_tags:
            entities, are_whole = _of_words(_entities(f"{path}, line {line}", row, field), places)
            tags = tuple(tag_schemes.write_tags(entities, len(found), tag_schemes.IOB2))
            cut += [] if are_whole else [line]
        if found:
            written = tuple(word.decode() for word in found)
            sentences.append(Sentence(written, tags, line, has_lines=False, path=path))
    if cut:
        logging.warning("%s: in %d texts, entities begin or end inside of a word; the whole word belongs to its first "
                        "entity; the first such text is on line %d", path, len(cut), cut[0])  # fmt: skip
    if len(sentences) < given:
        logging.warning("%s: %d rows are left out, because they were rejected or have no word", path,
                        given - len(sentences))  # fmt: skip
    return sentences


def _text(place: str, row: Mapping[str, Any]) -> str:
    if not isinstance(row.get(TEXT), str):
        raise InputError(f"{place}: {TEXT} is not a string; give each row a text")
    return row[TEXT]


def _entities(place: str, row: Mapping[str, Any], field: str) -> list[Entity]:
    """Returns the entities of a text by their characters, sorted; an entity is a list or an object."""
    found = []
    for entity in row.get(field) or ():
        match _parts(entity, row[TEXT]):
            case [int(start), int(end), str(type_) | [str(type_)]] if 0 <= start < end <= len(row[TEXT]) and type_:
                found.append(Entity("_".join(type_.split()), start, end))
            case _:
                needs = "a start and an end within the text, and one type"
                raise InputError(f"{place}: {field} has {entity!r:.80}; an entity needs {needs}")
    found = sorted(set(found), key=lambda entity: entity.start)
    for one, other in itertools.pairwise(found):
        if other.start < one.end:
            raise InputError(f"{place}: {one.type} and {other.type} overlap at character {other.start}; remove one")
    return found


def _parts(entity: Any, text: str) -> Any:
    """Returns the start, the end and the type of an entity of a text."""
    if not isinstance(entity, Mapping):
        return entity
    start, end, type_ = (
        next((entity[name] for name in names if name in entity), None) for names in (_START, _END, _TYPE)
    )
    if isinstance(start, int) and isinstance(end, int) and entity.get(TEXT):
        # Label Studio writes the text too, and counts UTF-16 units.
        units = text.encode("utf-16-le")
        first, last = (len(units[: 2 * at].decode("utf-16-le", "ignore")) for at in (start, end))
        if text[start:end] != entity[TEXT] == text[first:last]:
            start, end = first, last
    return [start, end, type_]


def _of_words(entities: Sequence[Entity], words: Sequence[Sequence[int]]) -> tuple[list[Entity], bool]:
    """Returns entities by their words, and whether all entities consist of whole words.
    `words`: the range of the characters of each word."""
    found, are_whole = [], True
    for type_, first, last in entities:
        touched = [number for number, (start, end) in enumerate(words) if start < last and first < end]
        are_whole &= all(first <= words[number][0] and words[number][1] <= last for number in touched)
        free = [number for number in touched if not found or number >= found[-1].end]
        found += [Entity(type_, free[0], free[-1] + 1)] if free else []
    return found, are_whole
