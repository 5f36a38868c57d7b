import numpy as np
import pytest
from scipy import stats

from bert_tf import masking

LEVEL = 1e-3  # of every statistical test here; seeds are fixed, so a pass stays a pass
V, MASK_ID, CONTINUES = 1000, 4, 7


def rule(**changes):
    return masking.MaskingRule(vocab_size=V, mask_id=MASK_ID, **changes)


def row(length):
    """[CLS] A [SEP] B [SEP] and where it may be masked."""
    maskable = np.ones(length, bool)
    maskable[[0, length // 2, -1]] = False
    return np.arange(10, 10 + length), maskable


@pytest.mark.parametrize(
    "length, probability, limit, count",
    [
        (5, 0.15, 20, 1),  # 0.75
        (4, 0.01, 20, 1),  # 0.04, but at least one
        (10, 0.15, 20, 2),  # 1.5: Python rounds halves to the even number, as the original does
        (30, 0.15, 20, 4),  # 4.5
        (128, 0.15, 20, 19),  # 19.2: [CLS] and [SEP] are counted
        (512, 0.15, 20, 20),  # 76.8, but at most 20
        (512, 0.15, 76, 76),
        (20, 0.99, 20, 17),  # no more than there are
    ],
)
def test_the_number_of_predictions_is_the_originals(length, probability, limit, count):
    ids, maskable = row(length)
    limits = rule(masked_lm_prob=probability, max_predictions_per_seq=limit)
    for seed in range(20):
        positions = masking.choose_positions(ids, maskable, limits, np.random.default_rng(seed))
        assert len(positions) == count
        assert np.all(np.diff(positions) > 0), "ascending, none twice"
        assert maskable[positions].all(), "[CLS] and [SEP] are never predicted"


def share_statistic(counts, chosen_each_time, times):
    # equal shares, drawn without replacement: the variance of each count is times * p * (1 - p)
    n = len(counts)
    p = chosen_each_time / n
    return np.sum((counts - times * p) ** 2) / (times * p * (1 - p)) * (n - 1) / n, n - 1


def test_every_position_is_chosen_equally_often():
    ids, maskable = row(40)
    rng, times, counts = np.random.default_rng(1), 20_000, np.zeros(40)
    for _ in range(times):
        counts[masking.choose_positions(ids, maskable, rule(), rng)] += 1
    statistic, freedom = share_statistic(counts[maskable], 6, times)
    assert LEVEL / 2 < stats.chi2.sf(statistic, freedom) < 1 - LEVEL / 2


def words_row(lengths):
    """A row of words with the given numbers of pieces, [CLS] first and [SEP] last."""
    ids = [2, *(piece for n in lengths for piece in [50, *[CONTINUES] * (n - 1)]), 3]
    maskable = np.array([False, *[True] * sum(lengths), False])
    return np.array(ids), maskable


def whole_words(**changes):
    return rule(continues_word=np.arange(V) == CONTINUES, **changes)


def test_whole_words_are_chosen_equally_often():
    ids, maskable = words_row([2] * 19)  # 40 pieces with the marks: 6 predictions, 3 words
    rng, times, counts = np.random.default_rng(2), 10_000, np.zeros(40)
    for _ in range(times):
        counts[masking.choose_positions(ids, maskable, whole_words(), rng)] += 1
    assert np.array_equal(counts[1:-1:2], counts[2:-1:2]), "both pieces of a word, or none"
    statistic, freedom = share_statistic(counts[1:-1:2], 3, times)
    assert LEVEL / 2 < stats.chi2.sf(statistic, freedom) < 1 - LEVEL / 2


def test_words_are_masked_whole_and_never_beyond_the_limit():
    lengths = [1, 3, 2, 5, 1, 4, 2]
    ids, maskable = words_row(lengths)  # 20 pieces
    ends = 1 + np.cumsum(lengths)
    words = [set(range(end - n, end)) for n, end in zip(lengths, ends, strict=True)]
    seen = set()
    for seed in range(300):
        positions = masking.choose_positions(
            ids, maskable, whole_words(masked_lm_prob=0.2), np.random.default_rng(seed)
        )
        chosen = set(positions.tolist())
        assert 1 <= len(chosen) <= 4
        assert chosen == set().union(*(word for word in words if word & chosen))
        seen |= chosen
    assert seen == set().union(*words) - words[3], "a word of 5 pieces never fits, all others do"


def test_a_word_that_does_not_fit_is_passed_over_for_one_that_does():
    ids, maskable = words_row([3, 1])  # 6 pieces, one prediction: only the second word fits
    for seed in range(20):
        assert masking.choose_positions(ids, maskable, whole_words(), np.random.default_rng(seed)).tolist() == [4]


def test_a_continuation_after_a_mark_is_a_word_of_its_own():
    # truncation from the front can leave B starting within a word: [CLS] w [SEP] ##w [SEP]
    ids, maskable = np.array([2, 50, 3, CONTINUES, 3]), np.array([False, True, False, True, False])
    found = {
        tuple(masking.choose_positions(ids, maskable, whole_words(), np.random.default_rng(seed)))
        for seed in range(30)
    }  # fmt: skip
    assert found == {(1,), (3,)}


def test_where_every_word_is_too_long_none_is_chosen_as_in_the_original():
    ids, maskable = words_row([3])
    assert len(masking.choose_positions(ids, maskable, whole_words(), np.random.default_rng(0))) == 0


def test_chosen_pieces_become_mask_random_or_stay_as_80_10_10():
    n = 100_000
    ids = np.full(n, 42)
    masked = masking.replace(ids, np.arange(n), rule(), np.random.default_rng(3))
    observed = [np.sum(masked == MASK_ID), np.sum(masked == 42), np.sum((masked != MASK_ID) & (masked != 42))]
    # a random piece may be [MASK] or the piece itself
    expected = n * np.array([0.8 + 0.1 / V, 0.1 + 0.1 / V, 0.1 * (1 - 2 / V)])
    assert stats.chisquare(observed, expected).pvalue > LEVEL


def test_random_pieces_come_from_the_whole_vocabulary_evenly():
    n, size = 50_000, 20
    always_random = masking.MaskingRule(size, MASK_ID, mask_fraction=0.0, random_fraction=1.0)
    masked = masking.replace(np.full(n, 5), np.arange(n), always_random, np.random.default_rng(4))
    assert stats.chisquare(np.bincount(masked, minlength=size)).pvalue > LEVEL
    assert masked.max() == size - 1


def test_only_chosen_positions_change_and_the_row_given_stays():
    ids = np.arange(100, 150)
    positions = np.array([3, 17, 40])
    masked = masking.replace(ids, positions, rule(mask_fraction=1.0), np.random.default_rng(0))
    assert np.array_equal(ids, np.arange(100, 150))
    assert np.flatnonzero(masked != ids).tolist() == [3, 17, 40]
    assert (masked[positions] == MASK_ID).all()


def test_the_same_seed_gives_the_same_choice_and_another_seed_another():
    ids, maskable = row(100)

    def choose(seed):
        rng = np.random.default_rng(seed)
        positions = masking.choose_positions(ids, maskable, rule(), rng)
        return positions.tolist(), masking.replace(ids, positions, rule(), rng).tolist()

    assert choose(5) == choose(5)
    assert choose(5)[0] != choose(6)[0]
    assert choose(5)[1] != choose(6)[1]
