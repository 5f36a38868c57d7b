import itertools
import random
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from official.nlp.data import create_pretraining_data as original
from scipy import stats

from data_gen import sentence_pairs

LEVEL = 1e-3
PER_DOCUMENT = 100_000
GIVEN = settings(max_examples=150, deadline=None, derandomize=True)


def make_documents(lengths):
    """Documents whose pieces count on: piece k of document d is 100,000 d + k, so each says where it stood."""
    result = []
    for number, sentences in enumerate(lengths):
        ends = number * PER_DOCUMENT + np.cumsum([0, *sentences])
        result.append([np.arange(a, b, dtype=np.int32) for a, b in itertools.pairwise(ends)])
    return result


def document_of(tokens):
    return int(tokens[0]) // PER_DOCUMENT


def is_contiguous(tokens):
    return len(tokens) >= 1 and np.all(np.diff(tokens) == 1) and document_of(tokens) == document_of(tokens[-1:])


def pairs(documents, index, max_seq_length, short_seq_prob=0.1, seed=0):
    rng = np.random.default_rng(seed)
    return list(sentence_pairs.pairs_from_document(documents, index, max_seq_length, short_seq_prob, rng))


LENGTHS = st.lists(st.lists(st.integers(1, 15), min_size=1, max_size=12), min_size=2, max_size=4)
ANY_CASE = {
    "lengths": LENGTHS,
    "max_seq_length": st.integers(5, 40),
    "short_seq_prob": st.sampled_from([0.0, 0.1, 1.0]),
    "seed": st.integers(0, 2**32),
}


@GIVEN
@given(**ANY_CASE)
def test_every_pair_fits_and_is_made_of_contiguous_text_b_from_elsewhere_where_random(
    lengths, max_seq_length, short_seq_prob, seed
):
    documents = make_documents(lengths)
    for index in range(len(documents)):
        found = pairs(documents, index, max_seq_length, short_seq_prob, seed)
        assert found
        for pair in found:
            assert is_contiguous(pair.tokens_a)
            assert is_contiguous(pair.tokens_b)
            assert len(pair.tokens_a) + len(pair.tokens_b) <= max_seq_length - 3
            assert document_of(pair.tokens_a) == index
            if pair.is_random_next:
                assert document_of(pair.tokens_b) != index
            else:
                assert document_of(pair.tokens_b) == index
                assert pair.tokens_b[0] > pair.tokens_a[-1]


@GIVEN
@given(**ANY_CASE)
def test_before_truncation_no_text_is_lost_and_b_follows_a(lengths, max_seq_length, short_seq_prob, seed):
    documents = make_documents(lengths)
    starts = {int(sentence[0]) for document in documents for sentence in document}
    ends = {int(sentence[-1]) for document in documents for sentence in document}
    document_ends = {int(document[-1][-1]) for document in documents}
    whole = mock.patch.object(sentence_pairs, "truncate_pair", lambda a, b, budget, rng: (a, b))
    with whole:
        found = pairs(documents, 0, max_seq_length, short_seq_prob, seed)
    used = []
    for pair in found:
        for tokens in (pair.tokens_a, pair.tokens_b):
            assert int(tokens[0]) in starts and int(tokens[-1]) in ends, "sentences stay whole"
        used.extend(pair.tokens_a)
        if pair.is_random_next:
            # a random B goes on until the target is reached (at least 2, at most all that fits) or its document ends
            last_start = max(start for start in starts if start <= pair.tokens_b[-1])
            assert last_start - pair.tokens_b[0] < max(1, max_seq_length - 3 - len(pair.tokens_a))
            if short_seq_prob == 0 and int(pair.tokens_b[-1]) not in document_ends:
                assert len(pair.tokens_a) + len(pair.tokens_b) >= max_seq_length - 3
        else:
            assert pair.tokens_b[0] == pair.tokens_a[-1] + 1
            used.extend(pair.tokens_b)
    # As, and the Bs that go on from them, are the document: each piece once, in order
    assert used == list(np.concatenate(documents[0]))


def test_a_pair_is_cut_from_sentences_that_just_fill_the_row():
    documents = make_documents([[1] * 200, [1] * 200])
    found = pairs(documents, 0, 23, short_seq_prob=0.0)
    assert len(found) > 10
    with_room = [pair for pair in found if not pair.is_random_next and pair.tokens_a[0] <= 200 - 20]
    assert len(with_room) > 3
    assert {len(pair.tokens_a) + len(pair.tokens_b) for pair in with_room} == {20}


def test_a_document_of_one_sentence_gets_a_random_b():
    documents = make_documents([[4], [3]])
    for seed in range(20):
        (pair,) = pairs(documents, 0, 20, seed=seed)
        assert pair.is_random_next
        assert pair.tokens_a.tolist() == [0, 1, 2, 3]
        assert pair.tokens_b.tolist() == [PER_DOCUMENT, PER_DOCUMENT + 1, PER_DOCUMENT + 2]


