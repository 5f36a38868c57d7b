"""The largest batch that fits, in few compilations, since each takes minutes."""

import dataclasses
from collections.abc import Callable

from tpu_check.programs import Compiled, DoesNotFit

# A batch that is refused, at most this share above one that fits, settles it.
_RESOLUTION = 1 / 16


@dataclasses.dataclass(frozen=True)
class Found:
    """Rows of a batch that fits (0: none does), and of a slightly larger one that does not."""

    fits: int
    refused: int


def search(compiled: Callable[[int], Compiled], start: int) -> Found:
    """Finds it by the line through what two batches take, as long as that leads on, and by halves where it does not.

    Args:
      compiled: from rows of a batch to what they take; raises DoesNotFit.
      start: rows to begin with.
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
    """A batch above one that fits and below one that does not; where the line through both meets the limit."""
    if not fits:
        return max(1, refused // 2)
    share = (limit - used[fits]) / (used[refused] - used[fits])
    # not so near to either that the other end would stay where it is
    step = max(1, int(fits * _RESOLUTION))
    return min(max(fits + int((refused - fits) * share), fits + step), refused - 1)
