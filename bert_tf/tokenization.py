"""BERT's WordPiece tokenizer: one implementation, eager, in a tf.function and in a served graph.

Paper: section 3 ("Input/Output Representations"). Text is normalised by a table (`unicode_table`),
split at white space, and each word cut greedily into the longest pieces of the vocabulary.

Only ops that TF Serving links are used: core TensorFlow and tensorflow-text.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf import unicode_table
from tfrecords.errors import InputError

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# A longer word becomes [UNK], as in the original.
MAX_CHARACTERS_PER_WORD = 200
_MAX_BYTES_PER_CHARACTER = 4
# Replaces a word that is too long: a noncharacter, which no vocabulary can sensibly hold.
TOO_LONG = 0x10FFFF


def load_vocabulary(path: str) -> list[str]:
    """Reads a vocabulary file, one piece a line, the line's number being its id.

    Raises:
      InputError: the file is missing, is not UTF-8, holds a piece twice, or lacks a special token.
    """
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise InputError(f"{path}: no such file; give a vocab.txt")
    with tf.io.gfile.GFile(path, "rb") as file:
        lines = file.read().split(b"\n")
    if lines and not lines[-1].strip():
        lines.pop()
    pieces, first_line = [], {}
    for number, line in enumerate(lines, 1):
        try:
            piece = line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise InputError(f"{path}, line {number}: not UTF-8; save the vocabulary as UTF-8") from error
        if piece in first_line:
            raise InputError(f"{path}, line {number}: {piece!r} stands on line {first_line[piece]} already; remove one")
        first_line[piece] = number
        pieces.append(piece)
    for token in SPECIAL_TOKENS:
        if token not in first_line:
            raise InputError(f"{path}: the special token {token} is missing; add it on a line of its own")
    return pieces


class TextNormalizer(tf.Module):
    """Cleans, lower-cases, strips accents and sets words apart with spaces, as the original does."""

    def __init__(self, do_lower_case: bool = True):
        super().__init__()
        row_splits, values = unicode_table.load(do_lower_case)
        self._lower = do_lower_case
        self._row_splits = tf.constant(row_splits)
        self._values = tf.constant(values)
        self._sigma_context = tf.constant(unicode_table.load_sigma_context())

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalises UTF-8 texts; invalid bytes are dropped, never an error.

        Args:
          texts: string [B].

        Returns:
          string [B], words and punctuation marks set apart by ASCII spaces.
        """
        code_points = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")  # [B, (characters)]
        sources = code_points.values
        if self._lower:
            sources = self._with_final_sigmas(sources, code_points.row_lengths())
        table = tf.RaggedTensor.from_row_splits(self._values, self._row_splits, validate=False)
        becomes = tf.gather(table, sources)  # [all characters, (what each becomes)]
        splits = tf.gather(tf.cast(becomes.row_splits, tf.int64), code_points.row_splits)
        normalized = tf.RaggedTensor.from_row_splits(becomes.values, splits, validate=False)
        return tf.strings.unicode_encode(self._without_long_words(normalized), "UTF-8")

    def _with_final_sigmas(self, sources: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Sets the final form of sigma where str.lower() would: the one rule that looks at neighbours."""
        is_sigma = tf.equal(sources, unicode_table.CAPITAL_SIGMA)
        return tf.cond(
            tf.reduce_any(is_sigma),
            lambda: tf.where(
                tf.logical_and(is_sigma, self._ends_a_word(sources, lengths)),
                unicode_table.FINAL_SIGMA,
                sources,
            ),
            lambda: sources,
        )

    def _ends_a_word(self, sources: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """True where something cased comes before and nothing cased comes after, in the same text."""
        context = tf.gather(self._sigma_context, sources)
        text = tf.repeat(tf.range(tf.size(lengths)), lengths)
        decides = tf.not_equal(context, unicode_table.IGNORED)
        positions = tf.cast(tf.where(decides)[:, 0], tf.int32)  # [those that decide]
        up_to = tf.cumsum(tf.cast(decides, tf.int32))

        def cased_at(rank):
            # rank -1 and rank len(positions) are the outside, where nothing is cased
            padded = tf.concat([[-1], positions, [-1]], 0)
            neighbour = tf.gather(padded, rank + 1)
            inside = tf.maximum(neighbour, 0)
            return (neighbour >= 0) & (tf.gather(context, inside) == unicode_table.CASED) & (
                tf.gather(text, inside) == text
            )  # fmt: skip

        before = up_to - tf.cast(decides, tf.int32) - 1
        return cased_at(before) & ~cased_at(up_to)

    def _without_long_words(self, normalized: tf.RaggedTensor) -> tf.RaggedTensor:
        """Puts one unknown character for every word of more characters than the original looks at."""
        longest_text = tf.reduce_max(normalized.row_lengths(), keepdims=False)
        return tf.cond(
            longest_text > MAX_CHARACTERS_PER_WORD,
            lambda: _replace_long_words(normalized),
            lambda: normalized,
        )


def _replace_long_words(normalized: tf.RaggedTensor) -> tf.RaggedTensor:
    characters, text = normalized.values, normalized.value_rowids()
    # a word starts after every space and at every text
    starts = (characters == unicode_table.SPACE) | tf.concat([[True], text[1:] != text[:-1]], 0)
    word = tf.cumsum(tf.cast(starts, tf.int32)) - 1
    is_character = tf.cast(characters != unicode_table.SPACE, tf.int32)
    word_lengths = tf.math.unsorted_segment_sum(is_character, word, tf.reduce_max(word) + 1)
    too_long = tf.gather(word_lengths > MAX_CHARACTERS_PER_WORD, word)
    # of a word that is too long its start (a space, or the text's first character) stands for all
    replaced = tf.where(too_long & (characters != unicode_table.SPACE), TOO_LONG, characters)
    second = tf.concat([[False], starts[:-1] & (characters[:-1] == unicode_table.SPACE)], 0)
    keep = ~too_long | starts | second
    return tf.RaggedTensor.from_value_rowids(
        tf.boolean_mask(replaced, keep), tf.boolean_mask(text, keep), normalized.nrows(), validate=False
    )


class BertTokenizer(tf.Module):
    """The original's FullTokenizer as a graph.

    Args:
      vocab_file: one piece a line; any tf.io.gfile path.
      do_lower_case: lower-case and strip accents; must be what the vocabulary was made with.

    Attributes:
      vocabulary: list of pieces, position = id.
      pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens.

    Raises:
      InputError: see `load_vocabulary`.
    """

    def __init__(self, vocab_file: str, do_lower_case: bool = True):
        super().__init__()
        self.vocab_file = vocab_file
        self.do_lower_case = do_lower_case
        self.vocabulary = load_vocabulary(vocab_file)
        ids = {piece: i for i, piece in enumerate(self.vocabulary)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[t] for t in SPECIAL_TOKENS)
        self._normalize = TextNormalizer(do_lower_case)
        self._wordpiece = tf_text.FastWordpieceTokenizer(
            self.vocabulary,
            token_out_type=tf.int32,
            unknown_token=UNK,
            no_pretokenization=True,
            max_bytes_per_word=MAX_CHARACTERS_PER_WORD * _MAX_BYTES_PER_CHARACTER,
        )

    def encode(self, texts: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        """Cuts texts into ids of pieces, without [CLS] and [SEP].

        Args:
          texts: string [B], UTF-8.

        Returns:
          RaggedTensor int32 [B, (tokens)].
        """
        texts = tf.convert_to_tensor(texts, tf.string)
        words = tf.strings.split(self._normalize(texts))  # [B, (words)]
        return self._wordpiece.tokenize(words).merge_dims(1, 2)  # [B, (tokens)]

    def tokenize(self, text: str) -> list[str]:
        """Cuts one text into pieces."""
        ids = self.encode([text.encode("utf-8", errors="ignore")]).values.numpy()
        return [self.vocabulary[i] for i in ids]

    def to_pieces(self, ids: np.ndarray) -> list[str]:
        """The pieces that ids stand for."""
        return [self.vocabulary[i] for i in ids]
