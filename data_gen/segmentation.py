"""Measures how well a vocabulary fits a corpus, by splitting the words of the corpus as the tokenizer does."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.tokenization import UNK, word_cutter

_WORDS_PER_BATCH = 100_000


@dataclasses.dataclass(frozen=True)
class Fit:
    """Statistics that show how well a vocabulary fits a corpus."""

    tokens_per_word: float  # mean number of tokens per word of the running text; each [UNK] counts as one token
    unknown_share: float  # fraction of the words that become [UNK]


class Segmenter:
    """Splits normalized words as `BertTokenizer` does, with a vocabulary that need not be in a file.
    `vocabulary`: tokens in the order of their ids, including [UNK]."""

    def __init__(self, vocabulary: Sequence[str]):
        self.unk_id = vocabulary.index(UNK)
        self._tokenizer = word_cutter(list(vocabulary))

    def __call__(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Splits words into tokens.
        Returns:
        `ids`: int32 [tokens], the concatenated token ids of all words.
        `lengths`: int64 [words], the number of tokens of each word."""
        ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for start in range(0, len(words), _WORDS_PER_BATCH):
            tokens = self._tokenizer.tokenize(tf.constant(words[start : start + _WORDS_PER_BATCH], tf.string))
            ids.append(tokens.values.numpy())
            lengths.append(tokens.row_lengths().numpy())
        return np.concatenate(ids), np.concatenate(lengths)


def measure(vocabulary: Sequence[str], word_counts: Mapping[str, int]) -> Fit:
    """Measures how well a vocabulary fits counted words.
    `vocabulary`: tokens in the order of their ids, including [UNK].
    `word_counts`: number of occurrences of each word; must contain at least one word."""
    segment = Segmenter(vocabulary)
    counts = np.fromiter(word_counts.values(), np.int64, len(word_counts))
    ids, lengths = segment(list(word_counts))
    unknown = counts[ids[np.cumsum(lengths) - lengths] == segment.unk_id].sum()
    return Fit(float((counts * lengths).sum() / counts.sum()), float(unknown / counts.sum()))
