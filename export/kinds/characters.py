"""The characters of served texts, and their offsets, which locate an answer in its text.

An offset counts Unicode characters (code points) of the text without its invalid bytes, as an index into
`text.decode("utf-8", "ignore")` does in Python.

Letters: B texts, N characters of all texts, K ranges.
"""

from typing import NamedTuple

import tensorflow as tf

# The offset of padding, which is not in the text.
NOWHERE = -1


class Characters(NamedTuple):
    """The characters of texts.

    Attributes:
      codes: RaggedTensor int32 [B, (characters)], code points.
      begins: int64 [N], the byte at which each character begins, counted through all texts.
      bases: int64 [B], the byte at which each text begins, counted in the same way.
    """

    codes: tf.RaggedTensor
    begins: tf.Tensor
    bases: tf.Tensor

    @classmethod
    def of(cls, texts: tf.Tensor) -> "Characters":
        """Reads texts, string [B]; bytes that are not UTF-8 do not count as characters."""
        codes, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="ignore")
        bases = tf.cumsum(tf.cast(tf.strings.length(texts), tf.int64), exclusive=True)
        return cls(codes, offsets.values + tf.gather(bases, offsets.value_rowids()), bases)

    def offsets(self, owners: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        """Converts bytes to characters.

        Args:
          owners: int64 [K], the text of each place.
          places: int64 [K], bytes from the start of the text, where a character begins or the text ends.

        Returns:
          int64 [K], the number of characters of the text before each place.
        """
        found = tf.searchsorted(self.begins, places + tf.gather(self.bases, owners), out_type=tf.int64)
        return found - tf.gather(self.codes.row_starts(), owners)

    def texts(self, owners: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Returns parts of the texts, string [K], from the characters `starts` to before `ends`, int64 [K]."""
        first = tf.gather(self.codes.row_starts(), owners)
        ranges = tf.ragged.range(first + starts, first + ends)
        return tf.strings.unicode_encode(tf.gather(self.codes.values, ranges), "UTF-8")
