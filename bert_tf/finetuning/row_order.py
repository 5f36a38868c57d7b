"""The order in which training reads a split's rows: a function of the seed.

The batches of an epoch all hold about the same number of tokens, so that packed batches of one static shape have hardly
any padding.

Letters: B batch, N rows.
"""

import functools

import numpy as np


def training_order(lengths: np.ndarray, batch_size: int, seed: int, count: int) -> np.ndarray:
    """Returns the first rows of the endless stream that training reads, epoch after epoch.

    Each epoch has every row once. Its batches are drawn by strata: the rows, sorted by length, fall into B strata of
    equal size, and each batch takes one random row of each. A batch across two epochs is drawn at random.

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
    head = min(head, len(order))
    batches = (len(order) - head) // batch_size
    middle = order[head : head + batches * batch_size]
    strata = middle[np.argsort(lengths[middle], kind="stable")].reshape(batch_size, batches)
    strata = rng.permuted(strata, axis=1)[_spread(batch_size)]
    return np.concatenate([order[:head], strata.T.ravel(), order[head + len(middle) :]])


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
