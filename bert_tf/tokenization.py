"""BERT's WordPiece tokenizer, and SentencePiece's: one implementation for eager mode, tf.function and served graphs.

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

from bert_tf.core.errors import unreadable
from bert_tf.text import sentence_piece, tokenizer_files, tokenizer_rules
from bert_tf.text.added_tokens import AddedTokenFinder
from bert_tf.text.characters import Characters
from bert_tf.text.tokenizer_rules import CLS as CLS
from bert_tf.text.tokenizer_rules import MASK as MASK
from bert_tf.text.tokenizer_rules import PAD as PAD
from bert_tf.text.tokenizer_rules import SEP as SEP
from bert_tf.text.tokenizer_rules import SPECIAL_TOKENS, UNK, TokenizerRules
from bert_tf.text.word_splitting import MAX_CHARACTERS_PER_WORD, TOO_LONG, Words, WordSplitter, byte_lengths

_MAX_BYTES_PER_CHARACTER = 4
# A text that contains only these bytes does not need the Unicode table: each byte is a character, and all are kept.
_PLAIN_TEXT = r"[\t\n\r -~]*"
# Matches the tokens that can occur in such texts.
_PLAIN_TOKEN = re.compile(r"(##)?[0-9A-Za-z]+|[!-/:-@\[-`{-~]")


def load_vocabulary(path: str) -> list[str]:
    """Reads a vocabulary: a file with one token per line, or transformers' `tokenizer.json`, or a model's folder.

    A line that contains only white space (including U+2028 and U+2029) is the empty token, as in google-research/bert.
    The empty token has an id, but does not occur in tokenized texts, so a vocabulary may contain it several times.

    Returns:
      The tokens in the order of their ids; the tokens that a file of transformers in the same folder adds are the last.

    Raises:
      InputError: the file is missing, is not UTF-8, repeats a token other than the empty token, lacks a special token,
        or contains only special tokens.
    """
    return list(tokenizer_files.read(path, strict=False).vocabulary)


class BertTokenizer(tf.Module):
    """The tokenizer of google-research/bert (FullTokenizer), as a TensorFlow graph.

    If the files contain a Unigram model of SentencePiece, the tokenizer is that of XLM-R.

    Without files that state the rules, the vocabulary decides them: if it has tokens with capital letters, text keeps
    its case and its accents; otherwise text is lower-cased, and loses its accents unless the vocabulary has accents.

    Args:
      vocab_file: vocabulary with one token per line, or a model's folder, at any tf.io.gfile path; or
        `hf://owner/model`. The files of transformers, KerasHub and TF Hub in the folder of the vocabulary state the
        rules. Or the tokens in the order of their ids, or `TokenizerRules`.
      do_lower_case: whether to lower-case text; None for the rule of the files, else of the vocabulary.
      strip_accents: whether to strip accents; None for the rule of the files, else of the vocabulary, or the same as a
        given `do_lower_case`.

    Attributes:
      rules: the `TokenizerRules`.
      vocabulary: list of tokens in the order of their ids.
      vocab_file: path of the vocabulary; "" if it comes from no file.
      row_form: the arguments of `bert_tf.text.packing.pack` that the tokenizer states.
      do_lower_case: whether text is lower-cased.
      strip_accents: whether accents are stripped.
      pad_id: id of [PAD].
      unk_id: id of [UNK].
      cls_id: id of [CLS].
      sep_id: id of [SEP].
      mask_id: id of [MASK].

    Raises:
      InputError: a file states a rule that is not implemented; or see `load_vocabulary`.
    """

    def __init__(
        self,
        vocab_file: str | Sequence[str] | TokenizerRules,
        do_lower_case: bool | None = None,
        strip_accents: bool | None = None,
    ):
        super().__init__()
        if isinstance(vocab_file, (str, os.PathLike)):
            rules = tokenizer_files.read(os.fspath(vocab_file), do_lower_case, strip_accents)
        elif isinstance(vocab_file, TokenizerRules):
            rules = vocab_file
        else:
            rules = tokenizer_rules.of_tokens(vocab_file, do_lower_case, strip_accents)
        # Bypass tf.Module, which would take a quarter of a second to search the tokens for variables.
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "vocabulary", list(rules.vocabulary))
        self.vocab_file, self.do_lower_case, self.strip_accents = (
            rules.vocab_file, rules.do_lower_case, rules.strip_accents,
        )  # fmt: skip
        ids = {token: i for i, token in enumerate(self.vocabulary)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = map(rules.id_of, SPECIAL_TOKENS)
        form = {name: getattr(rules, name) for name in ("truncation_side", "has_token_types", "separators")}
        ids_of_form = {"cls_id": self.cls_id, "sep_id": self.sep_id, "pad_id": self.pad_id}
        object.__setattr__(self, "row_form", {**ids_of_form, **form})
        normalized, exact = (
            {ids[token.content]: token.content for token in rules.added_tokens if token.normalized == kind}
            for kind in (True, False)
        )
        self._added = AddedTokenFinder(exact) if exact else None
        with unreadable(rules.vocab_file):
            own = sentence_piece.splitting(rules.unigram) if rules.unigram else {}
        with tf.init_scope():
            self._split = WordSplitter(rules.do_lower_case, rules.strip_accents, normalized, **own)
        # The search for the longest token of a word must not find added tokens. `WordSplitter` writes such a string for
        # each normalized token.
        pieces = [
            _unreachable(i) if i in normalized or i in exact else token for i, token in enumerate(self.vocabulary)
        ]
        self._cut_plain_texts = None
        if rules.unigram:
            self._cut_words = sentence_piece.PieceCutter(pieces, rules.unigram.scores, self.unk_id, {*exact})
            return
        self._cut_words = word_cutter(pieces)
        self._cut_plain_texts = _wordpiece(
            tuple(_plain_or_unreachable(token, i) for i, token in enumerate(pieces)),
            MAX_CHARACTERS_PER_WORD,
            no_pretokenization=False,
        )

    def encode(self, texts: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        """Tokenizes texts into token ids, without [CLS] and [SEP].

        Args:
          texts: string [B], UTF-8; lone surrogates in strings of Python are dropped.

        Returns:
          RaggedTensor int32 [B, (tokens)].

        Raises:
          ValueError: `texts` is a single text.
        """
        return self._encode(_tensor(texts), with_offsets=False)[0]

    def encode_with_offsets(
        self, texts: tf.Tensor | Sequence[str]
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Tokenizes texts into token ids, and returns the range of each token's characters in its text.

        The range of a token starts at the source character that became the token's first character, and ends after the
        character that became the token's last character. Dropped characters (a separate accent, a control character)
        are in the range only if they are between these two characters. If one character became several characters (as
        a Hangul syllable does), the tokens of these characters share the source character. If canonical ordering
        exchanges marks, each mark takes the position of the mark that it replaces, so starts and ends never decrease.
        The range of [UNK] is the whole word.

        With SentencePiece, the range does not contain the white space before a word. A token that is only U+2581, which
        begins a word, has the range of the next character. As in transformers, [UNK] is one or more characters.

        Args:
          texts: string [B], UTF-8.

        Returns:
          ids: RaggedTensor int32 [B, (tokens)], equal to the result of `encode`.
          starts, ends: RaggedTensor int64 [B, (tokens)], indices of characters (code points) in the given text without
            bytes that are not UTF-8; ends are exclusive.

        Raises:
          ValueError: `texts` is a single text.
        """
        texts = _tensor(texts)
        ids, *places = self._encode(texts, with_offsets=True)
        # In plain texts, bytes are characters.
        has_others = ~tf.strings.regex_full_match(texts, _PLAIN_TEXT)
        characters, rows = Characters.of(tf.boolean_mask(texts, has_others)), ids.value_rowids()
        tokens = tf.where(tf.gather(has_others, rows))
        owners = tf.gather(tf.cumsum(tf.cast(has_others, tf.int64)) - 1, tf.gather_nd(rows, tokens))

        def in_characters(place):
            of_others = characters.offsets(owners, tf.gather_nd(place.values, tokens))
            return place.with_values(tf.tensor_scatter_nd_update(place.values, tokens, of_others))

        return ids, *map(in_characters, places)

    def _encode(self, texts, with_offsets):
        """Returns (ids,) or (ids, starts, ends); the offsets count bytes."""
        splits, *values = self._encode_words(texts, with_offsets) if not self._added else tf.cond(
            tf.reduce_any(self._added.are_in(texts)),
            lambda: self._encode_around_added(texts, with_offsets),
            lambda: self._encode_words(texts, with_offsets),
        )  # fmt: skip
        return tuple(tf.RaggedTensor.from_row_splits(v, splits, validate=False) for v in values)

    def _encode_around_added(self, texts, with_offsets):
        """Tokenizes texts that contain added tokens. Returns the same values as `_encode_plain`."""
        pieces, piece_splits, begins, added_ids = self._added.split(texts)
        is_added = added_ids >= 0
        added, other = tf.where(is_added)[:, 0], tf.where(~is_added)[:, 0]
        ids = tf.gather(added_ids, added)
        lengths = tf.cast(tf.strings.length(tf.gather(pieces, added)), tf.int64)
        ranges = (tf.zeros_like(lengths), lengths) if with_offsets else ()
        tokens = tf.range(tf.size(ids, tf.int64) + 1), ids, *ranges
        words = self._encode_words(tf.gather(pieces, other), with_offsets)
        splits, ids, *ranges = _interleaved(added, tokens, other, words)
        counts = splits[1:] - splits[:-1]
        ranges = [offset + tf.repeat(begins, counts) for offset in ranges]
        return tf.gather(splits, piece_splits), ids, *ranges

    def _encode_words(self, texts, with_offsets):
        """Tokenizes texts without added tokens. Returns the same values as `_encode_plain`."""
        if not self._cut_plain_texts:
            return self._encode_any(texts, with_offsets)
        is_plain = tf.strings.regex_full_match(texts, _PLAIN_TEXT)
        if self._split.added:
            normalized = tf.strings.regex_replace(texts, r"\s", " ")
            normalized = tf.strings.lower(normalized) if self.do_lower_case else normalized
            is_plain &= ~self._split.added.are_in(normalized)
        return tf.cond(
            tf.reduce_all(is_plain),
            lambda: self._encode_plain(texts, with_offsets),
            lambda: self._encode_mixed(texts, is_plain, with_offsets),
        )

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
        return _interleaved(
            plain, self._encode_plain(tf.gather(texts, plain), with_offsets),
            other, self._encode_any(tf.gather(texts, other), with_offsets),
        )  # fmt: skip

    def __repr__(self) -> str:
        kind = "Unigram" if self.rules.unigram else f"WordPiece, {'lower-cased' if self.do_lower_case else 'cased'}"
        return f"{type(self).__name__}({self.rules.vocab_file!r}: {len(self.vocabulary):,} tokens, {kind})"

    def tokenize(self, text: str) -> list[str]:
        """Tokenizes one text into a list of tokens.

        Raises:
          TypeError: `text` is not a string.
        """
        if not isinstance(text, str):
            raise TypeError(f"text has type {type(text).__name__}, not str; for several texts, call encode")
        return self.to_tokens(self.encode([text]).values.numpy())

    def to_tokens(self, ids: np.ndarray) -> list[str]:
        """Returns the tokens that have these ids."""
        return [self.vocabulary[i] for i in ids]


