"""Searches for the largest batch that fits, with few compilations, because each compilation takes minutes."""

import dataclasses
from collections.abc import Callable

from bert_tf.compile_check.programs import Compiled, DoesNotFit

# The search ends when the smallest refused batch is at most this share above the largest batch that fits.
_RESOLUTION = 1 / 16


@dataclasses.dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
      fits: number of rows of the largest batch that fits; 0 if no batch fits.
      refused: number of rows of a slightly larger batch that does not fit.
    """

    fits: int
    refused: int


def search(compiled: Callable[[int], Compiled], start: int) -> Found:
    """Finds the largest batch that fits, by linear interpolation of the memory use, or by halving until a batch fits.

    Args:
      compiled: function that compiles the step for a number of rows; must raise DoesNotFit if the step does not fit.
      start: number of rows of the first batch.
    """
    fits, refused, used = 0, 0, {}
    rows = start
    while True:
        try:
            used[rows] = compiled(rows).total
            fits = max(fits, rows)
        except DoesNotFit as error:
            used[rows], limit = error.used, error.limit
            refused = min(refused or rows, rows)
        if refused and refused - fits <= max(1, fits * _RESOLUTION):
            return Found(fits, refused)
        if not refused:
            rows = 2 * rows
            continue
        rows = _between(fits, refused, used, limit)


def _between(fits: int, refused: int, used: dict[int, int], limit: int) -> int:
    """Returns a batch size between a size that fits and a refused size, by linear interpolation of the memory use."""
    if not fits:
        return max(1, refused // 2)
    share = (limit - used[fits]) / (used[refused] - used[fits])
    # Keep a distance from both ends, so that the interval shrinks in each step.
    step = max(1, int(fits * _RESOLUTION))
    return min(max(fits + int((refused - fits) * share), fits + step), refused - 1)
