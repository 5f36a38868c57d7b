"""Byte-pair encoding over words: repeatedly merges the most frequent pair of adjacent tokens.

Paper: section 3 ("Input/Output Representations").
"""

import array
import collections
import heapq
import itertools
from collections.abc import Sequence

JOINER = "##"

Pair = tuple[str, str]


class Merges:
    """Words as lists of tokens, with up-to-date counts of all adjacent pairs. A word of average length takes about 300
    bytes of memory, without the token strings.
    `words`: the tokens of each word; tokens that continue a word start with "##"."""

    def __init__(self, words: list[list[str]], counts: Sequence[int]):
        self._words, self._counts = words, counts
        self._pair_counts: collections.Counter[Pair] = collections.Counter()
        # Indices of the words that contain or once contained a pair, as 32-bit integers to save memory.
        self._words_with: dict[Pair, array.array] = collections.defaultdict(lambda: array.array("i"))
        for index, symbols in enumerate(words):
            for pair in itertools.pairwise(symbols):
                self._pair_counts[pair] += counts[index]
                self._words_with[pair].append(index)
        # An entry's count may be outdated, but each pair has an entry whose count is at least the pair's current count.
        self._heap = [(-count, pair) for pair, count in self._pair_counts.items()]
        heapq.heapify(self._heap)

    def highest_count(self) -> int:
        """Returns the count of the most frequent pair, or 0 if no pair is left."""
        while self._heap:
            negative_count, pair = self._heap[0]
            count = self._pair_counts.get(pair, 0)
            if count == -negative_count:
                return count
            if 0 < count < -negative_count:
                heapq.heapreplace(self._heap, (-count, pair))
            else:  # the pair no longer exists, or another entry of the pair has the current, higher count
                heapq.heappop(self._heap)
        return 0

    def merge_most_frequent(self) -> str | None:
        """Merges the most frequent pair in all words and returns the new token, or None if no pair is left. If several
        pairs are equally frequent, the first in character order is merged."""
        if not self.highest_count():
            return None
        _, pair = heapq.heappop(self._heap)
        merged = pair[0] + pair[1].removeprefix(JOINER)
        touched, risen = set(), set()
        for index in set(self._words_with[pair]):
            before, count = self._words[index], self._counts[index]
            after = _merge_symbols(before, pair, merged)
            if len(after) == len(before):
                continue
            self._words[index] = after
            for other in itertools.pairwise(before):
                self._pair_counts[other] -= count
                touched.add(other)
            for other in itertools.pairwise(after):
                self._pair_counts[other] += count
                if merged in other:  # all other pairs were already in the word before the merge
                    risen.add(other)
                    self._words_with[other].append(index)
        for other in touched:
            if self._pair_counts[other] == 0:
                del self._pair_counts[other], self._words_with[other]
        for other in risen:
            if other in self._pair_counts:
                heapq.heappush(self._heap, (-self._pair_counts[other], other))
        return merged


def _merge_symbols(symbols: list[str], pair: Pair, merged: str) -> list[str]:
    first, second = pair
    result, position, last = [], 0, len(symbols) - 1
    while position <= last:
        if symbols[position] == first and position < last and symbols[position + 1] == second:
            result.append(merged)
            position += 2
        else:
            result.append(symbols[position])
            position += 1
    return result
