"""Extends a vocabulary by the most useful tokens of a domain, without changing the ids of the existing tokens.

Paper: section 3 ("Input/Output Representations").

Byte-pair merging starts from the tokens into which the existing vocabulary splits the domain's words. Greedy
matching does not follow merges: it finds a long token even if the vocabulary lacks the shorter tokens from which the
long token was merged. A new token can also change how other words are split. Therefore the first rounds merge more
tokens than requested. Each round splits the words with all candidates, and the next round drops the candidates that
save the fewest tokens.
"""

import collections
import math
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.core.progress_bar import ProgressBar
from bert_tf.text import tokenizer_files, tokenizer_rules
from bert_tf.text.tokenizer_rules import UNUSED
from data_gen.merges import JOINER, Merges
from data_gen.segmentation import Segmenter
from data_gen.settings import VocabularySettings

# Number of candidates in each round, as a multiple of the number of requested tokens. Long tokens can form because the
# first rounds have many candidates. The last rounds replace tokens that are never used.
_SIZES = (4, 3, 2.5, 2, 1.7, 1.5, 1.3, 1.2, 1.1, 1.05, 1, 1, 1, 1)


class ExistingVocabulary:
    """The vocabulary to extend, and the places for its new tokens.
    `settings`: the settings; only `extend_vocab`, `extend_slots`, `vocab_size`, `do_lower_case` and `strip_accents` are
      used.
    `path`: the vocabulary's file.
    `tokens`: the tokens in the order of their ids.
    `wanted`: number of tokens to add.
    `rules`: the rules of the vocabulary's tokenizer."""

    def __init__(self, settings: VocabularySettings):
        path = settings.extend_vocab
        self.rules = rules = tokenizer_files.read(path, settings.do_lower_case, settings.strip_accents)
        rules.require_word_pieces("--extend_vocab")
        self.path = rules.vocab_file
        self.tokens = self._lines = list(rules.vocabulary)
        if tokenizer_files.is_whole(rules):
            with tf.io.gfile.GFile(rules.vocab_file, "rb") as file:
                # Keep the lines of the file unchanged, including white space, except where a token is added.
                self._lines = file.read().decode("utf-8").split("\n")[: len(self.tokens)]
        self._slots = None
        if settings.extend_slots == "end":
            self.wanted = settings.vocab_size - len(self.tokens)
            if self.wanted < 1:
                raise InputError(
                    f"--vocab_size={settings.vocab_size}: {path} already has {len(self.tokens)} tokens; "
                    "give a larger size, or --extend_slots=unused to fill its [unused] slots"
                )
        else:
            self._slots = [i for i, token in enumerate(self.tokens) if UNUSED.fullmatch(token)]
            self.wanted = len(self._slots)
            if not self._slots:
                raise InputError(
                    f"--extend_slots=unused: {path} has no [unused] slots left; "
                    "use --extend_slots=end with a larger --vocab_size to add tokens at its end"
                )
        tokenizer_rules.log_casing(rules, settings.do_lower_case)

    def text_with(self, added: Sequence[str]) -> str:
        lines = list(self._lines)
        if self._slots is None:
            lines += added
        else:
            for slot, token in zip(self._slots, added, strict=False):
                lines[slot] = token
        return "".join(f"{line}\n" for line in lines)


def extend_tokens(existing: Sequence[str], word_counts: Mapping[str, int], wanted: int) -> list[str]:
    """Finds the new tokens that most reduce the number of tokens into which the counted words are split.
    `existing`: tokens of the vocabulary, including [UNK].
    `word_counts`: number of occurrences of each word of the domain.
    `wanted`: number of tokens to find; fewer are returned if no other token would be used.
    Returns new tokens, the most useful first. Each new token occurs when the words are split with all new tokens. The
    result does not depend on the order of the words."""
    corpus = _Corpus(existing, word_counts)
    added: list[str] = []
    best, best_rank = [], (wanted, float("inf"))
    sizes = [math.ceil(factor * wanted) for factor in _SIZES]
    with ProgressBar("choosing tokens", len(sizes), "rounds") as progress:
        for size in sizes:
            added = added[:size] if len(added) >= size else corpus.fill(added, size)
            savings, cost = corpus.try_out(added)
            added = sorted((p for p in added if savings[p]), key=lambda p: (-savings[p], p))
            rank = (wanted - len(added), cost)
            if size == wanted and rank < best_rank:
                best, best_rank = added, rank
            progress.update()
    return best


