"""The order of records for training: every record is equally likely at every position of every shard."""

import collections
import pathlib

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen import shards, shuffle

DOCUMENTS = 2000
LENGTHS = {"objective": "mlm", "masking": "dynamic", "max_seq_length": 16, "short_seq_prob": 0.0}
ABOVE = 50_000  # bytes in memory, far below the size of every shard


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Writes documents of one to three rows, each with its own word, and their vocabulary."""
    folder = tmp_path_factory.mktemp("order")
    lengths = 10 + np.arange(DOCUMENTS) % 3 * 15
    lines = (f"{f'd{d} ' * 5}\n" * (length // 5) for d, length in enumerate(lengths))
    (folder / "corpus").write_text("\n".join(lines))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"d{d}" for d in range(DOCUMENTS))]
    (folder / "vocab").write_text("\n".join(words) + "\n")
    return {"input_file": folder / "corpus", "vocab_file": folder / "vocab"}


@pytest.fixture
def made(generator, corpus, monkeypatch, cut_text):
    """A function that makes a set from about thirty blocks; returns the document of each row by shard."""
    cut_text(10_000)

    def run(count, dupe_factor, bound=shards.BUCKET_BYTES):
        monkeypatch.setattr(shards, "BUCKET_BYTES", bound)
        made = generator.run(f"a{count}@{count}", **corpus, **LENGTHS, dupe_factor=dupe_factor)
        return [documents_of(generator.folder / shard.name) for shard in made]

    return run


def documents_of(path: pathlib.Path) -> np.ndarray:
    feature = {"input_ids": tf.io.FixedLenFeature([16], tf.int64)}
    (records,) = tf.data.TFRecordDataset(str(path)).batch(1 << 20)
    return tf.io.parse_example(records, feature)["input_ids"].numpy()[:, 1] - 5


def expected_documents(rows: np.ndarray, seen: int) -> float:
    """Returns the expected number of documents in the first `seen` of `rows` rows in a uniformly random order."""
    total, log = len(rows), scipy.special.gammaln
    others = total - np.bincount(rows)
    with np.errstate(invalid="ignore"):
        none = np.exp(log(others + 1) - log(others - seen + 1) - log(total + 1) + log(total - seen + 1))
    return float(np.sum(1 - np.where(others < seen, 0, none)))


@pytest.mark.quick_cases("16-10-in buckets")
@pytest.mark.parametrize("bound", [shards.BUCKET_BYTES, ABOVE], ids=["in memory", "in buckets"])
@pytest.mark.parametrize(
    ("count", "dupe_factor"),
    [(16, 10), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 1), (1, 10), (16, 1)))],
)
def test_each_shard_begins_like_a_uniform_shuffle(made, count, dupe_factor, bound):
    found = made(count, dupe_factor, bound)
    rows = np.concatenate(found)
    assert len(found) == count and np.array_equal(np.bincount(rows), dupe_factor * (1 + np.arange(DOCUMENTS) % 3))
    sizes = [len(shard) for shard in found]
    assert max(sizes) - min(sizes) <= 1
    shares = [len(np.unique(shard[: len(shard) // 10])) / expected_documents(rows, len(shard) // 10) for shard in found]
    # the shares of shards vary less if a tenth has more rows
    assert np.mean(shares) > 0.97 and min(shares) > (0.97 if count == 1 else 0.9)


@pytest.mark.quick_cases("in memory")
@pytest.mark.parametrize("bound", [shards.BUCKET_BYTES, ABOVE], ids=["in memory", "in buckets"])
def test_the_places_of_a_documents_rows_are_uniform(made, bound):
    rows = np.concatenate(made(4, 20, bound))
    places = (np.arange(len(rows)) + 0.5) / len(rows)
    chances = [scipy.stats.kstest(places[rows == d], "uniform").pvalue for d in range(2, DOCUMENTS, 30)]
    # for uniform positions, p-values are uniform
    assert min(chances) > 1e-4 and scipy.stats.kstest(chances, "uniform").pvalue > 1e-3


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
