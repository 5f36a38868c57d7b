import dataclasses
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bert_tf.text import masking
from tests.bert_tf import masking_reference as reference
from tests.bert_tf.masking_reference import CONTINUES, LEVEL, MASK, MASKABLE, ROW, VOCABULARY

V = len(VOCABULARY)
# Name: whole words, n-grams, fraction, limit.
KINDS = {
    "tokens": (False, None, 0.15, 20),
    "words": (True, None, 0.2, 20),
    "3-grams": (True, 3, 0.25, 20),
    "limited 3-grams": (True, 3, 0.5, 4),
}


def rule_of(kind, **changes) -> masking.MaskingRule:
    whole, ngrams, prob, limit = KINDS[kind]
    values = {
        "masked_lm_prob": prob,
        "max_predictions_per_seq": limit,
        "continues_word": CONTINUES if whole else None,
        "max_ngram_size": ngrams or 1,
    }
    return masking.MaskingRule(**({"vocab_size": V, "mask_id": MASK} | values | changes))


def ours(rule, times, seed):
    ids = np.tile(ROW, (times, 1))
    result = masking.mask(
        ids, np.full(times, len(ROW)), np.tile(MASKABLE, (times, 1)), rule, np.random.default_rng(seed)
    )
    return reference.summary(*reference.masked_ids(result))


@functools.cache
def theirs(kind, times, seed):
    whole, ngrams, prob, limit = KINDS[kind]
    return reference.summary(*reference.official(times, seed, prob, limit, whole, ngrams))


@pytest.mark.quick_cases("words")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.core
def test_masking_has_the_law_of_tf_models_official(kind):
    found = reference.p_values(ours(rule_of(kind), 20_000, 1), theirs(kind, 6_000, 2))
    assert min(found.values()) > LEVEL, found


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, changes, noticed",
    [
        ("tokens", {"mask_fraction": 0.75, "random_fraction": 0.125}, "actions"),
        ("tokens", {"random_fraction": 0.15}, "actions"),
        ("tokens", {"vocab_size": V - 10}, "replacements"),
        ("tokens", {"masked_lm_prob": 0.17}, "predictions"),
        ("words", {"continues_word": None}, "runs"),
        ("3-grams", {"max_ngram_size": 2}, "runs"),
        ("3-grams", {"max_ngram_size": 1}, "together"),
        ("3-grams", {"max_predictions_per_seq": 8}, "predictions"),
    ],
)
def test_the_comparison_notices_another_rule(kind, changes, noticed):
    rule = rule_of(kind, **({"max_ngram_size": 1} if "continues_word" in changes else {}), **changes)
    assert reference.p_values(ours(rule, 20_000, 1), theirs(kind, 6_000, 2))[noticed] < LEVEL


@pytest.mark.parametrize("mask, random", [(0.8, 0.1), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.6, 0.2)])
@pytest.mark.core
def test_masked_random_and_kept_tokens_follow_the_rule(mask, random):
    # Paper, C.2: the fractions of the ablation.
    counts = ours(rule_of("tokens", mask_fraction=mask, random_fraction=random), 20_000, 3)["actions"]
    # a random token may be [MASK], or the token itself
    expected = np.array([mask + random / V, 1 - mask - random + random / V, random * (1 - 2 / V)])
    assert (counts[expected == 0] == 0).all()
    there = expected > 0
    if there.sum() > 1:
        assert stats.chisquare(counts[there], counts.sum() * expected[there]).pvalue > LEVEL


@pytest.mark.parametrize("size", [7, 70_000, (1 << 20) + 3])
def test_random_pieces_are_uniform_over_vocabulary(size):
    rows, length = 4000, 10
    rule = masking.MaskingRule(size, MASK, 0.99, length, mask_fraction=0.0, random_fraction=1.0)
    ids, every = np.full((rows, length), 5, np.int32), np.ones((rows, length), bool)
    drawn = masking.mask(ids, np.full(rows, length), every, rule, np.random.default_rng(4)).input_ids
    assert drawn.min() >= 0 and drawn.max() < size
    assert (
        stats.kstest(drawn.reshape(-1) + np.random.default_rng(5).random(drawn.size), "uniform", (0, size)).pvalue
        > LEVEL
    )


