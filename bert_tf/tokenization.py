"""BERT's WordPiece tokenizer: one implementation, eager, in a tf.function and in a served graph.

Paper: section 3 ("Input/Output Representations"). Text is cut into normalised words (`word_splitting`),
and each word greedily into the longest pieces of the vocabulary. Texts of ASCII alone, most of English, take
a shorter way to the same pieces.

Only ops that TF Serving links are used: core TensorFlow and tensorflow-text.
"""

import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.text.word_splitting import MAX_CHARACTERS_PER_WORD, TOO_LONG, Words, WordSplitter, byte_lengths
from tfrecords.errors import InputError

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_MAX_BYTES_PER_CHARACTER = 4
# Texts of these bytes alone need no table: no control is dropped, and bytes are characters.
_PLAIN_TEXT = r"[\t\n\r -~]*"
# What a word of such a text can be cut into.
_PLAIN_PIECE = re.compile(r"(##)?[0-9A-Za-z]+|[!-/:-@\[-`{-~]")


def load_vocabulary(path: str) -> list[str]:
    """Reads a vocabulary file, one token a line, the line's number being its id.

    A line of white space, U+2028 or U+2029 included, is the empty token, as in the original: it keeps its id and
    no text ever gets it, so there may be several.

    Raises:
      InputError: the file is missing, is not UTF-8, holds another token twice, or lacks a special token.
    """
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise InputError(f"{path}: no such file; give a vocab.txt")
    with tf.io.gfile.GFile(path, "rb") as file:
        lines = file.read().split(b"\n")
    if lines and not lines[-1].strip():
        lines.pop()
    if not {token.encode() for token in SPECIAL_TOKENS} & {line.strip() for line in lines}:
        raise InputError(f"{path}: holds none of {', '.join(SPECIAL_TOKENS)}, so it is no vocabulary; check the path")
    pieces, first_line = [], {}
    for number, line in enumerate(lines, 1):
        try:
            piece = line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise InputError(f"{path}, line {number}: not UTF-8; save the vocabulary as UTF-8") from error
        if piece and piece in first_line:
            raise InputError(f"{path}, line {number}: {piece!r} stands on line {first_line[piece]} already; remove one")
        first_line[piece] = number
        pieces.append(piece)
    for token in SPECIAL_TOKENS:
        if token not in first_line:
            raise InputError(f"{path}: the special token {token} is missing; add it on a line of its own")
    return pieces


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
        # set past tf.Module, which would look at every piece for variables to track: a quarter of a second
        object.__setattr__(self, "vocabulary", load_vocabulary(vocab_file))
        ids = {piece: i for i, piece in enumerate(self.vocabulary)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[t] for t in SPECIAL_TOKENS)
        self._split = WordSplitter(do_lower_case)
        self._cut_words = word_cutter(self.vocabulary)
        self._cut_plain_texts = _wordpiece(
            [_plain_or_unreachable(piece, i) for i, piece in enumerate(self.vocabulary)],
            MAX_CHARACTERS_PER_WORD,
            no_pretokenization=False,
        )

    def encode(self, texts: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        """Cuts texts into ids of pieces, without [CLS] and [SEP].

        Args:
          texts: string [B], UTF-8.

        Returns:
          RaggedTensor int32 [B, (tokens)].
        """
        return self._encode(texts, with_offsets=False)[0]

    def encode_with_offsets(
        self, texts: tf.Tensor | Sequence[str]
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Cuts texts into ids of pieces and says where each piece stands in its text.

        A piece starts at the first byte of the source character that became the piece's first character, and
        ends after the last byte of the one that became its last. So what is dropped inside a piece is inside
        its bytes, and what is dropped before or after it (an accent of its own, a control, an invalid byte) is
        not. Pieces of one character that became several (a Hangul syllable) share that character's bytes. Marks
        that canonical ordering exchanges count as standing where the mark they replace stood, so starts and
        ends never decrease. [UNK] has the bytes of the whole word.

        Args:
          texts: string [B], UTF-8.

        Returns:
          ids: RaggedTensor int32 [B, (tokens)], what `encode` returns.
          starts, ends: RaggedTensor int64 [B, (tokens)], bytes of the text as given, end exclusive.
        """
        return self._encode(texts, with_offsets=True)

    def _encode(self, texts, with_offsets):
        """(ids,) or (ids, starts, ends)."""
        texts = tf.convert_to_tensor(texts, tf.string)
        is_plain = tf.strings.regex_full_match(texts, _PLAIN_TEXT)
        flat = tf.cond(
            tf.reduce_all(is_plain),
            lambda: self._encode_plain(texts, with_offsets),
            lambda: self._encode_mixed(texts, is_plain, with_offsets),
        )
        splits, *values = flat
        return tuple(tf.RaggedTensor.from_row_splits(v, splits, validate=False) for v in values)

    def _encode_plain(self, texts, with_offsets):
        """(row splits, ids) or (row splits, ids, starts, ends), as flat tensors, of texts of ASCII alone."""
        if self.do_lower_case:
            texts = tf.strings.lower(texts)
        ids, starts, ends = self._cut_plain_texts.tokenize_with_offsets(texts)
        return (ids.row_splits, ids.values, *((starts.values, ends.values) if with_offsets else ()))

    def _encode_any(self, texts, with_offsets):
        """The same of any texts."""
        split = self._split.split(texts, with_offsets)
        ids, starts, ends = self._cut_words.tokenize_with_offsets(split.words)
        row_splits = tf.gather(ids.row_splits, split.text_splits)
        if not with_offsets:
            return row_splits, ids.values
        return (row_splits, ids.values, *_in_source(split, starts, ends))

    def _encode_mixed(self, texts, is_plain, with_offsets):
        """The same, each text by its own way, in the order given."""
        plain, other = tf.where(is_plain)[:, 0], tf.where(~is_plain)[:, 0]
        plain_splits, *plain_values = self._encode_plain(tf.gather(texts, plain), with_offsets)
        other_splits, *other_values = self._encode_any(tf.gather(texts, other), with_offsets)
        splits = tf.concat([plain_splits, other_splits[1:] + plain_splits[-1]], 0)
        ranks = tf.range(tf.size(texts, tf.int64))
        order = tf.scatter_nd(tf.concat([plain, other], 0)[:, tf.newaxis], ranks, tf.shape(ranks, tf.int64))
        rows = [
            tf.gather(tf.RaggedTensor.from_row_splits(tf.concat(pair, 0), splits, validate=False), order)
            for pair in zip(plain_values, other_values, strict=True)
        ]
        return (rows[0].row_splits, *(row.values for row in rows))

    def tokenize(self, text: str) -> list[str]:
        """Cuts one text into pieces."""
        ids = self.encode([text.encode("utf-8", errors="ignore")]).values.numpy()
        return [self.vocabulary[i] for i in ids]

    def to_pieces(self, ids: np.ndarray) -> list[str]:
        """The pieces that ids stand for."""
        return [self.vocabulary[i] for i in ids]


def word_cutter(vocabulary: Sequence[str]) -> tf_text.FastWordpieceTokenizer:
    """Cuts normalised words, string [W], into ids of the pieces of a vocabulary with [UNK]."""
    # tensorflow-text takes no token twice, and no word holds a control character
    vocabulary = [token or f"\x01{id_}" for id_, token in enumerate(vocabulary)]
    return _wordpiece(vocabulary, MAX_CHARACTERS_PER_WORD * _MAX_BYTES_PER_CHARACTER, no_pretokenization=True)


def _wordpiece(vocabulary, max_bytes, no_pretokenization):
    return tf_text.FastWordpieceTokenizer(
        vocabulary,
        token_out_type=tf.int32,
        unknown_token=UNK,
        no_pretokenization=no_pretokenization,
        max_bytes_per_word=max_bytes,
    )


def _plain_or_unreachable(piece, id_):
    # tensorflow-text mistakes words at which a piece with white space inside begins
    return piece if piece == UNK or _PLAIN_PIECE.fullmatch(piece) else f"{chr(TOO_LONG)}{id_}"


def _in_source(split: Words, starts: tf.RaggedTensor, ends: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Moves byte offsets from the normalised word to the source text."""
    lengths = tf.cast(byte_lengths(split.characters), tf.int64)
    character_starts = tf.cumsum(lengths, exclusive=True)  # bytes before each character, words laid end to end
    word_starts = tf.gather(tf.concat([character_starts, [tf.reduce_sum(lengths)]], 0), split.character_splits)
    word = starts.value_rowids()
    base = tf.gather(word_starts, word)
    # the stand-in of a word that is too long has a length of its own
    last = tf.where(tf.gather(split.too_long, word), tf.gather(word_starts, word + 1), base + ends.values) - 1
    first_character = tf.searchsorted(character_starts, base + starts.values, side="right") - 1
    last_character = tf.searchsorted(character_starts, last, side="right") - 1
    return tf.gather(split.starts, first_character), tf.gather(split.ends, last_character)
