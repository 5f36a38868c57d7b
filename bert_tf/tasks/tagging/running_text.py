"""Splits texts into words for tagging, in graph operations.

Letters: W words of all texts.
"""

from typing import NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.text.characters import Characters

# Characters between words: white space, control and format characters.
_BETWEEN = r"[\s\p{Z}\p{Cc}\p{Cf}]+"
# A character of a word. Chinese characters are excluded, because each Chinese character is a word of its own.
_LETTER = r"(?:[^\P{L}\p{Han}]|[\p{M}\p{N}\x{AD}\x{200C}\x{200D}])"
# The first alternative that matches is used.
_WORD = "|".join(
    (
        r"(?:\p{L}\.){2,}\p{L}?",  # U.S.
        r"\p{Lu}\.",  # J.
        r"(?i:['’](?:s|re|ve|ll|d|m)\b)",  # the 's of "John 's"
        r"\p{N}+(?:[.,:/-]\p{N}+)+",  # 1996-08-22
        rf"{_LETTER}+(?:[-.'’&@+_]{_LETTER}+)*",  # Jean-Luc, O'Brien
        r"\.{2,}|-{2,}",
        r"\p{So}(?:[\p{M}\p{Sk}]|\x{200D}\p{So})*",  # an emoji of several characters
        r"[^\s\p{Z}\p{Cc}\p{Cf}]",
    )
)
_POSSESSIVE = r"(?i:['’]s)$"
# The white space that separates columns in CoNLL files.
_SPACE = r"[ \t\r\n]+"


class TextWords(NamedTuple):
    """The words of texts."""

    words: tf.RaggedTensor  # RaggedTensor string [B, (words)]
    # `starts`, `ends`: int64 [W], the range of each word's characters in its text; `ends` is exclusive
    starts: tf.Tensor
    ends: tf.Tensor


def of_sentences(texts: tf.Tensor) -> TextWords:
    """Splits running text, string [B], into words in the way that is usual in corpora of named entities. White space
    separates words. Punctuation separates words too, except inside a word (Jean-Luc, O'Brien, AT&T, example.com),
    inside a number (1,000.5, 1996-08-22) and after initials (U.S., J.). A final 's is a word of its own. Each Chinese
    character is a word of its own."""
    texts = _valid(texts)
    words, starts, _ = tf_text.regex_split_with_offsets(_readable(texts), f"{_WORD}|{_BETWEEN}", _WORD)
    parts, begins, _ = tf_text.regex_split_with_offsets(words.values, _POSSESSIVE, _POSSESSIVE)
    splits = tf.gather(parts.row_splits, words.row_splits)
    begins = begins.values + tf.gather(starts.values, parts.value_rowids())
    return _words(texts, tf.RaggedTensor.from_row_splits(parts.values, splits, validate=False), begins)


def of_spaces(texts: tf.Tensor) -> TextWords:
    """Splits texts, string [B], at white space only."""
    texts = _valid(texts)
    words, starts, _ = tf_text.regex_split_with_offsets(_readable(texts), _SPACE)
    return _words(texts, words, starts.values)


def _valid(texts: tf.Tensor) -> tf.Tensor:
    """Drops bytes that are not UTF-8, because a regular expression would treat these bytes as characters."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")


def _readable(texts: tf.Tensor) -> tf.Tensor:
    """Replaces U+0000 with U+0001, because tensorflow-text treats U+0000 as the end of the text."""
    return tf.strings.regex_replace(texts, r"\x00", "\x01")


def _words(texts: tf.Tensor, words: tf.RaggedTensor, begins: tf.Tensor) -> TextWords:
    """Returns the words of texts as they are in the texts, with their character ranges."""
    characters, owners = Characters.of(texts), words.value_rowids()
    lengths = tf.cast(tf.strings.length(words.values), tf.int64)
    starts, ends = (characters.offsets(owners, places) for places in (begins, begins + lengths))
    # A substring of each word's text would take one copy of the text for each word.
    return TextWords(words.with_values(characters.texts(owners, starts, ends)), starts, ends)