@pytest.mark.parametrize(
    "length, probability, limit, count",
    [
        (5, 0.15, 20, 1),  # 0.75
        (4, 0.01, 20, 1),  # 0.04, but at least one
        (10, 0.15, 20, 2),  # 1.5: like the original, Python rounds halves to the even number
        (30, 0.15, 20, 4),  # 4.5
        (128, 0.15, 20, 19),  # 19.2: [CLS] and [SEP] are counted
        (512, 0.15, 20, 20),  # 76.8, but at most 20
        (512, 0.15, 76, 76),
        (20, 0.99, 20, 17),  # no more than there are tokens
    ],
)
@pytest.mark.core
def test_the_number_of_predictions_is_the_originals(length, probability, limit, count):
    maskable = np.ones((50, length), bool)
    maskable[:, [0, length // 2, -1]] = False
    rule = masking.MaskingRule(1000, MASK, probability, limit)
    ids = np.tile(np.arange(10, 10 + length, dtype=np.int32), (50, 1))
    result = masking.mask(ids, np.full(50, length), maskable, rule, np.random.default_rng(0))
    assert (result.weights.sum(axis=1) == count).all()


@st.composite
def batches(draw):
    """Any rows, including impossible ones: without maskable tokens, only continuations, a single token."""
    rows, length = draw(st.integers(0, 6)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    ids = rng.integers(5, V, (rows, length), np.int32)
    if draw(st.booleans()):
        ids[:] = rng.integers(30, V, ids.shape)
    lengths = rng.integers(1, length + 1, rows)
    share = draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))
    maskable = (rng.random(ids.shape) < share) & (np.arange(length) < lengths[:, None])
    rule = masking.MaskingRule(
        V, MASK, draw(st.sampled_from([0.01, 0.15, 0.5, 0.99])), draw(st.sampled_from([1, 2, 5, 20, 64])),
        continues_word=CONTINUES if draw(st.booleans()) else None,
        mask_fraction=draw(st.sampled_from([0.0, 0.8, 1.0])), random_fraction=0.0,
    )  # fmt: skip
    if rule.continues_word is not None:
        rule = dataclasses.replace(rule, max_ngram_size=draw(st.sampled_from([1, 2, 3, 50])))
    return ids, lengths, maskable, rule, draw(st.integers(0, 1 << 30))


def words_of(ids, maskable) -> list[list[int]]:
    words = []
    for i in np.flatnonzero(maskable):
        if CONTINUES[ids[i]] and i and maskable[i - 1]:
            words[-1].append(i)
        else:
            words.append([i])
    return words


@given(batches())
@settings(max_examples=300, deadline=None)
def test_whatever_the_rows_the_rule_is_kept(batch):
    ids, lengths, maskable, rule, seed = batch
    before = ids.copy()
    result = masking.mask(ids, lengths, maskable, rule, np.random.default_rng(seed))
    again = masking.mask(ids, lengths, maskable, rule, np.random.default_rng(seed))
    for name in ("input_ids", "positions", "labels", "weights"):
        np.testing.assert_array_equal(getattr(result, name), getattr(again, name))
    np.testing.assert_array_equal(ids, before)
    shape = (len(ids), rule.max_predictions_per_seq)
    assert result.positions.shape == result.labels.shape == result.weights.shape == shape
    assert (result.input_ids.dtype, result.positions.dtype, result.labels.dtype) == (np.int32,) * 3
    assert result.weights.dtype == np.float32
    for row in range(len(ids)):
        count = int(result.weights[row].sum())
        positions = result.positions[row, :count]
        assert result.weights[row].tolist() == [1.0] * count + [0.0] * (shape[1] - count)
        assert (result.positions[row, count:] == 0).all() and (result.labels[row, count:] == 0).all()
        assert (np.diff(positions) > 0).all() and maskable[row, positions].all()
        np.testing.assert_array_equal(result.labels[row, :count], ids[row, positions])
        untouched = np.setdiff1d(np.arange(ids.shape[1]), positions)
        np.testing.assert_array_equal(result.input_ids[row, untouched], ids[row, untouched])
        limit = min(rule.max_predictions_per_seq, max(1, round(int(lengths[row]) * rule.masked_lm_prob)))
        if rule.continues_word is None:
            assert count == min(limit, maskable[row].sum())
            continue
        assert count <= limit
        words, chosen = words_of(ids[row], maskable[row]), set(positions.tolist())
        assert all(set(word) <= chosen or not set(word) & chosen for word in words)
        # no word that would fit is left, since single words are candidates too
        assert all(len(word) > limit - count for word in words if not set(word) & chosen)
        for word in words:
            if chosen & set(word):
                assert len(set((result.input_ids[row, word] == MASK).tolist())) == 1, "the word together"


def test_ngrams_never_reach_over_a_separator():
    # [CLS] a [SEP] b [SEP]: the only n-grams are single words
    ids = np.tile(np.array([2, 5, 3, 6, 3], np.int32), (500, 1))
    maskable = np.tile(np.array([0, 1, 0, 1, 0], bool), (500, 1))
    rule = masking.MaskingRule(V, MASK, 0.4, 2, CONTINUES, max_ngram_size=2, mask_fraction=0.5, random_fraction=0.0)
    result = masking.mask(ids, np.full(500, 5), maskable, rule, np.random.default_rng(0))
    alike = (result.input_ids[:, 1] == MASK) == (result.input_ids[:, 3] == MASK)
    assert 0.42 < alike.mean() < 0.58, "each by a draw of its own"
    together = masking.mask(
        ids[:, [0, 1, 3, 4]], np.full(500, 5), maskable[:, [0, 1, 3, 4]], rule, np.random.default_rng(0)
    )
    alike = (together.input_ids[:, 1] == MASK) == (together.input_ids[:, 2] == MASK)
    assert alike.mean() > 0.6, "side by side they are one n-gram in a third of the rows"
