"""The permutation: every record once, equal parts, every order equally likely."""

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen import shuffle

GIVEN = settings(max_examples=100, deadline=None, derandomize=True)
COUNTS = st.lists(st.integers(0, 30), min_size=1, max_size=9)


def dealt(counts, parts, seed=(0,), wanted=None):
    return list(shuffle.deal(np.array(counts, np.int64), parts, seed, wanted))


@GIVEN
@given(COUNTS, st.integers(1, 20), st.integers(0, 5), st.sampled_from([7, 50, 999_999_999]))
@pytest.mark.core
def test_records_are_dealt_once_into_equal_parts(counts, parts, seed, most):
    before, shuffle._MOST_RECORDS = shuffle._MOST_RECORDS, max(most, max(counts))
    try:
        found = dealt(counts, parts, (seed,))
    finally:
        shuffle._MOST_RECORDS = before
    sizes = [int(taken.sum()) for _, taken in found]
    assert len(found) == parts and max(sizes) - min(sizes) <= 1
    for unit, count in enumerate(counts):
        records = [start for starts, taken in found for start in range(starts[unit], starts[unit] + taken[unit])]
        assert sorted(records) == list(range(count))


@pytest.mark.core
def test_every_order_of_all_records_comes_up_alike(tmp_path):
    """Units in random order are distributed to parts, which are in random order: tests all 5! orders by chi-squared."""
    counts, orders = [2, 3], collections.Counter()
    for seed in range(6000):
        rng = np.random.default_rng((9, seed))
        units = [rng.permutation([10 * unit + i for i in range(count)]) for unit, count in enumerate(counts)]
        order = []
        for starts, taken in dealt(counts, 3, (seed,)):
            part = [units[unit][starts[unit] : starts[unit] + taken[unit]] for unit in range(2)]
            order += rng.permutation(np.concatenate(part)).tolist()
        orders[tuple(order)] += 1
    assert len(orders) == 120
    # 119 degrees of freedom: the chance of more than 181 is 1 in 5,000; the seeds are fixed
    assert sum((count - 50) ** 2 / 50 for count in orders.values()) < 181
