"""Statistics of our masking and tf-models-official's, and a test whether both have the same distribution."""

import random

import numpy as np
from official.nlp.data.create_pretraining_data import create_masked_lm_predictions
from scipy import stats

# Significance of every comparison. Each test makes at most 8 comparisons, so by Bonferroni a correct rule fails a test
# with a chance below 1e-3. Seeds are fixed, so results do not change.
LEVEL = 1e-4

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK]".split() + [f"w{i}" for i in range(25)] + [f"##c{i}" for i in range(10)]
CLS, SEP, MASK, CONTINUATION = 2, 3, 4, 30
CONTINUES = np.arange(len(VOCABULARY)) >= CONTINUATION
# number of tokens of each word
SEGMENTS = ([1, 1, 2, 1, 3, 1, 1, 1, 2, 1, 1], [1, 2, 1, 1, 1, 4, 1, 1, 1, 2, 1, 1])


def row() -> tuple[np.ndarray, np.ndarray]:
    """Returns [CLS] A [SEP] B [SEP] as ids, and the number of each token's word, -1 for special tokens."""
    ids, words, count = [CLS], [-1], 0
    for segment in SEGMENTS:
        for index, tokens in enumerate(segment):
            ids += [5 + index, *range(CONTINUATION, CONTINUATION + tokens - 1)]
            words += [count] * tokens
            count += 1
        ids.append(SEP)
        words.append(-1)
    return np.array(ids, np.int32), np.array(words)


ROW, WORD_OF = row()
MASKABLE = WORD_OF >= 0


def official(times: int, seed: int, prob: float, limit: int, whole: bool, ngrams: int | None):
    """Masks rows with tf-models-official; returns ids [times, S] and chosen positions, bool [times, S]."""
    random.seed(seed)  # the sizes of n-grams come from the global generator
    rng = random.Random(seed + 1)
    tokens = [VOCABULARY[i] for i in ROW]
    number = {token: index for index, token in enumerate(VOCABULARY)}
    ids, chosen = np.empty((times, len(ROW)), np.int32), np.zeros((times, len(ROW)), bool)
    for index in range(times):
        output, positions, labels = create_masked_lm_predictions(tokens, prob, limit, VOCABULARY, rng, whole, ngrams)
        assert labels == [tokens[p] for p in positions]
        ids[index], chosen[index, positions] = [number[token] for token in output], True
    return ids, chosen


def summary(ids: np.ndarray, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """Counts all results of a masking rule."""
    count = chosen.sum(axis=1)
    action = np.where(ids == MASK, 0, np.where(ids == ROW, 1, 2))  # chosen tokens: masked, kept, replaced
    words = np.zeros((len(ids), WORD_OF.max() + 1), bool)
    np.put_along_axis(words, np.broadcast_to(np.maximum(WORD_OF, 0), ids.shape), False, axis=1)
    row_index, column = np.nonzero(chosen & MASKABLE)
    words[row_index, WORD_OF[column]] = True
    # adjacent words of one segment, with a gap between the segments
    line = np.insert(words, [0, len(SEGMENTS[0]), words.shape[1]], False, axis=1).astype(np.int8)
    steps = np.diff(line, axis=1)
    runs = np.nonzero(steps == -1)[1] - np.nonzero(steps == 1)[1]
    positions = np.flatnonzero(MASKABLE)
    # pairs of adjacent chosen tokens: what replaces each of the two
    both = chosen[:, :-1] & chosen[:, 1:]
    together = 3 * action[:, :-1][both] + action[:, 1:][both]
    return {
        "predictions": np.bincount(count, minlength=len(ROW)),
        "positions": chosen[:, positions].sum(axis=0),
        "words": words.sum(axis=0),
        "runs": np.bincount(runs, minlength=30),
        "actions": np.bincount(action[chosen], minlength=3),
        "together": np.bincount(together, minlength=9),
        "first and last": np.bincount(2 * words[:, 0] + words[:, -1], minlength=4),
        "replacements": np.bincount(ids[chosen & (action == 2)], minlength=len(VOCABULARY)),
    }


def p_values(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> dict[str, float]:
    """Returns the chance of such a difference for equal distributions, by chi-square with rare outcomes joined."""
    found = {}
    for name in one:
        table = np.array([one[name], other[name]])
        rare = table.sum(axis=0) < 20
        table = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
        table = table[:, table.sum(axis=0) > 0]
        found[name] = stats.chi2_contingency(table, correction=False).pvalue if table.shape[1] > 1 else 1.0
    return found


def masked_ids(result) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids and chosen positions of `masking.Masked` in the format of `official`."""
    chosen = np.zeros(result.input_ids.shape, bool)
    index, place = np.nonzero(result.weights)
    chosen[index, result.positions[index, place]] = True
    return result.input_ids, chosen
