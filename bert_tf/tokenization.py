"""BERT's WordPiece tokenizer: one implementation for eager mode, tf.function and served graphs.

Paper: section 3 ("Input/Output Representations").

`word_splitting` splits a text into normalized words. Each word is split greedily into the longest tokens of the
vocabulary. Texts that contain only ASCII characters, as most English texts do, take a faster path with the same result.

The graph uses only operations that TF Serving contains, from core TensorFlow and tensorflow-text.
"""

import functools
import os
import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.config import read_json
from bert_tf.core.errors import InputError
from bert_tf.core.vocabulary_file import read_tokens
from bert_tf.text.word_splitting import MAX_CHARACTERS_PER_WORD, TOO_LONG, Words, WordSplitter, byte_lengths

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# The file in which transformers saves a tokenizer. Since version 5, transformers does not write a vocab.txt.
TOKENIZER_JSON = "tokenizer.json"
_MAX_BYTES_PER_CHARACTER = 4
# A text that contains only these bytes does not need the Unicode table: each byte is a character, and all are kept.
_PLAIN_TEXT = r"[\t\n\r -~]*"
# Matches the tokens that can occur in such texts.
_PLAIN_TOKEN = re.compile(r"(##)?[0-9A-Za-z]+|[!-/:-@\[-`{-~]")


def load_vocabulary(path: str) -> list[str]:
    """Reads a vocabulary file: a file with one token per line, or transformers' `tokenizer.json`.

    A line that contains only white space (including U+2028 and U+2029) is the empty token, as in google-research/bert.
    The empty token has an id, but does not occur in tokenized texts, so a vocabulary may contain it several times.

    Returns:
      The tokens in the order of their ids.

    Raises:
      InputError: the file is missing, is not UTF-8, repeats a token other than the empty token, lacks a special token,
        or contains only special tokens.
    """
    is_json = os.path.basename(path) == TOKENIZER_JSON
    return check_vocabulary(_read_tokenizer_json(path) if is_json else read_tokens(path), path)


def check_vocabulary(tokens: list[str], path: str) -> list[str]:
    """Returns the tokens of a vocabulary; for the errors, see `load_vocabulary`. `path` names the vocabulary."""
    first_line = {}
    if not {*SPECIAL_TOKENS} & {*tokens}:
        raise InputError(
            f"{path}: contains none of {', '.join(SPECIAL_TOKENS)}, so it is not a vocabulary; check the path"
        )
    for number, token in enumerate(tokens, 1):
        if token and token in first_line:
            raise InputError(f"{path}, line {number}: {token!r} is already on line {first_line[token]}; remove one")
        first_line[token] = number
    for special in SPECIAL_TOKENS:
        if special not in first_line:
            raise InputError(f"{path}: the special token {special} is missing; add it on a line of its own")
    return tokens


def _read_tokenizer_json(path: str) -> list[str]:
    model = read_json(path).get("model")
    ids = model.get("vocab") if isinstance(model, dict) and model.get("type") == "WordPiece" else None
    if not isinstance(ids, dict) or {*map(str, ids.values())} != {*map(str, range(len(ids)))}:
        raise InputError(f"{path}: does not contain a BERT vocabulary; give a vocab.txt")
    return sorted(ids, key=lambda token: int(ids[token]))


