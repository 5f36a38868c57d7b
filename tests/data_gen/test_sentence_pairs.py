import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from official.nlp.data import create_pretraining_data as original
from scipy import stats

from data_gen import sentence_pairs
from data_gen.sentence_pairs import PairRows, Window
from tests.bert_tf.text.test_packing import pop_one_at_a_time

LEVEL = 1e-3  # Significance of every statistical test here; seeds are fixed, so results do not change.
GIVEN = settings(max_examples=150, deadline=None, derandomize=True)


def make_window(lengths):
    """Returns documents of sentences with these numbers of tokens; token k of the window is k, its own position."""
    sentences = [size for document in lengths for size in document]
    starts = np.cumsum([0, *sentences])
    return Window(np.arange(starts[-1]), starts, np.cumsum([0, *map(len, lengths)]))


def bounds(window):
    """Returns the first token of each document, and the end."""
    return window.sentence_starts[window.document_starts].tolist()


def document_of(window, token):
    return int(np.searchsorted(bounds(window), token, side="right")) - 1


def cut(sample, window, documents, max_seq_length, short_seq_prob=0.1, seed=0, whole=False):
    """Returns rows as tuples (A, B, is random) with ranges of tokens; `whole` turns off truncation."""
    truncate = sentence_pairs._truncate
    if whole:
        sentence_pairs._truncate = lambda rows, *_: rows
    try:
        rows = sample(window, documents, max_seq_length, short_seq_prob, np.random.default_rng(seed))
    finally:
        sentence_pairs._truncate = truncate
    columns = (rows.start_a, rows.length_a, rows.start_b, rows.length_b, rows.is_random_next)
    return [(range(a, a + m), range(b, b + n), bool(r)) for a, m, b, n, r in zip(*columns, strict=True)]


def pairs(window, documents, *arguments, **named):
    return cut(sentence_pairs.sample_pairs, window, documents, *arguments, **named)


@st.composite
def cases(draw, fewest=2):
    lengths = draw(st.lists(st.lists(st.integers(1, 15), min_size=1, max_size=12), min_size=fewest, max_size=5))
    start = draw(st.integers(0, len(lengths) - 1))
    documents = range(start, draw(st.integers(start + 1, len(lengths))))
    return (
        make_window(lengths), documents, draw(st.integers(5, 40)), draw(st.sampled_from([0.0, 0.3, 1.0])),
        draw(st.integers(0, 2**32)),
    )  # fmt: skip


@GIVEN
@given(cases())
@pytest.mark.core
def test_every_pair_fits_and_random_bs_are_elsewhere(case):
    window, documents, max_seq_length, *_ = case
    ends = bounds(window)
    found = pairs(*case)
    for a, b, is_random in found:
        assert len(a) >= 1 and len(b) >= 1
        assert len(a) + len(b) <= max_seq_length - 3
        of_a, of_b = document_of(window, a[0]), document_of(window, b[0])
        assert a[-1] < ends[of_a + 1] and b[-1] < ends[of_b + 1], "a segment is of one document"
        assert of_a in documents and (of_a != of_b) == is_random
        assert is_random or b[0] > a[-1]
    assert {document_of(window, a[0]) for a, _, _ in found} == set(documents)


@GIVEN
@given(cases())
def test_no_text_is_lost_before_truncation(case):
    window, documents, max_seq_length, short_seq_prob, _ = case
    edges, ends = set(window.sentence_starts.tolist()), bounds(window)
    used = []
    for a, b, is_random in pairs(*case, whole=True):
        assert {a[0], a[-1] + 1, b[0], b[-1] + 1} <= edges, "sentences stay whole"
        used += a
        if not is_random:
            assert b[0] == a[-1] + 1
            used += b
            continue
        # B continues up to the rest of the target length (2 to all that fits) after A, or to the end of its document
        last_sentence = window.sentence_starts[np.searchsorted(window.sentence_starts, b[-1], side="right") - 1]
        assert last_sentence - b[0] < max(1, max_seq_length - 3 - len(a))
        if short_seq_prob == 0 and b[-1] + 1 not in ends:
            assert len(a) + len(b) >= max_seq_length - 3
    # the A segments and the B segments that follow them are the documents: each token once, in order
    assert used == list(range(ends[documents.start], ends[documents.stop]))


@GIVEN
@given(cases(fewest=1))
def test_single_segments_are_the_text_once(case):
    window, documents, max_seq_length, short_seq_prob, _ = case
    longest = max_seq_length - 2
    edges, ends = window.sentence_starts.tolist(), bounds(window)
    whole = cut(sentence_pairs.sample_segments, *case, whole=True)
    assert [token for a, _, _ in whole for token in a] == list(range(ends[documents.start], ends[documents.stop]))
    for a, b, is_random in whole:
        assert len(b) == 0 and not is_random
        assert a[0] in edges and a[-1] + 1 in edges
        assert document_of(window, a[0]) == document_of(window, a[-1])
        last = max(edge for edge in edges if edge <= a[-1])
        assert last - a[0] < longest, "one sentence less does not fill the row"
        if short_seq_prob == 0 and a[-1] + 1 not in ends:
            assert len(a) >= longest
    for (full, _, _), (kept, empty, _) in zip(whole, cut(sentence_pairs.sample_segments, *case), strict=True):
        assert len(kept) == min(len(full), longest) and len(empty) == 0
        assert set(kept) <= set(full)


