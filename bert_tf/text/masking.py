"""Masks rows for the masked language model: chooses the positions to predict and replaces their tokens.

This module masks whole batches, both when records are written (static masking) and when records are read (dynamic
masking, see `bert_tf.input.pipeline`).

Paper: section 3.1 (Task 1), appendix A.1 (the 80/10/10 rule) and C.2 (other fractions). Whole-word masking
follows the original's repository, and n-gram masking follows tf-models-official.

Letters: W words per row, G n-gram sizes, C candidates per row.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.text.tokenizer_rules import MASK, TokenizerRules

_NONE = -1


@dataclasses.dataclass(frozen=True)
class MaskingRule:
    """The masking parameters."""

    vocab_size: int  # number of tokens; random replacements are drawn from ids 0 to vocab_size - 1
    mask_id: int  # id of [MASK]
    masked_lm_prob: float = 0.15  # fraction of a row's tokens to predict; [CLS] and [SEP] count as tokens of the row
    max_predictions_per_seq: int = 20  # P, maximum number of predicted positions per row
    # bool [vocab_size], True for "##" tokens; None if single tokens are masked, not whole words
    continues_word: np.ndarray | None = None
    # G, maximum number of adjacent words that are masked together; a value above 1 needs `continues_word`
    max_ngram_size: int = 1
    mask_fraction: float = 0.8  # fraction of the chosen tokens that [MASK] replaces
    random_fraction: float = 0.1  # fraction of the chosen tokens that a random token replaces; the rest stay unchanged

    @classmethod
    def of_settings(
        cls, rules: TokenizerRules, settings: Mapping[str, Any], max_predictions_per_seq: int
    ) -> "MaskingRule":
        """Returns the rule for settings of the data generator. The generator and the input pipeline use this method.
        `rules`: the rules of the tokenizer.
        `settings`: the generator's settings by name, as in the manifest of the data.
        `max_predictions_per_seq`: P, maximum number of predicted positions per row."""
        whole_words, vocabulary = settings["do_whole_word_mask"], rules.vocabulary
        return cls(
            vocab_size=len(vocabulary),
            mask_id=rules.id_of(MASK),
            masked_lm_prob=settings["masked_lm_prob"],
            max_predictions_per_seq=max_predictions_per_seq,
            continues_word=np.array(rules.continues_word) if whole_words else None,
            max_ngram_size=settings["max_ngram_size"] or 1,
            mask_fraction=settings["mask_fraction"],
            random_fraction=settings["random_fraction"],
        )


@dataclasses.dataclass(frozen=True)
class Masked:
    """Masked rows and their predictions."""

    input_ids: np.ndarray  # int32 [B, S], the rows after replacement
    positions: np.ndarray  # int32 [B, P], ascending; unused entries are 0
    labels: np.ndarray  # int32 [B, P], the original token ids; unused entries are 0
    weights: np.ndarray  # float32 [B, P], 1 for a prediction, 0 for an unused entry


def mask(
    input_ids: np.ndarray, lengths: np.ndarray, maskable: np.ndarray, rule: MaskingRule, rng: np.random.Generator
) -> Masked:
    """Chooses positions and replaces their tokens. Each row gets at least one and at most `max_predictions_per_seq`
    positions. Whole-word masking is an exception: as in the original, a word with too many tokens is skipped, so a row
    without a short enough word gets no position. All tokens of a word (or of an n-gram) become [MASK], become random
    tokens, or stay unchanged together.
    `input_ids`: int32 [B, S]; the padding may have any values.
    `lengths`: int [B], number of tokens of each row, including [CLS] and [SEP].
    `maskable`: bool [B, S], False on [CLS], [SEP] and padding."""
    wanted = np.rint(lengths * rule.masked_lm_prob).astype(np.int32)
    limits = np.clip(wanted, 1, rule.max_predictions_per_seq)
    if rule.continues_word is None:
        positions = _choose_tokens(maskable, limits, rule.max_predictions_per_seq, rng)
        groups = positions
    else:
        positions, groups = _choose_words(input_ids, maskable, limits, rule, rng)
    return _replace(input_ids, positions, groups, rule, rng)


def _choose_tokens(maskable: np.ndarray, limits: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Chooses single tokens uniformly; returns int [B, P], ascending, filled up with _NONE."""
    columns = maskable.shape[1]
    numbers = rng.integers(0, 1 << 64, maskable.shape, np.uint64)
    order = _argsort(np.where(maskable, numbers, np.iinfo(np.uint64).max))[:, :most]
    enough = np.arange(order.shape[1]) < np.minimum(limits, maskable.sum(axis=1))[:, None]
    return _ascending(np.where(enough, order, columns), most, columns)


def _argsort(keys: np.ndarray) -> np.ndarray:
    """Sorts the columns of each row by their keys, uint64 [B, n]; returns the indices of the columns, int32 [B, n]. The
    index of the column replaces the low bits of each key, so keys that differ only in these bits count as equal.
    Sorting such numbers is several times faster than np.argsort."""
    bits = np.uint64(max(1, keys.shape[1] - 1).bit_length())
    keys = keys >> bits << bits | np.arange(keys.shape[1], dtype=np.uint64)
    keys.sort(axis=1)
    return (keys & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int32)


def _ascending(columns: np.ndarray, most: int, none: int) -> np.ndarray:
    """Sorts each row's columns, where `none` means no column; returns int32 [B, most], filled up with _NONE."""
    columns = np.sort(columns, axis=1)[:, :most]
    missing = most - columns.shape[1]
    if missing > 0:
        columns = np.pad(columns, ((0, 0), (0, missing)), constant_values=none)
    return np.where(columns == none, _NONE, columns).astype(np.int32)


