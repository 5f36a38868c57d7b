"""Learning a WordPiece vocabulary from a corpus.

Paper: section 3 ("Input/Output Representations").

Pieces are merged pair by pair, the most frequent pair first (byte-pair encoding over words, the
continuing pieces marked with "##"), until the vocabulary has the size asked for. The greedy
longest-match tokenizer then finds every piece, because each merge's parts are pieces too.
"""

import collections
import heapq
import itertools
from collections.abc import Mapping, Sequence

import tensorflow as tf
from absl import logging

from bert_tf import command_line
from bert_tf.tokenization import SPECIAL_TOKENS
from bert_tf.word_splitting import MAX_CHARACTERS_PER_WORD, TOO_LONG, WordSplitter
from data_gen.documents import read_batches
from data_gen.settings import VocabularySettings
from tfrecords import reader, writer
from tfrecords.errors import InputError

# Rarer characters are left to [UNK], so that a few foreign lines cannot fill the vocabulary.
MAX_ALPHABET = 1000
JOINER = "##"


def count_words(files: Sequence[str], do_lower_case: bool) -> collections.Counter:
    """Counts words as the tokenizer sees them: normalised, split at spaces and punctuation."""
    split = WordSplitter(do_lower_case)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def unique_words(lines):
        words, _, counts = tf.unique_with_counts(split(lines).values)
        return words, counts

    total: collections.Counter = collections.Counter()
    for batch in read_batches(files):
        words, counts = unique_words(tf.constant(batch))
        for word, count in zip(words.numpy().tolist(), counts.numpy().tolist(), strict=True):
            total[word.decode("utf-8")] += count
    del total[chr(TOO_LONG)]  # words that the tokenizer does not look at
    return total


def learn_vocabulary(settings: VocabularySettings) -> list[str]:
    """Learns a vocabulary and writes it, special tokens first: [PAD] 0, [UNK], [CLS], [SEP], [MASK].

    Returns:
      The pieces in the order of their ids.

    Raises:
      InputError: a file is missing, or the corpus holds no word.
    """
    files = reader.expand_files(settings.input_file)
    writer.check_outputs([settings.output_file], read=files)
    counts = count_words(files, settings.do_lower_case)
    if not counts:
        raise InputError(f"--input_file={settings.input_file}: holds no word to learn from")
    logging.info("counted %d different words, %d in all", len(counts), counts.total())
    learned = learn_pieces(counts, settings.vocab_size - len(SPECIAL_TOKENS))
    pieces = [*SPECIAL_TOKENS, *learned]
    writer.write_text(settings.output_file, "".join(f"{piece}\n" for piece in pieces))
    writer.write_text(f"{settings.output_file}.settings.json", command_line.to_json(settings))
    logging.info("wrote %d pieces to %s", len(pieces), settings.output_file)
    if len(pieces) < settings.vocab_size:
        logging.info("fewer than --vocab_size=%d: the corpus holds no more pairs", settings.vocab_size)
    return pieces


def learn_pieces(word_counts: Mapping[str, int], size: int) -> list[str]:
    """Learns pieces from counted words.

    Args:
      word_counts: how often each word occurs.
      size: number of pieces; fewer come back when no pair of neighbours is left to merge.

    Returns:
      First the alphabet (every character, at a word's start and within it), then the merges in
      their order; the same for the same counts whatever their order.
    """
    alphabet = _alphabet(word_counts, size)
    words, counts = [], []
    for word, count in sorted(word_counts.items()):
        symbols = [word[0], *(JOINER + c for c in word[1:])]
        if len(word) <= MAX_CHARACTERS_PER_WORD and alphabet.issuperset(symbols):
            words.append(symbols)
            counts.append(count)
    merges = _Merges(words, counts)
    pieces = dict.fromkeys(sorted(alphabet))
    while len(pieces) < size and (merged := merges.merge_most_frequent()):
        pieces[merged] = None
    return list(pieces)


def _alphabet(word_counts: Mapping[str, int], size: int) -> set[str]:
    """The most frequent single-character pieces, ties in their own order."""
    totals: collections.Counter = collections.Counter()
    for word, count in word_counts.items():
        totals[word[0]] += count
        for character in word[1:]:
            totals[JOINER + character] += count
    ranked = sorted(totals, key=lambda piece: (-totals[piece], piece))
    return set(ranked[: min(size, 2 * MAX_ALPHABET)])


class _Merges:
    """Words as lists of symbols, with the count of every pair of neighbours kept up to date."""

    def __init__(self, words: list[list[str]], counts: list[int]):
        self._words, self._counts = words, counts
        self._pair_counts: collections.Counter = collections.Counter()
        self._words_with = collections.defaultdict(set)
        for index, symbols in enumerate(words):
            for pair in itertools.pairwise(symbols):
                self._pair_counts[pair] += counts[index]
                self._words_with[pair].add(index)
        self._heap = [(-count, pair) for pair, count in self._pair_counts.items()]
        heapq.heapify(self._heap)

    def merge_most_frequent(self) -> str | None:
        """Merges the most frequent pair everywhere; None when no pair is left."""
        while self._heap:
            negative_count, pair = heapq.heappop(self._heap)
            if self._pair_counts.get(pair) == -negative_count:  # else its count has changed since
                merged = pair[0] + pair[1].removeprefix(JOINER)
                self._merge(pair, merged)
                return merged
        return None

    def _merge(self, pair: tuple[str, str], merged: str) -> None:
        changed = set()
        for index in self._words_with[pair]:
            before = self._words[index]
            after = _merge_symbols(before, pair, merged)
            self._words[index] = after
            changed |= self._add(before, index, -self._counts[index])
            changed |= self._add(after, index, self._counts[index])
            for neighbours in itertools.pairwise(after):
                self._words_with[neighbours].add(index)
        del self._words_with[pair]
        for other in changed:
            count = self._pair_counts[other]
            if count > 0:
                heapq.heappush(self._heap, (-count, other))
            else:
                del self._pair_counts[other]

    def _add(self, symbols: list[str], index: int, count: int) -> set[tuple[str, str]]:
        pairs = list(itertools.pairwise(symbols))
        for pair in pairs:
            self._pair_counts[pair] += count
        return set(pairs)


def _merge_symbols(symbols: list[str], pair: tuple[str, str], merged: str) -> list[str]:
    result, position = [], 0
    while position < len(symbols):
        if tuple(symbols[position : position + 2]) == pair:
            result.append(merged)
            position += 2
        else:
            result.append(symbols[position])
            position += 1
    return result
