"""The order of training rows, and their places in packed rows."""

import dataclasses

import numpy as np
import pytest

from bert_tf.finetuning.row_order import training_order
from bert_tf.finetuning.row_plan import plan_evaluation, plan_training
from tests.small_configs import small_config

CONFIG = small_config(400, 32, 2, max_position_embeddings=128)


def random_lengths(count, seed=0, longest=100):
    return np.minimum(3 + np.random.default_rng(seed).gamma(2.0, 8.0, count), longest).astype(np.int32)


@pytest.mark.parametrize(("count", "batch_size"), [(103, 8), (96, 8), (5, 8), (1, 1), (64, 64), (1000, 32)])
@pytest.mark.core
def test_each_epoch_has_each_row_once_in_new_order(count, batch_size):
    lengths = random_lengths(count)
    order = training_order(lengths, batch_size, seed=3, count=3 * count)
    epochs = order.reshape(3, count)
    assert np.array_equal(np.sort(epochs, axis=1), np.tile(np.arange(count), (3, 1)))
    if count > 10:
        assert not np.array_equal(epochs[0], epochs[1])
        assert not np.array_equal(order, training_order(lengths, batch_size, seed=4, count=3 * count))
    assert np.array_equal(
        order[: (count + 1) // 2], training_order(lengths, batch_size, seed=3, count=(count + 1) // 2)
    )


def test_batches_and_shares_have_similar_token_counts():
    lengths, rng = random_lengths(3000), np.random.default_rng(1)
    order = training_order(lengths, 32, seed=0, count=9000)
    batches = lengths[order][: 9000 // 32 * 32].reshape(-1, 32)
    drawn = lengths[rng.permutation(3000)[: 3000 // 32 * 32]].reshape(-1, 32)
    assert np.std(batches.sum(axis=1)) < np.std(drawn.sum(axis=1)) / 3
    for share in range(4):
        ours, random = (np.std(of[:, 8 * share : 8 * share + 8].sum(axis=1)) for of in (batches, drawn))
        assert ours < random, "and no share gets the long rows"
        assert abs(batches[:, 8 * share : 8 * share + 8].mean() - lengths.mean()) < 0.2 * lengths.mean()


def test_rows_meet_in_batches_equally_often():
    lengths = np.arange(40, dtype=np.int32) + 3
    together = np.zeros([40, 40], int)
    for seed in range(400):
        for batch in training_order(lengths, 4, seed, 40).reshape(-1, 4):
            together[np.ix_(batch, batch)] += 1
    strata = np.arange(40) // 10
    apart = strata[:, None] != strata[None]
    assert (together[~apart & ~np.eye(40, dtype=bool)] == 0).all()
    assert together[apart].min() >= 20 and together[apart].max() <= 65, "each pair 40 times, within chance"


def check_places(plan, lengths):
    """Checks that rows do not overlap, and that all rows are within the packed rows."""
    for share in range(len(plan.ids)):
        taken = np.zeros([plan.shape.rows, plan.shape.width], int)
        numbers = [[] for _ in range(plan.shape.rows)]
        for row_id, (row, start, number) in zip(plan.ids[share], plan.places[share], strict=True):
            if row_id == len(lengths):
                assert (row, start, number) == (0, 0, 0)
                continue
            end = start + lengths[row_id]
            assert end <= plan.shape.width
            taken[row, start:end] += 1
            numbers[row].append((start, number))
        assert taken.max() <= 1
        for starts in numbers:
            assert [number for _, number in sorted(starts)] == list(range(len(starts)))
            assert len(starts) <= plan.shape.sequences


@pytest.mark.parametrize("slices", [1, 2, 4])
@pytest.mark.core
def test_packed_batches_have_the_same_rows(slices):
    lengths = random_lengths(500)
    options = {"batch_size": 16, "num_batches": 90, "slices": slices, "seed": 7}
    plan, apart = (plan_training(lengths, **options, packed_for=config) for config in (CONFIG, None))
    # the slices of a batch may exchange rows, so that all have about the same number of tokens
    np.testing.assert_array_equal(*(np.sort(each.ids.reshape(90, 16), axis=1) for each in (plan, apart)))
    assert plan.ids.shape == (90 * slices, 16 // slices) and apart.places is None
    check_places(plan, lengths)
    filled = lengths[plan.ids].sum() / (len(plan.ids) * plan.shape.rows * plan.shape.width)
    assert filled > {1: 0.85, 2: 0.7, 4: 0.4}[slices], filled


@pytest.mark.parametrize(
    ("count", "batch_size", "slices"), [(500, 8, 1), (500, 8, 4), (3, 8, 2), (1, 1, 1), (77, 64, 2)]
)
@pytest.mark.parametrize("packed_for", [None, CONFIG])
def test_evaluation_has_every_row_once(count, batch_size, slices, packed_for):
    lengths = random_lengths(count)
    plan = plan_evaluation(lengths, batch_size=batch_size, max_seq_length=128, slices=slices, packed_for=packed_for)
    ids = plan.ids.ravel()
    np.testing.assert_array_equal(np.sort(ids[ids < count]), np.arange(count))
    assert len(plan.ids) % slices == 0 and ids.max() <= count
    if packed_for:
        check_places(plan, lengths)
        assert plan.shape.rows * plan.shape.width <= batch_size // slices * 128, "no more memory than unpacked"
    if packed_for and count == 500:
        assert lengths.sum() / (len(plan.ids) * plan.shape.rows * plan.shape.width) > 0.9


def test_a_batch_of_one_long_row_is_not_wider():
    lengths = np.array([97, 100, 3], np.int32)
    plan = plan_evaluation(lengths, batch_size=1, max_seq_length=100, packed_for=CONFIG)
    check_places(plan, lengths)
    assert dataclasses.astuple(plan.shape)[:2] == (1, 100)


def test_packed_row_width_is_limited_by_positions():
    short = dataclasses.replace(CONFIG, max_position_embeddings=100)
    lengths = random_lengths(200)
    assert plan_training(lengths, batch_size=8, num_batches=5, packed_for=short).shape.width <= 100
    full = np.full(64, 100, np.int32)
    plan = plan_training(full, batch_size=8, num_batches=5, packed_for=short)
    assert dataclasses.astuple(plan.shape) == (8, 100, 1), "where nothing can share a row, nothing changes"


def check_groups(plan, rows_per_example):
    """Checks that each share has whole examples with their rows in order; returns the examples of each share."""
    ends = np.cumsum(rows_per_example)
    owner = np.append(np.repeat(np.arange(len(rows_per_example)), rows_per_example), -1)
    slices = []
    for ids in plan.ids:
        real = ids[ids < ends[-1]]
        assert (ids[len(real) :] == ends[-1]).all(), "what fills a share is at its end"
        examples = owner[real][np.diff(owner[real], prepend=-1) != 0]
        expected = [row for e in examples for row in range(ends[e] - rows_per_example[e], ends[e])]
        assert real.tolist() == expected
        slices.append(examples.tolist())
    return slices


@pytest.mark.parametrize("packed_for", [None, CONFIG])
@pytest.mark.parametrize("slices", [1, 4])
def test_rows_of_an_example_stay_together(slices, packed_for):
    rows_per_example = np.random.default_rng(0).integers(2, 6, 150)
    lengths = random_lengths(int(rows_per_example.sum()))
    options = {"slices": slices, "packed_for": packed_for, "rows_per_example": rows_per_example}
    plan = plan_training(lengths, batch_size=16, num_batches=28, seed=1, **options)
    found = check_groups(plan, rows_per_example)
    assert {len(examples) for examples in found} == {16 // slices} == {plan.examples}
    stream = np.concatenate(found)
    for epochs in (1, 2):  # a batch across two epochs has its examples in any order
        begun, done = (np.bincount(stream[: 16 * batches], minlength=150) for batches in (9 * epochs, 10 * epochs))
        assert begun.max() <= epochs <= done.min(), "each epoch has every example once"
    evaluation = plan_evaluation(lengths, batch_size=8, max_seq_length=128, **options)
    assert sorted(sum(check_groups(evaluation, rows_per_example), [])) == list(range(150))
    assert len(evaluation.ids) % slices == 0
    if packed_for:
        check_places(plan, lengths)
        check_places(evaluation, lengths)
        assert evaluation.shape.rows * evaluation.shape.width <= 8 // slices * 5 * 128, "no more memory than unpacked"
        assert lengths.sum() / (len(evaluation.ids) * evaluation.shape.rows * evaluation.shape.width) > 0.6