class BertTokenizer(tf.Module):
    """The tokenizer of google-research/bert (FullTokenizer), as a TensorFlow graph.

    Args:
      vocab_file: vocabulary with one token per line; any tf.io.gfile path. Or the tokens in the order of their ids.
      do_lower_case: whether to lower-case and strip accents; must match the vocabulary.

    Attributes:
      vocabulary: list of tokens in the order of their ids.
      pad_id: id of [PAD].
      unk_id: id of [UNK].
      cls_id: id of [CLS].
      sep_id: id of [SEP].
      mask_id: id of [MASK].

    Raises:
      InputError: see `load_vocabulary`.
    """

    def __init__(self, vocab_file: str | Sequence[str], do_lower_case: bool = True):
        super().__init__()
        is_file = isinstance(vocab_file, (str, os.PathLike))
        self.vocab_file = vocab_file if is_file else ""
        self.do_lower_case = do_lower_case
        # Bypass tf.Module, which would take a quarter of a second to search the tokens for variables.
        tokens = load_vocabulary(vocab_file) if is_file else check_vocabulary(list(vocab_file), "the vocabulary")
        object.__setattr__(self, "vocabulary", tokens)
        ids = {token: i for i, token in enumerate(self.vocabulary)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[t] for t in SPECIAL_TOKENS)
        self._split = WordSplitter(do_lower_case)
        self._cut_words = word_cutter(self.vocabulary)
        self._cut_plain_texts = _wordpiece(
            tuple(_plain_or_unreachable(token, i) for i, token in enumerate(self.vocabulary)),
            MAX_CHARACTERS_PER_WORD,
            no_pretokenization=False,
        )

    def encode(self, texts: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        """Tokenizes texts into token ids, without [CLS] and [SEP].

        Args:
          texts: string [B], UTF-8.

        Returns:
          RaggedTensor int32 [B, (tokens)].

        Raises:
          ValueError: `texts` is a single text.
        """
        if tf.convert_to_tensor(texts).shape.rank == 0:
            raise ValueError("texts is a single text; give a list of texts")
        return self._encode(texts, with_offsets=False)[0]

    def encode_with_offsets(
        self, texts: tf.Tensor | Sequence[str]
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Tokenizes texts into token ids, and returns the byte range of each token in its text.

        The range of a token starts at the first byte of the source character that became the token's first character.
        The range ends after the last byte of the character that became the token's last character. Dropped characters
        (a separate accent, a control character, an invalid byte) are in the range only if they are between these two
        characters. If one character became several characters (as a Hangul syllable does), the tokens of these
        characters share the bytes of the source character. If canonical ordering exchanges marks, each mark takes the
        position of the mark that it replaces, so starts and ends never decrease. The range of [UNK] is the whole word.

        Args:
          texts: string [B], UTF-8.

        Returns:
          ids: RaggedTensor int32 [B, (tokens)], equal to the result of `encode`.
          starts, ends: RaggedTensor int64 [B, (tokens)], byte offsets in the given text; ends are exclusive.
        """
        return self._encode(texts, with_offsets=True)

    def _encode(self, texts, with_offsets):
        """Returns (ids,) or (ids, starts, ends)."""
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
        """Tokenizes ASCII texts. Returns (row splits, ids) or (row splits, ids, starts, ends), with flat values."""
        if self.do_lower_case:
            texts = tf.strings.lower(texts)
        ids, starts, ends = self._cut_plain_texts.tokenize_with_offsets(texts)
        return (ids.row_splits, ids.values, *((starts.values, ends.values) if with_offsets else ()))

    def _encode_any(self, texts, with_offsets):
        """Tokenizes texts with any characters. Returns the same values as `_encode_plain`."""
        split = self._split.split(texts, with_offsets)
        ids, starts, ends = self._cut_words.tokenize_with_offsets(split.words)
        row_splits = tf.gather(ids.row_splits, split.text_splits)
        if not with_offsets:
            return row_splits, ids.values
        return (row_splits, ids.values, *_in_source(split, starts, ends))

    def _encode_mixed(self, texts, is_plain, with_offsets):
        """Tokenizes ASCII texts on the faster path and other texts with `_encode_any`; keeps the order of the texts."""
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
        """Tokenizes one text into a list of tokens.

        Raises:
          TypeError: `text` is not a string.
        """
        if not isinstance(text, str):
            raise TypeError(f"text has type {type(text).__name__}, not str; for several texts, call encode")
        ids = self.encode([text.encode("utf-8", errors="ignore")]).values.numpy()
        return [self.vocabulary[i] for i in ids]

    def to_tokens(self, ids: np.ndarray) -> list[str]:
        """Returns the tokens that have these ids."""
        return [self.vocabulary[i] for i in ids]


def word_cutter(vocabulary: Sequence[str]) -> tf_text.FastWordpieceTokenizer:
    """Returns a tokenizer that splits normalized words, string [W], into token ids; `vocabulary` must contain [UNK]."""
    # tensorflow-text refuses repeated tokens, so each empty token gets a unique name. Words never contain \x01.
    vocabulary = tuple(token or f"\x01{id_}" for id_, token in enumerate(vocabulary))
    return _wordpiece(vocabulary, MAX_CHARACTERS_PER_WORD * _MAX_BYTES_PER_CHARACTER, no_pretokenization=True)


@functools.lru_cache(maxsize=4)
def _wordpiece(vocabulary, max_bytes, no_pretokenization):
    # This code may run while TensorFlow traces a function. The cache must not keep a tensor of that function's graph.
    with tf.init_scope():
        return tf_text.FastWordpieceTokenizer(
            list(vocabulary),
            token_out_type=tf.int32,
            unknown_token=UNK,
            no_pretokenization=no_pretokenization,
            max_bytes_per_word=max_bytes,
        )


def _plain_or_unreachable(token, id_):
    # If a token contains white space, tensorflow-text wrongly splits a word that equals the start of this token. Plain
    # texts cannot contain such tokens, so strings that never occur replace them.
    return token if token == UNK or _PLAIN_TOKEN.fullmatch(token) else f"{chr(TOO_LONG)}{id_}"


def _in_source(split: Words, starts: tf.RaggedTensor, ends: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Converts byte offsets in normalized words to byte offsets in the source texts."""
    lengths = tf.cast(byte_lengths(split.characters), tf.int64)
    character_starts = tf.cumsum(lengths, exclusive=True)  # bytes before each character in the concatenated words
    word_starts = tf.gather(tf.concat([character_starts, [tf.reduce_sum(lengths)]], 0), split.character_splits)
    word = starts.value_rowids()
    base = tf.gather(word_starts, word)
    # TOO_LONG has replaced words that are too long, so `ends` does not give their lengths.
    last = tf.where(tf.gather(split.too_long, word), tf.gather(word_starts, word + 1), base + ends.values) - 1
    first_character = tf.searchsorted(character_starts, base + starts.values, side="right") - 1
    last_character = tf.searchsorted(character_starts, last, side="right") - 1
    return tf.gather(split.starts, first_character), tf.gather(split.ends, last_character)
