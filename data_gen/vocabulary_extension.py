"""Adding a domain's most useful pieces to an existing vocabulary, whose ids stay what they are.

Paper: section 3 ("Input/Output Representations").

Byte-pair merging goes on from where the existing vocabulary's greedy matching leaves the domain's
words. Greedy matching does not retrace merges: it takes a long piece without the shorter ones that led
to it, and a new piece may cut other words differently. So more pieces are merged than are wanted, all
are tried on the words, and those that save least are given up, round by round.
"""

import collections
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.tokenization import SPECIAL_TOKENS, load_vocabulary
from data_gen.merges import JOINER, Merges
from data_gen.progress import Progress
from data_gen.segmentation import Segmenter
from data_gen.settings import VocabularySettings
from tfrecords.errors import InputError

# Sizes to go through, as multiples of the number of pieces wanted: far too many at first, so that long
# pieces are found, then fewer and fewer; at the end what is never used gives way to other pieces.
_SIZES = (4, 3, 2.5, 2, 1.7, 1.5, 1.3, 1.2, 1.1, 1.05, 1, 1, 1, 1)
_UNUSED = re.compile(r"\[unused\d+\]")


class ExistingVocabulary:
    """The vocabulary to extend, and where its new pieces go.

    Args:
      settings: `extend_vocab`, `extend_slots`, `num_added`, `vocab_size` and `do_lower_case` are looked at.

    Attributes:
      pieces: the pieces, position = id.
      wanted: number of pieces to add.

    Raises:
      InputError: the file is missing or no vocabulary, or has no room for a new piece.
    """

    def __init__(self, settings: VocabularySettings):
        path = settings.extend_vocab
        self.pieces = load_vocabulary(path)
        with tf.io.gfile.GFile(path, "rb") as file:
            # as they stand in the file, so that nothing changes but what is added
            self._lines = file.read().decode("utf-8").split("\n")[: len(self.pieces)]
        self._slots = None
        if settings.extend_slots == "end":
            self.wanted = settings.vocab_size - len(self.pieces)
            if self.wanted < 1:
                raise InputError(
                    f"--vocab_size={settings.vocab_size}: {path} has {len(self.pieces)} pieces already; "
                    "give the size to reach, or --extend_slots=unused to fill its [unused] slots"
                )
        else:
            self._slots = [i for i, piece in enumerate(self.pieces) if _UNUSED.fullmatch(piece)]
            self.wanted = settings.num_added or len(self._slots)
            if not self._slots or self.wanted > len(self._slots):
                raise InputError(
                    f"--extend_slots=unused: {path} has {len(self._slots)} [unused] slots left"
                    f"{f', --num_added={settings.num_added} asks for more' if self._slots else ''}; "
                    "use --extend_slots=end with a larger --vocab_size to add pieces at its end"
                )
        self._warn_of_case(path, settings.do_lower_case)

    def text_with(self, added: Sequence[str]) -> str:
        """The extended vocabulary as the text of its file."""
        lines = list(self._lines)
        if self._slots is None:
            lines += added
        else:
            for slot, piece in zip(self._slots, added, strict=False):
                lines[slot] = piece
        return "".join(f"{line}\n" for line in lines)

    def _warn_of_case(self, path: str, do_lower_case: bool) -> None:
        words = [p for p in self.pieces if p not in SPECIAL_TOKENS and not _UNUSED.fullmatch(p)]
        upper = [p for p in words if p != p.lower()]
        if upper and do_lower_case:
            logging.warning(
                "%s has %d pieces with upper-case letters, such as %s, which lower-cased text never finds; "
                "give --do_lower_case=false if the vocabulary is a cased one", path, len(upper), upper[0]
            )  # fmt: skip
        elif words and not upper and not do_lower_case:
            logging.warning(
                "%s has no piece with an upper-case letter, but --do_lower_case=false keeps them; "
                "give --do_lower_case if the vocabulary is an uncased one", path
            )  # fmt: skip