def test_b_comes_from_elsewhere_even_where_every_draw_hits_the_same_document():
    rng = mock.Mock(integers=lambda *_: 0, random=lambda size=None: 0.4 if size is None else np.zeros(size))
    (pair,) = sentence_pairs.pairs_from_document(make_documents([[4], [3]]), 0, 20, 0.0, rng)
    assert document_of(pair.tokens_b) == 1


def test_b_is_random_half_of_the_time():
    documents = make_documents([[1] * 30_000, [1] * 100])
    found = pairs(documents, 0, 23, short_seq_prob=0.0)[:-1]  # the last may be one sentence, always random
    assert stats.binomtest(sum(pair.is_random_next for pair in found), len(found), 0.5).pvalue > LEVEL
    assert len(found) > 1500


def test_the_cut_between_a_and_b_falls_anywhere_alike():
    documents = make_documents([[1] * 30_000, [1] * 100])
    lengths = [len(pair.tokens_a) for pair in pairs(documents, 0, 13, short_seq_prob=0.0)[:-1]]
    counts = np.bincount(lengths, minlength=10)
    assert counts[0] == 0 and len(counts) == 10
    assert stats.chisquare(counts[1:]).pvalue > LEVEL


def test_random_bs_come_from_all_other_documents_alike():
    documents = make_documents([[1] * 20_000, *[[1] * 50] * 5])
    found = [document_of(p.tokens_b) for p in pairs(documents, 0, 13, short_seq_prob=0.0) if p.is_random_next]
    assert stats.chisquare(np.bincount(found, minlength=6)[1:]).pvalue > LEVEL


def test_the_share_of_short_targets_is_short_seq_prob():
    # many documents of exactly one full row: its first pair tells whether the target was shorter
    documents = make_documents([[1] * 50] * 2)
    longest = [
        len(first.tokens_a) + len(first.tokens_b) == 50
        for seed in range(4000)
        for first in [pairs(documents, 0, 53, short_seq_prob=0.3, seed=seed)[0]]
        if not first.is_random_next
    ]
    # of 2 to 50, drawn evenly, one is no shorter
    full = 0.7 + 0.3 / 49
    # a full target is met as often by a true B as a short one: half of the time each
    assert stats.binomtest(sum(longest), len(longest), full).pvalue > LEVEL


@pytest.mark.parametrize(
    "short_seq_prob",
    [
        0.0,
        pytest.param(
            0.5,
        ),
    ],
)
def test_the_number_of_rows_a_document_gives_is_distributed_as_the_originals(short_seq_prob):
    documents = make_documents([[3, 5, 4, 2, 6] * 8, [4, 3, 5] * 10, [5, 2] * 10])
    as_text = [[["word"] * len(sentence) for sentence in document] for document in documents]
    rng = random.Random(1)
    passes = range(500)
    theirs = [
        len(original.create_instances_from_document(as_text, 0, 43, short_seq_prob, 0.15, 5, ["word"], rng))
        for _ in passes
    ]
    ours = [len(pairs(documents, 0, 43, short_seq_prob, seed)) for seed in passes]
    bins = [0, *np.unique(np.quantile(theirs + ours, [0.2, 0.4, 0.6, 0.8])), 1000]
    table = np.array([np.histogram(counts, bins)[0] for counts in (theirs, ours)])
    assert stats.chi2_contingency(table[:, table.sum(0) > 0]).pvalue > LEVEL


@pytest.mark.parametrize("seed_b, same", [(0, True), (1, False)])
def test_pairs_depend_on_the_seed_alone(seed_b, same):
    documents = make_documents([[3, 4, 2, 5, 6] * 5, [4, 3, 2] * 5])
    first, second = (
        [(pair.tokens_a.tolist(), pair.tokens_b.tolist()) for pair in pairs(documents, 0, 20, seed=seed)]
        for seed in (0, seed_b)
    )
    assert (first == second) == same


def pop_one_at_a_time(length_a, length_b, budget):
    # truncate_seq_pair of the original: the longer gives, B where both are as long
    while length_a + length_b > budget:
        if length_a > length_b:
            length_a -= 1
        else:
            length_b -= 1
    return length_a, length_b


@GIVEN
@given(st.integers(1, 40), st.integers(1, 40), st.integers(2, 60), st.integers(0, 2**32))
def test_truncation_takes_from_the_longer_and_from_the_ends_only(length_a, length_b, budget, seed):
    a, b = np.arange(length_a), np.arange(1000, 1000 + length_b)
    kept_a, kept_b = sentence_pairs.truncate_pair(a, b, budget, np.random.default_rng(seed))
    assert (len(kept_a), len(kept_b)) == pop_one_at_a_time(length_a, length_b, budget)
    for kept, source in ((kept_a, a), (kept_b, b)):
        assert np.all(np.diff(kept) == 1)
        assert set(kept.tolist()) <= set(source.tolist())


def test_truncation_takes_from_front_and_back_alike():
    fronts = 0
    for seed in range(200):
        kept, _ = sentence_pairs.truncate_pair(np.arange(150), np.arange(50), 100, np.random.default_rng(seed))
        assert len(kept) == 50
        fronts += int(kept[0])
    # 100 pieces leave A each time, each from the front at even odds
    assert stats.binomtest(fronts, 200 * 100, 0.5).pvalue > LEVEL
