"""Tags of entities in the schemes IOB1, IOB2 and BIOES, and the entities of a sequence of tags.

A tag is O, or a prefix and a type, such as B-PER. In IOB2 (also called BIO), each entity begins with B. In IOB1, the
scheme of CoNLL-2003, the words of entities have I; an entity begins with B only if it directly follows an entity of the
same type. In BIOES, E ends an entity of several words, and S marks an entity of one word.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

IOB1, IOB2, BIOES = SCHEMES = ("iob1", "iob2", "bioes")
OUTSIDE = "O"
_PREFIXES = {IOB1: "IB", IOB2: "BI", BIOES: "BIES"}


class Entity(NamedTuple):
    """An entity: its type, the index of its first word in a sentence, and the index of the word after its last word."""

    type: str
    start: int
    end: int


def split_tag(tag: str) -> tuple[str, str]:
    """Returns the prefix and the type of a tag; the type is "" if absent, as in "O" and "B".

    Raises:
      ValueError: the text is not a tag of any scheme.
    """
    prefix, dash, type_ = tag.partition("-")
    if prefix not in (OUTSIDE, *"BIES") or (prefix == OUTSIDE and dash) or (dash and not type_):
        raise ValueError(f"{tag!r} is not a tag; a tag is O, or one of B, I, E, S with a type, such as B-PER")
    return prefix, type_


def join_tag(prefix: str, type_: str) -> str:
    """Returns the tag of a prefix and a type."""
    return f"{prefix}-{type_}" if type_ else prefix


def tags_of_types(types: Iterable[str], scheme: str) -> tuple[str, ...]:
    """Returns all tags of a scheme: O, then the tags of each type."""
    return (OUTSIDE, *(join_tag(prefix, type_) for type_ in types for prefix in _PREFIXES[scheme]))


def entities(tags: Sequence[str]) -> list[Entity]:
    """Finds the entities of any sequence of tags in the same way as CoNLL's official scorer (conlleval).

    An entity continues with I or E of its type, and ends before any other tag. Any other tag except O begins an entity,
    even an I after an O.
    """
    found, start = [], None
    before, type_before = OUTSIDE, ""
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, type_ = split_tag(tag)
        continues = prefix in ("I", "E") and before in ("B", "I") and type_ == type_before
        if not continues:
            if start is not None:
                found.append(Entity(type_before, start, index))
            start = None if prefix == OUTSIDE else index
        before, type_before = prefix, type_
    return found


def write_tags(found: Sequence[Entity], length: int, scheme: str) -> list[str]:
    """Returns the tags of a sentence of `length` words; the inverse of `entities`. `found` is sorted by position."""
    tags = [OUTSIDE] * length
    for type_, start, end in found:
        tags[start:end] = [join_tag("I", type_)] * (end - start)
        touches = start > 0 and tags[start - 1] != OUTSIDE and split_tag(tags[start - 1])[1] == type_
        if scheme != IOB1 or touches:
            tags[start] = join_tag("B", type_)
        if scheme == BIOES:
            tags[end - 1] = join_tag("S" if end - start == 1 else "E", type_)
    return tags


def recognize(sentences: Iterable[Sequence[str]]) -> str:
    """Returns the scheme of a file: BIOES if a tag has the prefix E or S, else the better of IOB1 and IOB2.

    The better scheme makes fewer sentences invalid. If both are equal, IOB2 is chosen.

    Args:
      sentences: the tags of each sentence.
    """
    kept = [tags for tags in sentences if any(tag != OUTSIDE for tag in tags)]
    if any(tag[0] in "ES" for tags in kept for tag in tags):
        return BIOES
    faults = {scheme: sum(find_fault(tags, scheme) is not None for tags in kept) for scheme in (IOB2, IOB1)}
    return min(faults, key=faults.get)


def find_fault(tags: Sequence[str], scheme: str) -> tuple[int, str] | None:
    """Returns the index of the first tag that violates a scheme, and the reason; None if all tags are valid."""
    before, type_before = OUTSIDE, ""
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, type_ = split_tag(tag)
        reason = _fault(before, type_before, prefix, type_, scheme)
        if reason:
            follows = f"follows {join_tag(before, type_before)}" if index else "is the first tag"
            what = f"{tag} {follows}" if index < len(tags) else f"the sentence ends after {tags[-1]}"
            return min(index, len(tags) - 1), f"{what}, but {reason}"
        before, type_before = prefix, type_
    return None


def _fault(before: str, type_before: str, prefix: str, type_: str, scheme: str) -> str:
    """Returns the reason why a tag cannot follow the tag before it; "" if the two tags are valid together."""
    if prefix not in (OUTSIDE, *_PREFIXES[scheme]):
        return f"{scheme.upper()} does not have {prefix}"
    same = before != OUTSIDE and type_ == type_before
    if scheme == IOB1:
        return "in IOB1, B only follows an entity of the same type" if prefix == "B" and not same else ""
    if scheme == IOB2:
        return "in IOB2, an entity begins with B" if prefix == "I" and not same else ""
    goes_on = prefix in ("I", "E")
    if before in ("B", "I") and not (goes_on and same):
        return "in BIOES, an entity of several words ends with E"
    if goes_on and before not in ("B", "I"):
        return "in BIOES, an entity begins with B or S"
    return ""