def extend_pieces(existing: Sequence[str], word_counts: Mapping[str, int], wanted: int) -> list[str]:
    """Finds the pieces that save the tokenizer most pieces on the counted words.

    Args:
      existing: pieces of the vocabulary, [UNK] among them.
      word_counts: how often each word of the domain occurs.
      wanted: number of pieces to find; fewer come back when no more of them would be used.

    Returns:
      New pieces, the most useful first, every one of them used on these words; the same for the same
      counts whatever their order.
    """
    corpus = _Corpus(existing, word_counts)
    added: list[str] = []
    best, best_rank = [], (wanted, float("inf"))
    sizes = [math.ceil(factor * wanted) for factor in _SIZES]
    with Progress("choosing pieces", len(sizes), "rounds") as progress:
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
    """A domain's words, cut by the existing vocabulary and pieces added to it."""

    def __init__(self, existing: Sequence[str], word_counts: Mapping[str, int]):
        self._existing, self._known = list(existing), set(existing)
        self._words = sorted(word_counts)
        self._counts = np.array([word_counts[word] for word in self._words], np.int64)
        self._characters = np.array([len(word) for word in self._words], np.int64)

    def fill(self, kept: Sequence[str], wanted: int) -> list[str]:
        """Adds the most frequent merges and missing characters to `kept` until there are `wanted`."""
        vocabulary = self._existing + list(kept)
        segment, ids, lengths = self._cut(vocabulary)
        starts = np.cumsum(lengths) - lengths
        characters = self._missing_characters(ids[starts] == segment.unk_id, set(vocabulary))
        several = np.flatnonzero(lengths > 1)  # the others have no pair
        merges = Merges(
            [[vocabulary[i] for i in ids[starts[w] : starts[w] + lengths[w]]] for w in several],
            self._counts[several].tolist(),
        )
        pieces = dict.fromkeys(kept)
        while len(pieces) < wanted:
            saving = merges.highest_count()
            if characters and characters[-1][0] >= max(saving, 1):
                _, piece = characters.pop()
            elif saving:
                piece = merges.merge_most_frequent()
            else:
                break
            if piece not in self._known:
                pieces[piece] = None
        return list(pieces)

    def try_out(self, added: Sequence[str]) -> tuple[dict[str, int], int]:
        """Cuts the words with the added pieces.

        Returns:
          How many pieces of the running text each added piece saves, 0 where it is never used; and the
          pieces of the whole text, an [UNK] counted as many as its word has characters.
        """
        vocabulary = self._existing + list(added)
        segment, ids, lengths = self._cut(vocabulary)
        uses = np.zeros(len(vocabulary), np.int64)
        np.add.at(uses, ids, np.repeat(self._counts, lengths))
        unknown = ids[np.cumsum(lengths) - lengths] == segment.unk_id
        cost = int((self._counts * np.where(unknown, self._characters, lengths)).sum())
        pieces, savings = set(vocabulary), {}
        for piece, use in zip(added, uses[len(self._existing) :].tolist(), strict=True):
            # a character that was missing saves a word from [UNK]
            savings[piece] = use * max(_pieces_without(piece, pieces) - 1, 1)
        return savings, cost

    def _cut(self, vocabulary: list[str]) -> tuple[Segmenter, np.ndarray, np.ndarray]:
        segment = Segmenter(vocabulary)
        return segment, *segment(self._words)

    def _missing_characters(self, unknown: np.ndarray, pieces: set[str]) -> list[tuple[int, str]]:
        """Single-character pieces that words now [UNK] lack, the most frequent last."""
        totals: collections.Counter = collections.Counter()
        for index in np.flatnonzero(unknown):
            word, count = self._words[index], int(self._counts[index])
            for symbol in {word[0], *(JOINER + c for c in word[1:])} - pieces:
                totals[symbol] += count
        ranked = sorted(totals, key=lambda symbol: (-totals[symbol], symbol), reverse=True)
        return [(totals[symbol], symbol) for symbol in ranked]


def _pieces_without(piece: str, pieces: set[str]) -> int:
    """How many pieces greedy matching needs for a piece's characters if it may not take the piece itself."""
    prefix = JOINER if piece.startswith(JOINER) else ""
    rest, number = piece.removeprefix(JOINER), 0
    while rest:
        ends = range(len(rest), 0, -1)
        end = next((e for e in ends if prefix + rest[:e] in pieces and prefix + rest[:e] != piece), 1)
        prefix, rest, number = JOINER, rest[end:], number + 1
    return number
