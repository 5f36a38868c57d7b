"""Determines the order in which training reads the rows of a split; the order is a function of the seed.

All batches of an epoch have about the same number of tokens. Therefore, packed batches have hardly any padding,
although all packed batches have the same static shape.
"""

import functools

import numpy as np

# The batches with the most tokens exchange rows with the batches with the fewest tokens. Each of these two groups has
# _EXTREME_SHARE of all batches. The exchange is repeated _EXCHANGES times.
_EXTREME_SHARE = 0.04
_EXCHANGES = 3


def training_order(lengths: np.ndarray, batch_size: int, seed: int, count: int) -> np.ndarray:
    """Returns the first `count` rows that training reads, over as many epochs as necessary. Each epoch contains every
    row once. The rows of an epoch are sorted by length and divided into B strata of equal size. Each batch gets one
    random row of each stratum. Then each batch with very many tokens exchanges a row with a batch with very few tokens;
    both rows are of the same stratum. If a batch spans two epochs, each of its two parts also gets rows from strata of
    equal size.
    `lengths`: int [N], number of tokens of each row.
    `batch_size`: number of rows of a batch, B.
    `seed`: seed of the order.
    `count`: number of rows to return.
    Returns int32 [count], indices of rows."""
    epochs = range(-(-count // len(lengths)))
    parts = [
        _epoch(lengths, batch_size, np.random.default_rng([seed, epoch]), -epoch * len(lengths) % batch_size)
        for epoch in epochs
    ]
    return np.concatenate(parts)[:count]


def _epoch(lengths: np.ndarray, batch_size: int, rng: np.random.Generator, head: int) -> np.ndarray:
    """Returns the order of an epoch's rows; the first `head` rows complete the last batch of the previous epoch."""
    order = rng.permutation(len(lengths)).astype(np.int32)
    order = order[np.argsort(lengths[order], kind="stable")]
    first, order = _drawn(order, min(head, len(order)), rng)
    batches = len(order) // batch_size
    last, order = _drawn(order, len(order) - batches * batch_size, rng)
    strata = rng.permuted(order.reshape(batch_size, batches), axis=1)
    _relieve_heaviest(strata, lengths)
    return np.concatenate([first, strata[_spread(batch_size)].T.ravel(), last])


def _drawn(order: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draws one row from each of `count` equal strata of sorted rows. Returns the drawn rows in random order, and the
    remaining rows in sorted order."""
    edges = np.linspace(0, len(order), count + 1).astype(int)
    taken = rng.integers(edges[:-1], edges[1:])
    return rng.permutation(order[taken]), np.delete(order, taken)


def _relieve_heaviest(strata: np.ndarray, lengths: np.ndarray) -> None:
    """Exchanges rows between the batches with the most tokens and the batches with the fewest tokens. After this, the
    numbers of tokens of these batches are similar. Otherwise, a single batch with many tokens would determine the
    static shape of all batches. Only a few rows move, so batches stay random."""
    few = int(strata.shape[1] * _EXTREME_SHARE)
    for _ in range(_EXCHANGES if few else 0):
        by_total = np.argsort(lengths[strata].sum(axis=0), kind="stable")
        light, heavy = by_total[:few], by_total[::-1][:few]
        excess = lengths[strata[:, heavy]] - lengths[strata[:, light]]  # [B, few]
        best = np.argmin(np.abs(2 * excess - excess.sum(axis=0)), axis=0)
        strata[best, heavy], strata[best, light] = strata[best, light], strata[best, heavy]


@functools.lru_cache(maxsize=8)
def _spread(count: int) -> np.ndarray:
    """Orders strata so that both halves of a batch, all four quarters and so on have similar numbers of tokens. Each
    replica gets one of these parts. The strata are sorted by length. Of every four consecutive strata, strata 0 and 3
    go to one half, and strata 1 and 2 go to the other half. Then each half is divided in the same way."""

    def deal(strata: np.ndarray) -> np.ndarray:
        if len(strata) < 2:
            return strata
        outer = np.isin(np.arange(len(strata)) % 4, (0, 3))
        return np.concatenate([deal(strata[outer]), deal(strata[~outer])])

    return deal(np.arange(count))
