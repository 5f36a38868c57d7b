"""Reads texts with entities that are ranges of characters, as annotation tools such as Prodigy and Doccano write them.

Each text is split into words as a served model splits it. Each word that an entity touches belongs to the entity.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.rows import Row, cells
from bert_tf.tasks.tagging import running_text, tag_schemes
from bert_tf.tasks.tagging.conll_files import Sentence, line_of
from bert_tf.tasks.tagging.tag_schemes import Entity

TEXT = "text"
_ENTITIES = ("spans", "entities", "ents", "label", "labels")
_START, _END, _TYPE = ("start", "start_offset"), ("end", "end_offset"), ("label", "labels", "type")
# The decision of an annotator, with Prodigy's words. `_SKIPPED` also means that nobody has annotated a text.
_DECISION, _ACCEPTED, _SKIPPED = "answer", "accept", "ignore"


def is_annotated(row: Mapping[str, Any]) -> bool:
    """Whether a row has a text and no words; Prodigy's tokens are objects."""
    words = next((row[name] for name in ("tokens", "words") if name in row), None)
    is_exported = isinstance(row.get("data"), Mapping) and isinstance(row.get("annotations"), list)
    return is_exported or (TEXT in row and (not words or isinstance(words[0], Mapping)))


def unwrapped(place: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the text, the entities and the decision of a row of Label Studio, and any other row unchanged. Of several
    annotations, the one that is marked as ground truth counts, else the newest."""
    data, annotations = row.get("data"), row.get("annotations")
    if not isinstance(data, Mapping) or not isinstance(annotations, list):
        return row
    texts = [name for name, value in data.items() if isinstance(value, str)]
    name = TEXT if TEXT in data else texts[0] if len(texts) == 1 else ""
    if not name:
        raise InputError(f"{place}: data has the fields {', '.join(data) or 'none'}; name the field of the text {TEXT}")
    finished = [each for each in annotations if not each.get("was_cancelled")]
    chosen = max(finished, key=lambda each: (bool(each.get("ground_truth")), _age(each)), default=None)
    values = [region.get("value", {}) for region in (chosen or {}).get("result", ())]
    entities = [value for value in values if "labels" in value]
    decision = {_DECISION: _SKIPPED} if chosen is None else {}
    return {TEXT: data[name], "entities": entities, "annotators": len(finished), **decision}


def _age(annotation: Mapping[str, Any]) -> str:
    return str(annotation.get("updated_at") or annotation.get("created_at") or "")


def sentences_of(path: str, rows: Sequence[Row], with_tags: bool) -> list[Sentence]:
    """Returns a sentence for each text, although a text may have several sentences; the tags are in the scheme IOB2.
    `rows`: rows of annotation tools. Rows that an annotator rejected (Prodigy's `answer`) are left out, and rows that
      nobody has annotated if the tags are read."""
    count, rows = len(rows), [(place, unwrapped(place, row)) for place, row in rows]
    kept = (_ACCEPTED,) if with_tags else (_ACCEPTED, _SKIPPED)
    rows = [(place, row) for place, row in rows if (row.get(_DECISION) or _ACCEPTED) in kept]
    if with_tags and not any(_entities_in(row) for _, row in rows):
        raise InputError(
            f'{path}: the texts have no entities; write lists of them, such as [[0, 5, "PER"]], in the field entities'
        )
    if several := sum(row.get("annotators", 1) > 1 for _, row in rows):
        logging.info("%s: %d texts have several annotations; the ground truth counts, else the newest", path, several)
    counts_units = with_tags and _counts_utf16_units(rows)
    texts = tf.constant([_text(place, row) for place, row in rows], tf.string)
    words, starts, ends = running_text.of_sentences(texts)
    ranges, sentences, cut = words.with_values(tf.stack([starts, ends], 1)).to_list(), [], []
    for (place, row), of_text, of_words in zip(rows, words.to_list(), ranges, strict=True):
        tags = None
        if with_tags:
            entities, are_whole = _of_words(_entities(place, row, counts_units), of_words)
            tags = tuple(tag_schemes.write_tags(entities, len(of_text), tag_schemes.IOB2))
            cut += [] if are_whole else [place]
        if of_text:
            sentences.append(Sentence(tuple(word.decode() for word in of_text), tags, *line_of(place)))
    if cut:
        logging.warning("%s: in %d texts, entities begin or end inside of a word; the whole word belongs to its first "
                        "entity; the first such text is at %s", path, len(cut), cut[0])  # fmt: skip
    if len(sentences) < count:
        logging.warning("%s: %d rows are left out, because they were rejected, not annotated, or have no word", path,
                        count - len(sentences))  # fmt: skip
    return sentences


def _text(place: str, row: Mapping[str, Any]) -> str:
    if not isinstance(row.get(TEXT), str):
        raise InputError(f"{place}: {TEXT} is not a string; give each row a text")
    return row[TEXT]


def _entities_in(row: Mapping[str, Any]) -> list[Any]:
    """Returns the entities of a row, which may be in any of several fields."""
    return next(
        (cell for cell in (cells.items(row, name) for name in _ENTITIES) if isinstance(cell, list) and cell), []
    )


def _entities(place: str, row: Mapping[str, Any], counts_units: bool) -> list[Entity]:
    """Returns the entities of a text by their characters, sorted; an entity is a list or an object.
    `counts_units`: whether the file counts UTF-16 units; else, it counts characters."""
    read = []
    for entity in _entities_in(row):
        match _parts(entity):
            case [int(start), int(end), str(type_) | [str(type_)], stated] if 0 <= start < end and type_:
                start, end = _characters(row[TEXT], start, end) if counts_units else (start, end)
                if stated and not _is_same(row[TEXT][start:end], stated):
                    raise InputError(f"{place}: has {row[TEXT][start:end]!r:.40} where an entity says {stated!r:.40}; "
                                     "fix the start and the end of the entity")  # fmt: skip
                if end <= len(row[TEXT]):
                    read.append(Entity("_".join(type_.split()), start, end))
                    continue
        needs = "a start and an end within the text, and one type"
        raise InputError(f"{place}: the entity {entity!r:.80} is wrong; an entity needs {needs}")
    read = sorted(set(read), key=lambda entity: entity.start)
    for one, other in itertools.pairwise(read):
        if other.start < one.end:
            raise InputError(f"{place}: {one.type} and {other.type} overlap at character {other.start}; remove one")
    return read


def _counts_utf16_units(rows: Sequence[Row]) -> bool:
    """Returns whether a file counts UTF-16 units, as Label Studio does, instead of characters. This shows where an
    entity states its text, and the text is at only one of the two places."""
    for _, row in rows:
        for entity in _entities_in(row):
            match _parts(entity):
                case [int(start), int(end), _, str(stated)] if isinstance(row.get(TEXT), str) and stated:
                    text, places = row[TEXT], [(start, end), _characters(row[TEXT], start, end)]
                    is_character, is_unit = (to <= len(text) and _is_same(text[at:to], stated) for at, to in places)
                    if is_character != is_unit:
                        return is_unit
    return False


def _characters(text: str, start: int, end: int) -> tuple[int, int]:
    """Converts positions in UTF-16 units to positions in characters."""
    units = text.encode("utf-16-le", "surrogatepass")
    first, last = (len(units[: 2 * at].decode("utf-16-le", "ignore")) for at in (start, end))
    return first, last + max(0, end - len(units) // 2)  # an end outside of the text stays outside


def _is_same(text: str, stated: str) -> bool:
    """Compares texts without their white space, which Label Studio may write as a backslash and an n."""
    return "".join(text.split()) == "".join(stated.replace("\\n", " ").split())


def _parts(entity: Any) -> Any:
    """Returns the start, the end, the type and the stated text of an entity."""
    if not isinstance(entity, Mapping):
        return [*entity, None] if isinstance(entity, list) else entity
    values = (next((entity[name] for name in names if name in entity), None) for names in (_START, _END, _TYPE))
    return [*values, entity.get(TEXT)]


def _of_words(entities: Sequence[Entity], words: Sequence[Sequence[int]]) -> tuple[list[Entity], bool]:
    """Returns entities by their words, and whether all entities consist of whole words.
    `words`: the range of the characters of each word."""
    of_words, are_whole = [], True
    for type_, first, last in entities:
        touched = [number for number, (start, end) in enumerate(words) if start < last and first < end]
        are_whole &= all(first <= words[number][0] and words[number][1] <= last for number in touched)
        free = [number for number in touched if not of_words or number >= of_words[-1].end]
        of_words += [Entity(type_, free[0], free[-1] + 1)] if free else []
    return of_words, are_whole