def _choose_words(
    input_ids: np.ndarray, maskable: np.ndarray, limits: np.ndarray, rule: MaskingRule, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses whole words, or n-grams of words, until no more words fit."""
    rows, columns = maskable.shape
    before = np.pad(maskable[:, :-1], ((0, 0), (1, 0)))
    # A "##" token belongs to the preceding word, if there is one.
    starts = maskable & ~(rule.continues_word[input_ids] & before)
    word_of = np.cumsum(starts, axis=1, dtype=np.int32) - 1  # [B, S]
    words = max(1, int(word_of[:, -1].max(initial=-1)) + 1)
    cells = (word_of + np.arange(rows)[:, None] * words)[maskable]
    lengths = np.bincount(cells, minlength=rows * words).reshape(rows, words)  # [B, W]
    # Words are not adjacent if [SEP] is between them.
    touches = np.zeros((rows, words), bool)
    row, column = np.nonzero(starts & before)
    touches[row, word_of[row, column]] = True
    candidates = _ngrams_in_random_order(lengths, touches, rule.max_ngram_size, rng)
    group_of_word = _take_what_fits(candidates, lengths, limits)
    group_of = np.where(maskable, np.take_along_axis(group_of_word, np.maximum(word_of, 0), axis=1), _NONE)
    chosen = np.where(group_of >= 0, np.arange(columns), columns)
    positions = _ascending(chosen, rule.max_predictions_per_seq, columns)
    return positions, np.take_along_axis(group_of, np.maximum(positions, 0), axis=1)


def _ngrams_in_random_order(
    lengths: np.ndarray, touches: np.ndarray, max_ngram_size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws the order in which n-grams are tried. tf-models-official draws a size n with weight 1/n among the remaining
    sizes, and then draws a new n-gram of this size. This function has the same distribution without sequential draws:
    the n-grams of each size arrive in random order as a Poisson process of rate 1/n, and are tried in order of arrival.
    """
    words = lengths.shape[1]
    times, firsts, sizes = [], [], []
    exists = lengths > 0
    for size in range(1, min(max_ngram_size, words) + 1):
        if size > 1:
            # Extend each n-gram by the next word where the words are adjacent.
            exists = exists[:, :-1] & touches[:, size - 1 :] & (lengths[:, size - 1 :] > 0)
        numbers = rng.integers(0, 1 << 64, exists.shape, np.uint64)
        firsts.append(_argsort(np.where(exists, numbers, np.iinfo(np.uint64).max)))
        is_one = np.arange(exists.shape[1]) < exists.sum(axis=1)[:, None]
        sizes.append(size * is_one.astype(np.int32))
        arrivals = np.cumsum(rng.standard_exponential(exists.shape, np.float32), axis=1, dtype=np.float64) * size
        times.append(np.where(is_one, arrivals, np.inf))
        if max_ngram_size == 1:
            return firsts[0], sizes[0]
    # Non-negative floats have the same order as their bit patterns.
    order = _argsort(np.concatenate(times, axis=1).view(np.uint64))
    in_order = (np.take_along_axis(np.concatenate(parts, axis=1), order, axis=1) for parts in (firsts, sizes))
    return tuple(in_order)


def _take_what_fits(candidates: tuple[np.ndarray, np.ndarray], lengths: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Tries the candidates of all rows in parallel; takes each candidate that fits and overlaps no taken candidate.
    Returns int [B, W], the index of the taken candidate that contains each word; _NONE for a word in no taken
    candidate."""
    firsts, sizes = candidates
    rows, words = lengths.shape
    group_of_word = np.full((rows, words), _NONE, np.int32)
    left = limits.copy()
    active = np.arange(rows)
    for index in range(firsts.shape[1]):
        active = active[(left[active] > 0) & (sizes[active, index] > 0)]
        if not len(active):
            break
        first, size = firsts[active, index], sizes[active, index]
        members = first[:, None] + np.arange(size.max())  # [active, G]
        inside = np.arange(size.max()) < size[:, None]
        members = np.minimum(members, words - 1)
        tokens = (lengths[active[:, None], members] * inside).sum(axis=1)
        overlaps = ((group_of_word[active[:, None], members] != _NONE) & inside).any(axis=1)
        taken = (tokens <= left[active]) & ~overlaps
        left[active[taken]] -= tokens[taken]
        row, member = np.nonzero(inside & taken[:, None])
        group_of_word[active[row], members[row, member]] = index
    return group_of_word


def _replace(
    input_ids: np.ndarray, positions: np.ndarray, groups: np.ndarray, rule: MaskingRule, rng: np.random.Generator
) -> Masked:
    """Replaces each chosen token by [MASK] or a random token, or keeps it (80/10/10)."""
    chosen = positions >= 0
    positions = np.maximum(positions, 0)
    labels = np.where(chosen, np.take_along_axis(input_ids, positions, axis=1), 0)
    draw = rng.random(positions.shape)
    if rule.continues_word is not None:
        # Use one draw per group: the draw of the group's first token.
        first = (groups[:, :, None] == groups[:, None, :]).argmax(axis=2)  # [B, P]
        draw = np.take_along_axis(draw, first, axis=1)
    random_ids = rng.integers(0, rule.vocab_size, positions.shape, np.int32)
    replacements = np.where(draw < rule.mask_fraction + rule.random_fraction, random_ids, labels)
    replacements[draw < rule.mask_fraction] = rule.mask_id
    masked = input_ids.copy()
    row, column = np.nonzero(chosen)
    masked[row, positions[row, column]] = replacements[row, column]
    return Masked(masked, positions.astype(np.int32), labels.astype(np.int32), chosen.astype(np.float32))