class _Corpus:
    """The words of a domain, which are split with the existing vocabulary and added tokens."""

    def __init__(self, existing: Sequence[str], word_counts: Mapping[str, int]):
        self._existing, self._known = list(existing), set(existing)
        self._words = sorted(word_counts)
        self._counts = np.array([word_counts[word] for word in self._words], np.int64)
        self._characters = np.array([len(word) for word in self._words], np.int64)

    def fill(self, kept: Sequence[str], wanted: int) -> list[str]:
        """Adds the most frequent merges and missing characters to `kept`, up to `wanted` tokens in total."""
        vocabulary = self._existing + list(kept)
        segment, ids, lengths = self._cut(vocabulary)
        starts = np.cumsum(lengths) - lengths
        characters = self._missing_characters(ids[starts] == segment.unk_id, set(vocabulary))
        several = np.flatnonzero(lengths > 1)  # only words of several tokens have pairs
        merges = Merges(
            [[vocabulary[i] for i in ids[starts[w] : starts[w] + lengths[w]]] for w in several],
            self._counts[several].tolist(),
        )
        tokens = dict.fromkeys(kept)
        while len(tokens) < wanted:
            saving = merges.highest_count()
            if characters and characters[-1][0] >= max(saving, 1):
                _, token = characters.pop()
            elif saving:
                token = merges.merge_most_frequent()
            else:
                break
            if token not in self._known:
                tokens[token] = None
        return list(tokens)

    def try_out(self, added: Sequence[str]) -> tuple[dict[str, int], int]:
        """Splits the words with the added tokens.
        Returns:
        `savings`: the number of tokens that each added token saves in the running text; 0 if the token is never used.
        `cost`: the number of tokens of the running text; an [UNK] counts as one token per character of its word."""
        vocabulary = self._existing + list(added)
        segment, ids, lengths = self._cut(vocabulary)
        uses = np.zeros(len(vocabulary), np.int64)
        np.add.at(uses, ids, np.repeat(self._counts, lengths))
        unknown = ids[np.cumsum(lengths) - lengths] == segment.unk_id
        cost = int((self._counts * np.where(unknown, self._characters, lengths)).sum())
        tokens, savings = set(vocabulary), {}
        for token, use in zip(added, uses[len(self._existing) :].tolist(), strict=True):
            # Credit a missing character with at least one saved token, because it keeps a word from becoming [UNK].
            savings[token] = use * max(_tokens_without(token, tokens) - 1, 1)
        return savings, cost

    def _cut(self, vocabulary: list[str]) -> tuple[Segmenter, np.ndarray, np.ndarray]:
        segment = Segmenter(vocabulary)
        return segment, *segment(self._words)

    def _missing_characters(self, unknown: np.ndarray, tokens: set[str]) -> list[tuple[int, str]]:
        """Returns the single-character tokens that unknown words need, with their counts; the most frequent is last."""
        totals: collections.Counter = collections.Counter()
        for index in np.flatnonzero(unknown):
            word, count = self._words[index], int(self._counts[index])
            for symbol in {word[0], *(JOINER + c for c in word[1:])} - tokens:
                totals[symbol] += count
        ranked = sorted(totals, key=lambda symbol: (-totals[symbol], symbol), reverse=True)
        return [(totals[symbol], symbol) for symbol in ranked]


def _tokens_without(token: str, tokens: set[str]) -> int:
    """Returns the number of tokens that greedy matching needs for a token's text without the token itself."""
    prefix = JOINER if token.startswith(JOINER) else ""
    rest, number = token.removeprefix(JOINER), 0
    while rest:
        ends = range(len(rest), 0, -1)
        end = next((e for e in ends if prefix + rest[:e] in tokens and prefix + rest[:e] != token), 1)
        prefix, rest, number = JOINER, rest[end:], number + 1
    return number
