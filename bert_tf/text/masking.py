"""Which positions the masked language model predicts, and what stands there instead.

The one place where this is done, for whole batches at a time: when records are written (static
masking) and when they are read (dynamic masking, `input_pipeline`).

Paper: section 3.1 (Task 1), appendix A.1 (the 80/10/10 rule), C.2 (other fractions), and the
whole-word variant of the original's repository; n-grams as in tf-models-official.

Letters: B rows, S pieces of a row, P predictions of a row, W words of a row, G n-gram sizes.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_NONE = -1


@dataclasses.dataclass(frozen=True)
class MaskingRule:
    """How much is masked and by what.

    Attributes:
      vocab_size: random replacements are drawn from ids 0 to vocab_size - 1.
      mask_id: id of [MASK].
      masked_lm_prob: share of a row's pieces, [CLS] and [SEP] counted, that is predicted.
      max_predictions_per_seq: P, at most so many positions a row.
      continues_word: bool [vocab_size], True for "##" pieces, to mask whole words; None for single pieces.
      max_ngram_size: G, up to so many words in a row are masked together; more than 1 needs `continues_word`.
      mask_fraction: of the chosen, this share becomes [MASK].
      random_fraction: this share becomes a random piece; the rest stays as it is.
    """

    vocab_size: int
    mask_id: int
    masked_lm_prob: float = 0.15
    max_predictions_per_seq: int = 20
    continues_word: np.ndarray | None = None
    max_ngram_size: int = 1
    mask_fraction: float = 0.8
    random_fraction: float = 0.1

    @classmethod
    def of_settings(
        cls, vocabulary: Sequence[str], settings: Mapping[str, Any], max_predictions_per_seq: int
    ) -> "MaskingRule":
        """The rule that the generator's settings state, for its own use and for the input pipeline's.

        Args:
          vocabulary: pieces in the order of their ids.
          settings: the generator's, by their names, as its manifest has them.
          max_predictions_per_seq: P.
        """
        whole_words = settings["do_whole_word_mask"]
        return cls(
            vocab_size=len(vocabulary),
            mask_id=vocabulary.index("[MASK]"),
            masked_lm_prob=settings["masked_lm_prob"],
            max_predictions_per_seq=max_predictions_per_seq,
            continues_word=np.array([piece.startswith("##") for piece in vocabulary]) if whole_words else None,
            max_ngram_size=settings["max_ngram_size"] or 1,
            mask_fraction=settings["mask_fraction"],
            random_fraction=settings["random_fraction"],
        )


@dataclasses.dataclass(frozen=True)
class Masked:
    """Rows with their predictions.

    Attributes:
      input_ids: int32 [B, S], the rows with the replacements in them.
      positions: int32 [B, P], ascending, 0 where there is no prediction.
      labels: int32 [B, P], the pieces that stood there, 0 where there is no prediction.
      weights: float32 [B, P], 1 for a prediction and 0 for none.
    """

    input_ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


def mask(
    input_ids: np.ndarray, lengths: np.ndarray, maskable: np.ndarray, rule: MaskingRule, rng: np.random.Generator
) -> Masked:
    """Chooses positions and replaces what stands there.

    At most `max_predictions_per_seq` positions a row are chosen, and at least one, unless whole words are
    asked for and none is short enough: as in the original a word that does not fit is passed over. All
    pieces of a word (of an n-gram) become [MASK], or random pieces, or stay, together.

    Args:
      input_ids: int32 [B, S], padded with anything.
      lengths: int [B], pieces of each row, [CLS] and [SEP] counted.
      maskable: bool [B, S], False on [CLS], [SEP] and padding.
      rule: see `MaskingRule`.
      rng: source of randomness.
    """
    wanted = np.rint(lengths * rule.masked_lm_prob).astype(np.int32)
    limits = np.clip(wanted, 1, rule.max_predictions_per_seq)
    if rule.continues_word is None:
        positions = _choose_pieces(maskable, limits, rule.max_predictions_per_seq, rng)
        groups = positions
    else:
        positions, groups = _choose_words(input_ids, maskable, limits, rule, rng)
    return _replace(input_ids, positions, groups, rule, rng)


def _choose_pieces(maskable: np.ndarray, limits: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Single pieces, uniformly; int [B, P], ascending, _NONE at the end."""
    columns = maskable.shape[1]
    numbers = rng.integers(0, 1 << 64, maskable.shape, np.uint64)
    order = _argsort(np.where(maskable, numbers, np.iinfo(np.uint64).max))[:, :most]
    enough = np.arange(order.shape[1]) < np.minimum(limits, maskable.sum(axis=1))[:, None]
    return _ascending(np.where(enough, order, columns), most, columns)


def _argsort(keys: np.ndarray) -> np.ndarray:
    """Columns in the order of each row's keys, uint64 [B, n]; keys that differ in their low bits only count as equal.

    Sorting numbers that carry their column in their low bits is several times faster than np.argsort.
    """
    bits = np.uint64(max(1, keys.shape[1] - 1).bit_length())
    keys = keys >> bits << bits | np.arange(keys.shape[1], dtype=np.uint64)
    keys.sort(axis=1)
    return (keys & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int32)


