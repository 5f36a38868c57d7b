"""Draws a uniformly random permutation of all records of a set without holding them all in memory.

The file of each work unit contains its records in random order. This module draws only how many records go from each
unit to each part. These numbers follow the multivariate hypergeometric distribution. In each unit's file, the records
of a part directly follow the records of the previous part. Each part is then shuffled separately. Every order of all
records is therefore equally likely, and the parts have equal sizes. Rao (1961) and Sandelius (1962) describe this
method.

Letters: U units.
"""

from collections.abc import Iterator

import numpy as np

# NumPy draws from at most this many records at once.
_MOST_RECORDS = 999_999_999


def deal(
    counts: np.ndarray, parts: int, seed: tuple[int, ...], wanted: range | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Distributes the records of U units randomly over parts whose sizes differ by at most one record. The records are
    halved recursively, and each split has its own seed. Therefore ten draws compute one of a thousand parts, and the
    result does not depend on which other parts are computed.
    `counts`: int64 [U], number of records of each unit.
    `parts`: number of parts.
    `seed`: non-negative integers that determine the result.
    `wanted`: range of the parts to yield; None for all parts.
    Yields for each wanted part in order: starts: int64 [U], the index of the first record that the part takes from each
    unit. counts: int64 [U], the number of records that the part takes from each unit."""
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
    """Draws `size` records without replacement and returns the number drawn from each unit, int64 [U]."""
    total = int(counts.sum())
    if total <= _MOST_RECORDS:
        return rng.multivariate_hypergeometric(counts, size, method="marginals")
    # Larger totals are drawn in strata: each half of the units contributes its share, rounded to whole records.
    middle = len(counts) // 2
    share = round(size * int(counts[:middle].sum()) / total)
    return np.concatenate([_draw(counts[:middle], share, rng), _draw(counts[middle:], size - share, rng)])
