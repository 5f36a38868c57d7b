"""The order in which training reads a split's rows: a function of the seed.

The batches of an epoch all hold about the same number of tokens, so that packed batches of one static shape have hardly
any padding.

Letters: B batch, N rows.
"""

import functools

import numpy as np

# Of the batches, the share at each end whose totals are evened out, and how often.
_EXTREME_SHARE = 0.04
_EXCHANGES = 3


def training_order(lengths: np.ndarray, batch_size: int, seed: int, count: int) -> np.ndarray:
    """Returns the first rows of the endless stream that training reads, epoch after epoch.

    Each epoch has every row once. Its batches are drawn by strata: the rows, sorted by length, fall into B strata of
    equal size, and each batch takes one random row of each. The heaviest batches then exchange a row of one stratum
    with the lightest. The two parts of a batch across two epochs are drawn by strata too.

    Args:
      lengths: int [N], number of tokens of each row.
      batch_size: B.
      seed: seed of the order.
      count: how many rows to return.

    Returns:
      int32 [count], indices of rows.
    """
    epochs = range(-(-count // len(lengths)))
    parts = [
        _epoch(lengths, batch_size, np.random.default_rng([seed, epoch]), -epoch * len(lengths) % batch_size)
        for epoch in epochs
    ]
    return np.concatenate(parts)[:count]


def _epoch(lengths: np.ndarray, batch_size: int, rng: np.random.Generator, head: int) -> np.ndarray:
    """Orders the rows of an epoch whose first `head` rows complete the last batch of the epoch before."""
    order = rng.permutation(len(lengths)).astype(np.int32)
    order = order[np.argsort(lengths[order], kind="stable")]
    first, order = _drawn(order, min(head, len(order)), rng)
    batches = len(order) // batch_size
    last, order = _drawn(order, len(order) - batches * batch_size, rng)
    strata = rng.permuted(order.reshape(batch_size, batches), axis=1)
    _relieve_heaviest(strata, lengths)
    return np.concatenate([first, strata[_spread(batch_size)].T.ravel(), last])


def _drawn(order: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draws one row of each of `count` equal strata of sorted rows; returns them in random order, and the rest."""
    edges = np.linspace(0, len(order), count + 1).astype(int)
    taken = rng.integers(edges[:-1], edges[1:])
    return rng.permutation(order[taken]), np.delete(order, taken)


def _relieve_heaviest(strata: np.ndarray, lengths: np.ndarray) -> None:
    """Lets the heaviest batches exchange a row of one stratum with the lightest, so that both get like totals.

    A single heavy batch would set the static shape of all. Few rows move, so batches stay random.

    Args:
      strata: int [B, batches], rows; changed in place.
      lengths: int [N].
    """
    few = int(strata.shape[1] * _EXTREME_SHARE)
    for _ in range(_EXCHANGES if few else 0):
        by_total = np.argsort(lengths[strata].sum(axis=0), kind="stable")
        light, heavy = by_total[:few], by_total[::-1][:few]
        excess = lengths[strata[:, heavy]] - lengths[strata[:, light]]  # [B, few]
        best = np.argmin(np.abs(2 * excess - excess.sum(axis=0)), axis=0)
        strata[best, heavy], strata[best, light] = strata[best, light], strata[best, heavy]


@functools.lru_cache(maxsize=8)
def _spread(count: int) -> np.ndarray:
    """Orders strata so that halves, quarters and so on of a batch, the shares of replicas, have like numbers of tokens.

    Four neighbors in length are dealt to two halves as in 0, 3 and 1, 2; then each half is dealt in the same way.
    """

    def deal(strata: np.ndarray) -> np.ndarray:
        if len(strata) < 2:
            return strata
        outer = np.isin(np.arange(len(strata)) % 4, (0, 3))
        return np.concatenate([deal(strata[outer]), deal(strata[~outer])])

    return deal(np.arange(count))
