"""Finds the tokens that transformers added to a vocabulary, such as [URL] or <e1>, before a text is split into words.

Letters: P pieces, A added tokens.
"""

import re
from collections.abc import Mapping

import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.text.tokenizer_rules import TokenizerRules


class AddedTokenFinder(tf.Module):
    """Splits texts at added tokens, as transformers does: at the leftmost token, and there at the longest.

    In a tokenizer that lower-cases text, tokens that are `normalized` are found in any case.

    Args:
      ids: ids of all tokens.
    """

    def __init__(self, rules: TokenizerRules, ids: Mapping[str, int]):
        super().__init__()
        added = sorted(rules.added_tokens, key=lambda token: -len(token.content))
        any_case = [rules.do_lower_case and token.normalized for token in added]
        patterns = [re.escape(token.content) for token in added]
        # RE2 takes the first alternative that matches, so longer tokens come first.
        alternatives = [f"(?i:{p})" if any_ else p for p, any_ in zip(patterns, any_case, strict=True)]
        self._pattern = f"({'|'.join(alternatives)})"
        self._contents = tf.constant([token.content for token in added])
        self._lower_cased = tf.strings.lower(self._contents, "utf-8")
        self._any_case = tf.constant(any_case)
        self._ids = tf.constant([ids[token.content] for token in added], tf.int32)

    def are_in(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns whether any text contains an added token, bool []."""
        return tf.reduce_any(tf.strings.regex_full_match(texts, rf"\C*{self._pattern}\C*"))  # \C is any byte

    def split(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Splits texts into added tokens and the text between them.

        Args:
          texts: string [B].

        Returns:
          pieces: string [P].
          piece_splits: int64 [B + 1]; text b has the pieces from piece_splits[b] up to piece_splits[b + 1].
          begins: int64 [P], the byte in the text at which each piece begins.
          ids: int32 [P], the id of the added token; -1 for other pieces.
        """
        # The operation ends a text at its first NUL. The tokenizer removes U+0001 as it removes NUL.
        texts = tf.strings.regex_replace(texts, r"\x00", "\x01")
        pieces, begins, _ = tf_text.regex_split_with_offsets(texts, self._pattern, self._pattern)
        exact = tf.equal(pieces.values[:, tf.newaxis], self._contents)  # [P, A]
        lower = tf.strings.lower(pieces.values, "utf-8")[:, tf.newaxis]
        is_token = exact | (self._any_case & tf.equal(lower, self._lower_cased))
        ids = tf.gather(self._ids, tf.argmax(is_token, 1))
        ids = tf.where(tf.reduce_any(is_token, 1), ids, -1)
        return pieces.values, tf.cast(pieces.row_splits, tf.int64), tf.cast(begins.values, tf.int64), ids
