"""How a vocabulary cuts a corpus's words: the tokenizer's greedy matching, and what it comes to."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.tokenization import UNK, word_cutter

_WORDS_PER_BATCH = 100_000


@dataclasses.dataclass(frozen=True)
class Fit:
    """How well a vocabulary fits a corpus.

    Attributes:
      pieces_per_word: mean over the words of the running text; an [UNK] is one piece.
      unknown_share: share of the words that become [UNK].
    """

    pieces_per_word: float
    unknown_share: float


class Segmenter:
    """Cuts normalised words as `BertTokenizer` does, for a vocabulary that is in no file yet.

    Args:
      vocabulary: pieces, position = id; [UNK] among them.
    """

    def __init__(self, vocabulary: Sequence[str]):
        self.unk_id = vocabulary.index(UNK)
        self._tokenizer = word_cutter(list(vocabulary))

    def __call__(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Cuts words.

        Returns:
          int32 ids of all words' pieces one after another, and int64 number of pieces a word [words].
        """
        ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for start in range(0, len(words), _WORDS_PER_BATCH):
            pieces = self._tokenizer.tokenize(tf.constant(words[start : start + _WORDS_PER_BATCH], tf.string))
            ids.append(pieces.values.numpy())
            lengths.append(pieces.row_lengths().numpy())
        return np.concatenate(ids), np.concatenate(lengths)


def measure(vocabulary: Sequence[str], word_counts: Mapping[str, int]) -> Fit:
    """Measures how a vocabulary fits counted words.

    Args:
      vocabulary: pieces, position = id; [UNK] among them.
      word_counts: how often each word occurs; at least one word.
    """
    segment = Segmenter(vocabulary)
    pieces = unknown = total = 0
    for words in _batches(word_counts):
        counts = np.array([word_counts[word] for word in words], np.int64)
        ids, lengths = segment(words)
        pieces += int((counts * lengths).sum())
        unknown += int(counts[ids[np.cumsum(lengths) - lengths] == segment.unk_id].sum())
        total += int(counts.sum())
    return Fit(pieces / total, unknown / total)


def _batches(words: Mapping[str, int]) -> Iterator[list[str]]:
    batch = []
    for word in words:
        batch.append(word)
        if len(batch) == _WORDS_PER_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