def _tensor(texts: tf.Tensor | Sequence[str]) -> tf.Tensor:
    if isinstance(texts, list | tuple):
        texts = [text.encode("utf-8", "ignore") if isinstance(text, str) else text for text in texts]
    texts = tf.convert_to_tensor(texts, tf.string)
    if texts.shape.rank == 0:
        raise ValueError("texts is a single text; give a list of texts")
    return texts


def _interleaved(first, first_rows, second, second_rows):
    """Merges two groups of rows, each with flat values; `first` and `second` are the positions of their rows."""
    (first_splits, *first_values), (second_splits, *second_values) = first_rows, second_rows
    splits = tf.concat([first_splits, second_splits[1:] + first_splits[-1]], 0)
    positions = tf.concat([first, second], 0)
    ranks = tf.range(tf.size(positions, tf.int64))
    order = tf.scatter_nd(positions[:, tf.newaxis], ranks, tf.shape(ranks, tf.int64))
    rows = [
        tf.gather(tf.RaggedTensor.from_row_splits(tf.concat(pair, 0), splits, validate=False), order)
        for pair in zip(first_values, second_values, strict=True)
    ]
    return (rows[0].row_splits, *(row.values for row in rows))


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
    return token if token == UNK or _PLAIN_TOKEN.fullmatch(token) else _unreachable(id_)


def _unreachable(id_):
    return f"{chr(TOO_LONG)}{id_}"


def _in_source(split: Words, starts: tf.RaggedTensor, ends: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Converts byte offsets in normalized words to byte offsets in the source texts."""
    lengths = tf.cast(byte_lengths(split.characters), tf.int64)
    character_starts = tf.cumsum(lengths, exclusive=True)  # bytes before each character in the concatenated words
    word_starts = tf.gather(tf.concat([character_starts, [tf.reduce_sum(lengths)]], 0), split.character_splits)
    word = starts.value_rowids()
    base = tf.gather(word_starts, word)
    # `ends` does not give the length of a word that TOO_LONG has replaced.
    last = tf.where(tf.gather(split.is_replaced, word), tf.gather(word_starts, word + 1), base + ends.values) - 1
    first_character = tf.searchsorted(character_starts, base + starts.values, side="right") - 1
    last_character = tf.searchsorted(character_starts, last, side="right") - 1
    return tf.gather(split.starts, first_character), tf.gather(split.ends, last_character)
