"""Splits text into normalized words with TensorFlow operations, as the original's basic tokenizer does.

Paper: section 3 ("Input/Output Representations").

Each character is looked up in `unicode_table`. Spaces separate words, and some characters form words by themselves.

Letters: N characters of the source, M entries after expansion, K characters of words, W words.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import tensorflow as tf

from bert_tf.text import unicode_table
from bert_tf.text.added_tokens import AddedTokenFinder

# A longer word becomes [UNK], as in the original.
MAX_CHARACTERS_PER_WORD = 200
# This code point replaces a word that is too long, and, with an id after it, an added token. It is a noncharacter, so
# vocabularies do not contain it.
TOO_LONG = 0x10FFFF

_ALONE, _SPACE, _DROPPED, _BOUNDARY, _MARK, _SIGMA, _EXPANDS = (
    unicode_table.entry(kind)
    for kind in (
        unicode_table.ALONE,
        unicode_table.SPACE,
        unicode_table.DROPPED,
        unicode_table.BOUNDARY,
        unicode_table.ORDERED_MARK,
        unicode_table.CAPITAL_SIGMA,
        unicode_table.EXPANDS,
    )
)


class Words(NamedTuple):
    """The words of all texts, and their positions in the source."""

    words: tf.Tensor  # string [W]
    text_splits: tf.Tensor  # int64 [B + 1]; text b has the words words[text_splits[b]:text_splits[b + 1]]
    is_replaced: tf.Tensor  # bool [W], True where TOO_LONG replaces the word
    # int64 [W + 1]; word w has the characters from character_splits[w] up to character_splits[w + 1]
    character_splits: tf.Tensor
    characters: tf.Tensor  # int32 [K], code points
    # `starts`, `ends`: int64 [K], for each character, the byte range of its source character in the text; None unless
    # requested
    starts: tf.Tensor | None
    ends: tf.Tensor | None


class WordSplitter(tf.Module):
    """Cleans texts and splits them at spaces and punctuation.
    `lower_case`: whether to lower-case texts.
    `strip_accents`: whether to strip accents.
    `added`: the added tokens that are found in the normalized text, by id. Such a token is one word.
    `table`: replaces the original's normalization.
    `compose`: maps the entries and code points of characters to entries that depend on neighboring characters.
    `longest`: maximum number of characters in a word.
    `end`: pattern of further white space at the end of a text; "" for none."""

    def __init__(
        self, lower_case: bool, strip_accents: bool, added: Mapping[int, str] = {},
        table: unicode_table.Table | None = None, compose: Callable | None = None,
        longest: int = MAX_CHARACTERS_PER_WORD, end: str = "",
    ):  # fmt: skip
        super().__init__()
        table = table or unicode_table.load(lower_case, strip_accents)
        self._lower, self._strips, self._compose = lower_case, strip_accents, compose
        self._longest, self._end = longest, end
        self._entries, self._expansions, self._marks, self._mark_classes = map(tf.constant, table)
        self._sigma_context = tf.constant(unicode_table.load_sigma_context())
        self.added = None
        if added:
            entries, splits, *_ = self._normalized([*added.values()], with_offsets=False)
            contents = (text[:-1].decode() for text in _joined(entries, splits).numpy())
            self.added = AddedTokenFinder({id_: text for id_, text in zip(added, contents, strict=True) if text})

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits UTF-8 texts into words; invalid bytes are dropped.
        `texts`: string [B].
        Returns raggedTensor string [B, (words)]; the character TOO_LONG replaces a word of more than 200 characters."""
        split = self.split(texts)
        return tf.RaggedTensor.from_row_splits(split.words, split.text_splits, validate=False)

    def split(self, texts: tf.Tensor, with_offsets: bool = False) -> Words:
        """Splits texts as `__call__` does. Also returns the values from which the offsets of tokens are computed."""
        entries, text_splits, origin, sources, offsets = self._normalized(texts, with_offsets)
        apart = entries >= _ALONE
        begins, is_kept = apart | tf.concat([[True], apart], 0)[:-1], entries < _SPACE
        if self.added:
            tokens, begins = self._added_tokens(entries, text_splits, begins)
            is_kept |= tokens >= 0
        kept = tf.where(is_kept)[:, 0]  # [K]
        begins, code_points = tf.gather(begins, kept), tf.gather(entries, kept)
        code_points = tf.bitwise.bitwise_and(code_points, unicode_table.CODE_POINT_MASK)
        word_starts = tf.where(begins)[:, 0]  # [W]
        character_splits = tf.concat([word_starts, [tf.size(kept, tf.int64)]], 0)
        words, is_replaced = _encode(code_points, character_splits, self._longest)
        if self.added:
            tokens = tf.gather(tokens, tf.gather(kept, word_starts))
            words = tf.where(tokens >= 0, tf.strings.join([chr(TOO_LONG), tf.strings.as_string(tokens)]), words)
            is_replaced |= tokens >= 0
        text_splits = tf.searchsorted(
            word_starts, tf.searchsorted(kept, text_splits, out_type=tf.int64), out_type=tf.int64
        )
        starts = ends = None
        if with_offsets:
            origin = tf.gather(origin, kept)
            starts = tf.gather(offsets, origin)
            ends = starts + tf.cast(byte_lengths(tf.gather(sources, origin)), tf.int64)
        return Words(words, text_splits, is_replaced, character_splits, code_points, starts, ends)

    def _normalized(self, texts, with_offsets):
        """Returns the entries of texts, their splits, and the origins, code points and offsets of the sources."""
        # A final space keeps a word from continuing into the next text.
        texts, offsets = tf.strings.join([texts, " "]), None
        texts = tf.strings.regex_replace(texts, self._end, " ") if self._end else texts
        if with_offsets:
            characters, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="ignore")
            offsets = offsets.values
        else:
            characters = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")  # [B, (characters)]
        sources = characters.values  # [N]
        entries = tf.gather(self._entries, sources)
        if self._compose:
            entries = self._compose(entries, sources)
        origin = tf.range(tf.size(sources)) if with_offsets else tf.zeros([0], tf.int32)
        entries, text_splits, origin = tf.cond(
            tf.reduce_any(entries >= _DROPPED),
            lambda: self._look_closer(entries, sources, characters.row_splits),
            lambda: (entries, characters.row_splits, origin),
        )
        return entries, text_splits, origin, sources, offsets

    def _added_tokens(self, entries, text_splits, begins):
        """Returns the id of each entry's added token, -1 for other text, and `begins` with each token as one word."""
        pieces, _, _, ids = self.added.split(_joined(entries, text_splits))
        piece = tf.repeat(tf.range(tf.size(ids)), tf.strings.length(pieces, "UTF8_CHAR"))  # [M]
        tokens = tf.gather(ids, piece)
        return tokens, tf.concat([[True], piece[1:] > piece[:-1]], 0) | (begins & (tokens < 0))

    def _look_closer(self, entries, sources, text_splits):
        """Applies the rules that depend on neighboring characters, expands entries, and drops entries."""
        if self._lower:
            entries = _if_any(entries, _SIGMA, lambda: self._with_final_sigmas(entries, sources))
        origin = tf.range(tf.size(entries))
        entries, origin = tf.cond(
            tf.reduce_any(entries >= _EXPANDS), lambda: self._expand(entries), lambda: (entries, origin)
        )
        if self._strips:  # the canonical decomposition orders marks
            entries = _if_any(entries, _MARK, lambda: self._in_canonical_order(entries))
        kept = tf.where(entries < _DROPPED)[:, 0]
        entries, origin = tf.gather(entries, kept), tf.gather(origin, kept)
        text_splits = tf.searchsorted(origin, tf.cast(text_splits, tf.int32), out_type=tf.int64)
        return entries, text_splits, origin

    def _expand(self, entries):
        expands = entries >= _EXPANDS
        rows = tf.gather(self._expansions, tf.where(expands, entries - _EXPANDS, 0))  # [N, widest]
        width = self._expansions.shape[1]
        single = tf.pad(entries[:, tf.newaxis], [[0, 0], [0, width - 1]], constant_values=_DROPPED)
        origin = tf.repeat(tf.range(tf.size(entries)), width)
        return tf.reshape(tf.where(expands[:, tf.newaxis], rows, single), [-1]), origin

    def _with_final_sigmas(self, entries, sources):
        """Replaces each capital sigma by the form that str.lower() gives it."""
        is_sigma = (entries >= _SIGMA) & (entries < _EXPANDS)
        sigma = tf.where(self._ends_a_word(sources), unicode_table.FINAL_SIGMA, unicode_table.SMALL_SIGMA)
        return tf.where(is_sigma, sigma, entries)

    def _ends_a_word(self, sources):
        """Returns whether a capital sigma at each character would be final, bool [N]; see `load_sigma_context`. Every
        text ends with a space, so the search never crosses into the next text."""
        context = tf.gather(self._sigma_context, sources)
        decides = tf.cast(tf.not_equal(context, unicode_table.IGNORED), tf.int32)
        deciding = tf.boolean_mask(context, decides > 0)
        cased = tf.concat([[False], tf.equal(deciding, unicode_table.CASED), [False]], 0)
        up_to = tf.cumsum(decides)  # index in `cased` of the last deciding character up to here
        return tf.gather(cased, up_to - decides) & ~tf.gather(cased, up_to + 1)

    def _in_canonical_order(self, entries):
        """Sorts adjacent marks by their canonical combining class, as NFD does. A dropped character without a class
        (BOUNDARY) separates marks; other dropped characters do not."""
        is_mark = (entries >= _MARK) & (entries < _SIGMA)
        parts = ~is_mark & ((entries < _DROPPED) | (entries >= _BOUNDARY))
        positions = tf.where(is_mark)
        run = tf.cast(tf.gather_nd(tf.cumsum(tf.cast(parts, tf.int32)), positions), tf.int64)
        marks = tf.gather_nd(entries, positions) - _MARK
        classes = tf.gather(self._mark_classes, tf.searchsorted(self._marks, marks))
        order = tf.argsort(run * 256 + tf.cast(classes, tf.int64), stable=True)
        return tf.tensor_scatter_nd_update(entries, positions, tf.gather(marks, order))


def byte_lengths(code_points: tf.Tensor) -> tf.Tensor:
    """Returns the number of UTF-8 bytes of each code point, int32."""
    return 1 + sum(tf.cast(code_points >= first, tf.int32) for first in (0x80, 0x800, 0x10000))


def _if_any(entries, kind, change):
    """Returns `change()` if any entry is of this kind or a later kind, else the entries."""
    return tf.cond(tf.reduce_any(entries >= kind), change, lambda: entries)


def _joined(entries, splits):
    """Returns normalized texts, string [B], with a space for each character that separates words."""
    code_points = tf.bitwise.bitwise_and(entries, unicode_table.CODE_POINT_MASK)
    code_points = tf.where(entries < _SPACE, code_points, ord(" "))
    return tf.strings.unicode_encode(tf.RaggedTensor.from_row_splits(code_points, splits, validate=False), "UTF-8")


def _encode(code_points, splits, longest):
    too_long = splits[1:] - splits[:-1] > longest
    words = tf.strings.unicode_encode(tf.RaggedTensor.from_row_splits(code_points, splits, validate=False), "UTF-8")
    words = tf.cond(tf.reduce_any(too_long), lambda: tf.where(too_long, chr(TOO_LONG), words), lambda: words)
    return words, too_long
