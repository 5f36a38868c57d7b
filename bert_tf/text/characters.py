"""The characters of served texts. Character offsets tell the client where an answer is in the text.

An offset is the number of Unicode characters (code points) before a place in the text. Invalid bytes do not count. So
an offset is an index into `text.decode("utf-8", "ignore")` in Python.

Letters: N characters of all texts, K places or ranges in texts.
"""

from typing import NamedTuple

import tensorflow as tf

# The offset of values that are not in the text, such as padding.
NOWHERE = -1


class Characters(NamedTuple):
    """The characters of texts."""

    codes: tf.RaggedTensor  # RaggedTensor int32 [B, (characters)], the code points
    begins: tf.Tensor  # int64 [N], byte offset of each character in the concatenation of all texts
    bases: tf.Tensor  # int64 [B], byte offset of each text in the concatenation of all texts

    @classmethod
    def of(cls, texts: tf.Tensor) -> "Characters":
        """Returns the characters of texts, string [B]; bytes that are not UTF-8 do not count as characters."""
        codes, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="ignore")
        bases = tf.cumsum(tf.cast(tf.strings.length(texts), tf.int64), exclusive=True)
        return cls(codes, offsets.values + tf.gather(bases, offsets.value_rowids()), bases)

    def offsets(self, owners: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        """Converts byte offsets to character offsets.
        `owners`: int64 [K], index of the text that each place belongs to.
        `places`: int64 [K], byte offsets in these texts. At each offset, a character begins or the text ends.
        Returns int64 [K], the number of characters of the text before each place."""
        characters = tf.searchsorted(self.begins, places + tf.gather(self.bases, owners), out_type=tf.int64)
        return characters - tf.gather(self.codes.row_starts(), owners)

    def texts(self, owners: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Returns parts of texts.
        `owners`: int64 [K], index of the text that each part belongs to.
        `starts`: int64 [K], character offset of each part's start.
        `ends`: int64 [K], character offset of each part's end, exclusive.
        Returns string [K]."""
        first = tf.gather(self.codes.row_starts(), owners)
        ranges = tf.ragged.range(first + starts, first + ends)
        return tf.strings.unicode_encode(tf.gather(self.codes.values, ranges), "UTF-8")