def _ascending(columns: np.ndarray, most: int, none: int) -> np.ndarray:
    """Sorts each row's columns, `none` meaning none; int32 [B, most] with _NONE at the end."""
    columns = np.sort(columns, axis=1)[:, :most]
    missing = most - columns.shape[1]
    if missing > 0:
        columns = np.pad(columns, ((0, 0), (0, missing)), constant_values=none)
    return np.where(columns == none, _NONE, columns).astype(np.int32)


def _choose_words(
    input_ids: np.ndarray, maskable: np.ndarray, limits: np.ndarray, rule: MaskingRule, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Whole words or n-grams of them, until no more fit.

    Returns:
      Positions int [B, P], ascending, _NONE at the end; and for each the number of its group, the pieces that
      are replaced together.
    """
    rows, columns = maskable.shape
    before = np.pad(maskable[:, :-1], ((0, 0), (1, 0)))
    # a "##" piece belongs to the word before it, if a word stands there
    starts = maskable & ~(rule.continues_word[input_ids] & before)
    word_of = np.cumsum(starts, axis=1, dtype=np.int32) - 1  # [B, S]
    words = max(1, int(word_of[:, -1].max(initial=-1)) + 1)
    cells = (word_of + np.arange(rows)[:, None] * words)[maskable]
    lengths = np.bincount(cells, minlength=rows * words).reshape(rows, words)  # [B, W]
    # words with a [SEP] between them are no neighbours
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
    """The order in which n-grams are tried.

    tf-models-official draws a size n with weight 1/n among the sizes that are left, then an n-gram of that size
    that was not drawn yet. The same law, without drawing one after the other: the n-grams of each size
    arrive in a random order as a Poisson process of rate 1/n, and are tried as they arrive.

    Args:
      lengths: int [B, W], pieces of each word, 0 where the row has fewer words.
      touches: bool [B, W], whether a word stands right after the word before it.
      max_ngram_size: G.
      rng: source of randomness.

    Returns:
      First words int [B, C] and sizes int [B, C] of the n-grams in their order; size 0 at the end, for none.
    """
    words = lengths.shape[1]
    times, firsts, sizes = [], [], []
    exists = lengths > 0
    for size in range(1, min(max_ngram_size, words) + 1):
        if size > 1:
            # an n-gram and the next word, where that one touches it
            exists = exists[:, :-1] & touches[:, size - 1 :] & (lengths[:, size - 1 :] > 0)
        numbers = rng.integers(0, 1 << 64, exists.shape, np.uint64)
        firsts.append(_argsort(np.where(exists, numbers, np.iinfo(np.uint64).max)))
        is_one = np.arange(exists.shape[1]) < exists.sum(axis=1)[:, None]
        sizes.append(size * is_one.astype(np.int32))
        arrivals = np.cumsum(rng.standard_exponential(exists.shape, np.float32), axis=1, dtype=np.float64) * size
        times.append(np.where(is_one, arrivals, np.inf))
        if max_ngram_size == 1:
            return firsts[0], sizes[0]
    # numbers of at least 0 sort as their bits do
    order = _argsort(np.concatenate(times, axis=1).view(np.uint64))
    in_order = (np.take_along_axis(np.concatenate(parts, axis=1), order, axis=1) for parts in (firsts, sizes))
    return tuple(in_order)


def _take_what_fits(candidates: tuple[np.ndarray, np.ndarray], lengths: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Goes through all rows' candidates side by side and takes each that fits and overlaps nothing taken.

    Returns:
      int [B, W]: the number of the candidate that took each word, _NONE for words that are not taken.
    """
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
        pieces = (lengths[active[:, None], members] * inside).sum(axis=1)
        overlaps = ((group_of_word[active[:, None], members] != _NONE) & inside).any(axis=1)
        taken = (pieces <= left[active]) & ~overlaps
        left[active[taken]] -= pieces[taken]
        row, member = np.nonzero(inside & taken[:, None])
        group_of_word[active[row], members[row, member]] = index
    return group_of_word


def _replace(
    input_ids: np.ndarray, positions: np.ndarray, groups: np.ndarray, rule: MaskingRule, rng: np.random.Generator
) -> Masked:
    """Puts [MASK], a random piece, or nothing new at each chosen position (80/10/10)."""
    chosen = positions >= 0
    positions = np.maximum(positions, 0)
    labels = np.where(chosen, np.take_along_axis(input_ids, positions, axis=1), 0)
    draw = rng.random(positions.shape)
    if rule.continues_word is not None:
        # one draw a group: that of its first piece
        first = (groups[:, :, None] == groups[:, None, :]).argmax(axis=2)  # [B, P]
        draw = np.take_along_axis(draw, first, axis=1)
    random_ids = rng.integers(0, rule.vocab_size, positions.shape, np.int32)
    replacements = np.where(draw < rule.mask_fraction + rule.random_fraction, random_ids, labels)
    replacements[draw < rule.mask_fraction] = rule.mask_id
    masked = input_ids.copy()
    row, column = np.nonzero(chosen)
    masked[row, positions[row, column]] = replacements[row, column]
    return Masked(masked, positions.astype(np.int32), labels.astype(np.int32), chosen.astype(np.float32))
