"""A uniformly random permutation of all records of a set, dealt out without holding them together.

Each unit's records stand in random order in its own file. What is left to choose is how many of each unit go to
each part: that follows the multivariate hypergeometric distribution, and a part takes so many of the unit's next
records. With each part then shuffled by itself, every order of all records is equally likely, and the parts
have equal sizes. Rao (1961) and Sandelius (1962) shuffle decks of cards this way.

Letters: U units.
"""

from collections.abc import Iterator

import numpy as np

# NumPy draws from at most so many records at once.
_MOST_RECORDS = 999_999_999


def deal(
    counts: np.ndarray, parts: int, seed: tuple[int, ...], wanted: range | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Deals the records of U units to parts at random; the parts' sizes differ by one record at most.

    All records are halved again and again, each half with a seed of its own. So one part of a thousand is found in
    ten draws, and does not depend on who else looks.

    Args:
      counts: int64 [U], the records of each unit.
      parts: how many parts.
      seed: integers of at least 0 that decide what goes where.
      wanted: which parts to yield; default all.

    Yields:
      For each wanted part in turn the first record to take from each unit, and how many, int64 [U] both.
    """
    total = int(counts.sum())
    wanted = range(parts) if wanted is None else wanted

    def below(low: int, high: int, starts: np.ndarray, counts: np.ndarray):
        if high <= wanted.start or wanted.stop <= low:
            return
        if high - low == 1:
            yield starts, counts
            return
        middle = (low + high) // 2
        size = total * middle // parts - total * low // parts
        first = _draw(counts, size, np.random.default_rng((*seed, low, high)))
        yield from below(low, middle, starts, first)
        yield from below(middle, high, starts + first, counts - first)

    yield from below(0, parts, np.zeros_like(counts), counts)


def _draw(counts: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """How many of `size` records, drawn from all without putting them back, are of each unit: int64 [U]."""
    total = int(counts.sum())
    if total <= _MOST_RECORDS:
        return rng.multivariate_hypergeometric(counts, size, method="marginals")
    # more than that is drawn in strata: each half of the units gives its share, to the nearest record
    middle = len(counts) // 2
    share = round(size * int(counts[:middle].sum()) / total)
    return np.concatenate([_draw(counts[:middle], share, rng), _draw(counts[middle:], size - share, rng)])
