"""Converts entities to tags in the schemes IOB1, IOB2 and BIOES, and sequences of tags to entities.

A tag is O, or a prefix and a type, such as B-PER. In IOB2 (also called BIO), the first word of each entity has the
prefix B, and the other words have I. In IOB1, the scheme of CoNLL-2003, all words of entities have I, except that the
first word has B if the entity directly follows an entity of the same type. BIOES is like IOB2, with two
differences: if an entity has several words, the last word has E; if an entity has one word, this word has S.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

IOB1, IOB2, BIOES = SCHEMES = ("iob1", "iob2", "bioes")
OUTSIDE = "O"
_PREFIXES = {IOB1: "IB", IOB2: "BI", BIOES: "BIES"}


class Entity(NamedTuple):
    """An entity."""

    type: str  # the entity's type; "" if the tags have no types
    # `start`, `end`: range of the entity's words in the sentence; the end is exclusive
    start: int
    end: int


@functools.cache
def split_tag(tag: str) -> tuple[str, str]:
    """Returns the prefix and the type of a tag. For a tag without a type, such as O or B, the type is "".
    Raises ValueError: the text is not a tag of any scheme."""
    prefix, dash, type_ = tag.partition("-")
    if prefix not in (OUTSIDE, *"BIES") or (prefix == OUTSIDE and dash) or (dash and not type_):
        raise ValueError(f"{tag!r} is not a tag; a tag is O, or one of B, I, E, S with a type, such as B-PER")
    return prefix, type_


def join_tag(prefix: str, type_: str) -> str:
    return f"{prefix}-{type_}" if type_ else prefix


def tags_of_types(types: Iterable[str], scheme: str) -> tuple[str, ...]:
    """Returns all tags of a scheme: O, then the tags of each type."""
    return (OUTSIDE, *(join_tag(prefix, type_) for type_ in types for prefix in _PREFIXES[scheme]))


def types_of(tags: Iterable[str]) -> tuple[str, ...]:
    """Returns the types in tags, each once, in the order of their first tags."""
    return tuple(dict.fromkeys(split_tag(tag)[1] for tag in tags if tag != OUTSIDE))


def entities(tags: Sequence[str]) -> list[Entity]:
    """Finds the entities in a sequence of tags in the same way as CoNLL's official scorer (conlleval). The sequence may
    be invalid. After B or I, an entity continues if the next tag has the entity's type and the prefix I or E.
    Otherwise, the entity ends. Each tag that does not continue an entity begins a new entity, unless the tag is O. For
    example, an I after an O begins a new entity."""
    complete, start = [], None
    before, type_before = OUTSIDE, ""
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, type_ = split_tag(tag)
        continues = prefix in ("I", "E") and before in ("B", "I") and type_ == type_before
        if not continues:
            if start is not None:
                complete.append(Entity(type_before, start, index))
            start = None if prefix == OUTSIDE else index
        before, type_before = prefix, type_
    return complete


def write_tags(entities: Sequence[Entity], length: int, scheme: str) -> list[str]:
    """Returns the tags of a sentence; the inverse of `entities`.
    `entities`: the entities of the sentence, sorted by position.
    `length`: number of words of the sentence."""
    tags = [OUTSIDE] * length
    for type_, start, end in entities:
        tags[start:end] = [join_tag("I", type_)] * (end - start)
        touches = start > 0 and tags[start - 1] != OUTSIDE and split_tag(tags[start - 1])[1] == type_
        if scheme != IOB1 or touches:
            tags[start] = join_tag("B", type_)
        if scheme == BIOES:
            tags[end - 1] = join_tag("S" if end - start == 1 else "E", type_)
    return tags


def convert(tags: Sequence[str], scheme: str) -> list[str]:
    """Returns valid tags of a scheme with the entities of the given tags, which may be invalid; see `entities`."""
    return write_tags(entities(tags), len(tags), scheme)


def recognize(sentences: Iterable[Sequence[str]]) -> str:
    """Returns the scheme of a file. The scheme is BIOES if a tag has the prefix E or S. Otherwise, the scheme is IOB1
    if fewer sentences violate IOB1 than IOB2, else IOB2."""
    kept = [tags for tags in sentences if any(tag != OUTSIDE for tag in tags)]
    if any(tag[0] in "ES" for tags in kept for tag in tags):
        return BIOES
    faults = {scheme: sum(find_fault(tags, scheme) is not None for tags in kept) for scheme in (IOB2, IOB1)}
    return min(faults, key=faults.get)


def find_fault(tags: Sequence[str], scheme: str) -> tuple[int, str] | None:
    """Returns the index of the first tag that violates a scheme, and the reason; None if all tags are valid."""
    for index, (tag, right) in enumerate(zip(tags, convert(tags, scheme), strict=True)):
        if tag != right:
            return index, f"{tag} should be {right} in {scheme.upper()}"
    return None