@GIVEN
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60)), min_size=1), st.integers(2, 60), st.integers(0, 99))
@pytest.mark.core
def test_truncation_equals_the_original_loop(lengths, budget, seed):
    length_a, length_b = (np.array(column) for column in zip(*lengths, strict=True))
    start_a, start_b = np.arange(len(lengths)) * 1000, np.arange(len(lengths)) * 1000 + 500
    before = PairRows(start_a, length_a, start_b, length_b, start_a > 0)
    after = sentence_pairs._truncate(before, budget, np.random.default_rng(seed))
    kept = list(zip(after.length_a.tolist(), after.length_b.tolist(), strict=True))
    assert kept == [pop_one_at_a_time(a, b, budget) for a, b in lengths]
    for start, length, old_start, old_length in (
        (after.start_a, after.length_a, start_a, length_a),
        (after.start_b, after.length_b, start_b, length_b),
    ):
        assert np.all(start >= old_start) and np.all(start + length <= old_start + old_length)
    assert np.array_equal(after.is_random_next, before.is_random_next)


@pytest.mark.core
def test_random_bs_come_from_all_documents_alike():
    window = make_window([[1] * 50, [1] * 60_000, *[[1] * 50] * 4])
    found = [b[0] for _, b, r in pairs(window, range(1, 2), 13, short_seq_prob=0.0) if r]
    documents = np.bincount([document_of(window, b) for b in found], minlength=6)
    assert documents[1] == 0
    assert stats.chisquare(np.delete(documents, 1)).pvalue > LEVEL
    sentences = np.bincount([b - bounds(window)[document_of(window, b)] for b in found], minlength=50)
    assert stats.chisquare(sentences).pvalue > LEVEL


@pytest.mark.parametrize("short_seq_prob", [0.0, 0.5, 1.0])
@pytest.mark.core
def test_rows_are_distributed_as_the_originals(short_seq_prob):
    lengths = [[3, 5, 4, 2, 6] * 8, [4, 3, 5] * 10, [5, 2] * 10]
    as_text = [[["word"] * size for size in document] for document in lengths]
    rng, passes = random.Random(1), 400
    theirs = [
        original.create_instances_from_document(as_text, 0, 43, short_seq_prob, 0.15, 5, ["word"], rng)
        for _ in range(passes)
    ]
    window = make_window(lengths)
    ours = [pairs(window, range(1), 43, short_seq_prob, seed) for seed in range(passes)]

    def same(first, second):
        bins = [0, *np.unique(np.quantile(first + second, [0.2, 0.4, 0.6, 0.8])), 1000]
        table = np.array([np.histogram(values, bins)[0] for values in (first, second)])
        return stats.chi2_contingency(table[:, table.sum(0) > 0]).pvalue > LEVEL

    assert same([len(rows) for rows in theirs], [len(rows) for rows in ours])
    # one row per pass, since rows of one pass are dependent
    middle = [(rows[len(rows) // 2], theirs_[len(theirs_) // 2]) for rows, theirs_ in zip(ours, theirs, strict=True)]
    assert same([len(i.tokens) for _, i in middle], [len(a) + len(b) + 3 for (a, b, _), _ in middle])
    assert same([i.tokens.index("[SEP]") for _, i in middle], [len(a) + 1 for (a, _, _), _ in middle])
    shares = [[i.is_random_next for _, i in middle], [r for (_, _, r), _ in middle]]
    assert stats.chi2_contingency([np.bincount(labels, minlength=2) for labels in shares]).pvalue > LEVEL


@GIVEN
@given(cases(fewest=1), st.booleans())
def test_blocks_hold_each_token_once_and_in_order(case, joins):
    window, documents, max_seq_length, _, _ = case
    texts = [list(range(*bounds(window)[i : i + 2])) for i in documents]
    if joins:  # -1 plays the role of [SEP]
        texts = [[token for text in texts for token in (*text, -1)][:-1]]
        window, documents = sentence_pairs.join_documents(window, documents, -1), range(1)
    rows = sentence_pairs.cut_blocks(window, documents, max_seq_length)
    blocks = [window.tokens[a : a + m].tolist() for a, m in zip(rows.start_a, rows.length_a, strict=True)]
    size = max_seq_length - 2
    assert blocks == [text[i : i + size] for text in texts for i in range(0, len(text), size)]
    assert not rows.length_b.any()
