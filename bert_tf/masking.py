"""Which positions the masked language model predicts, and what stands there instead.

Paper: section 3.1 (Task 1), appendix A.1 (the 80/10/10 rule) and the whole-word variant of the
original's repository.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class MaskingRule:
    """How much is masked and by what.

    Attributes:
      vocab_size: replacements are drawn from ids 0 to vocab_size - 1.
      mask_id: id of [MASK].
      masked_lm_prob: share of a row's pieces, [CLS] and [SEP] counted, that is predicted.
      max_predictions_per_seq: at most so many positions a row.
      continues_word: bool [vocab_size], True for "##" pieces, to mask whole words; None for single pieces.
      mask_fraction: of the chosen, this share becomes [MASK].
      random_fraction: this share becomes a random piece; the rest stays as it is.
    """

    vocab_size: int
    mask_id: int
    masked_lm_prob: float = 0.15
    max_predictions_per_seq: int = 20
    continues_word: np.ndarray | None = None
    mask_fraction: float = 0.8
    random_fraction: float = 0.1


def choose_positions(ids: np.ndarray, maskable: np.ndarray, rule: MaskingRule, rng: np.random.Generator):
    """Chooses the positions to predict, uniformly over pieces or over whole words.

    At most `max_predictions_per_seq` positions are chosen, and at least one, unless whole words are asked
    for and none is short enough: as in the original a word that does not fit is passed over.

    Args:
      ids: int [n], a row's pieces without padding.
      maskable: bool [n], False on [CLS] and [SEP].
      rule: see `MaskingRule`.
      rng: source of randomness.

    Returns:
      int array of positions, ascending.
    """
    count = min(rule.max_predictions_per_seq, max(1, round(len(ids) * rule.masked_lm_prob)))
    candidates = np.flatnonzero(maskable)
    if rule.continues_word is None:
        return np.sort(rng.permutation(candidates)[:count])
    # a continuation belongs to the word of the candidate before it, if that one is its neighbour
    continues = rule.continues_word[ids[candidates]]
    continues &= np.diff(candidates, prepend=-2) == 1
    words = np.split(candidates, np.flatnonzero(~continues)[1:])
    chosen: list[int] = []
    for index in rng.permutation(len(words)):
        if len(chosen) + len(words[index]) <= count:
            chosen.extend(words[index])
        if len(chosen) == count:
            break
    return np.sort(np.array(chosen, np.int64))


def replace(ids: np.ndarray, positions: np.ndarray, rule: MaskingRule, rng: np.random.Generator) -> np.ndarray:
    """Puts [MASK], a random piece, or nothing new at each chosen position (80/10/10).

    Args:
      ids: int [n].
      positions: int [p], what `choose_positions` gave.
      rule: see `MaskingRule`.
      rng: source of randomness.

    Returns:
      A copy of `ids` with the replacements.
    """
    draw = rng.random(len(positions))
    random_ids = rng.integers(0, rule.vocab_size, len(positions))
    masked = ids.copy()
    masked[positions] = np.where(
        draw < rule.mask_fraction,
        rule.mask_id,
        np.where(draw < rule.mask_fraction + rule.random_fraction, random_ids, ids[positions]),
    )
    return masked
