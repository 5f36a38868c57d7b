"""Converts one line of a JSON Lines file into the sentences of a document."""

from typing import Any

from bert_tf.core.json_lines import LineError, field, meaning, parse, without_surrogates
from data_gen.sentences import ENGLISH, split_sentences


def document(line: bytes, text_field: str, language: str = ENGLISH) -> list[str]:
    """Returns the sentences of one JSON line. Bytes that are not valid UTF-8 are dropped, as in the original.
    `text_field`: name of the field with the text: a string or a list of strings; null if there is none. In a string,
      line ends separate paragraphs. In a list, each string is a sentence or a paragraph. No sentence spans two
      paragraphs or strings.
    Raises LineError: the line is not a JSON object, or the field does not contain text."""
    content = line.decode("utf-8", errors="ignore").removeprefix("\ufeff").strip()
    if not content:
        return []
    return sentences_of(field(parse(content), text_field, "text_field"), text_field, language)


def sentences_of(text: Any, text_field: str, language: str) -> list[str]:
    """Returns the sentences of a field's value; see `document`."""
    if text is None:
        return []
    paragraphs = text.splitlines() if isinstance(text, str) else text
    if not isinstance(paragraphs, list):
        raise LineError(f"field {text_field!r} must be a string or a list of strings, found {meaning(text)}")
    for paragraph in paragraphs:
        if not isinstance(paragraph, str):
            raise LineError(f"field {text_field!r} must be a list of strings, found {meaning(paragraph)} in it")
    return [s for paragraph in paragraphs for s in split_sentences(without_surrogates(paragraph), language)]
