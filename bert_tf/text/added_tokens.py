"""Finds the tokens that transformers added to a vocabulary, such as [URL] or <e1>.

Tokens that are not normalized are found in the text, before all others. The other tokens are normalized, and are then
found in the normalized text.

Letters: P pieces, A added tokens.
"""

import re
from collections.abc import Mapping

import tensorflow as tf
import tensorflow_text as tf_text


class AddedTokenFinder(tf.Module):
    """Splits texts at added tokens, as transformers does: at the leftmost token, and there at the longest.
    `tokens`: the tokens by their ids."""

    def __init__(self, tokens: Mapping[int, str]):
        super().__init__()
        # RE2 takes the first alternative that matches, so longer tokens come first.
        self._pattern = f"({'|'.join(map(re.escape, sorted(tokens.values(), key=len, reverse=True)))})"
        self._contents = tf.constant([*tokens.values()])
        self._ids = tf.constant([*tokens], tf.int32)

    def are_in(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns which texts contain an added token, bool [B]."""
        return tf.strings.regex_full_match(texts, rf"\C*{self._pattern}\C*")  # \C is any byte

    def split(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Splits texts into added tokens and the text between them.
        `texts`: string [B].
        Returns:
        `pieces`: string [P].
        `piece_splits`: int64 [B + 1]; text b has the pieces from piece_splits[b] up to piece_splits[b + 1].
        `begins`: int64 [P], the byte in the text at which each piece begins.
        `ids`: int32 [P], the id of the added token; -1 for other pieces."""
        # The operation ends a text at its first NUL. The tokenizer removes U+0001 as it removes NUL.
        texts = tf.strings.regex_replace(texts, r"\x00", "\x01")
        pieces, begins, _ = tf_text.regex_split_with_offsets(texts, self._pattern, self._pattern)
        is_token = tf.equal(pieces.values[:, tf.newaxis], self._contents)  # [P, A]
        ids = tf.where(tf.reduce_any(is_token, 1), tf.gather(self._ids, tf.argmax(is_token, 1)), -1)
        return pieces.values, tf.cast(pieces.row_splits, tf.int64), tf.cast(begins.values, tf.int64), ids
