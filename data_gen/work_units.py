"""The plan: blocks of ids -> deterministic work units.

A unit is one block in some of the passes over the corpus. What it writes depends on the settings, the seed and its
place in the corpus alone, not on who does it, or when.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

from data_gen.token_blocks import Block

# A random next sentence comes from so much text around the unit, or from the whole corpus if that is less.
WINDOW_BYTES = 64 << 20
# So that the records of a unit, about 7 bytes a token, fit in memory several times.
TOKENS_PER_UNIT = 8 << 20


@dataclasses.dataclass(frozen=True)
class Unit:
    """A block of so many documents, in passes `first_pass` to `last_pass`, the last one not included."""

    block: int
    documents: int
    first_pass: int
    last_pass: int

    @property
    def name(self) -> str:
        """Names the unit's files; no other unit of the plan has the same."""
        return f"{self.block:06d}-{self.first_pass:04d}"

    @property
    def work(self) -> int:
        """Documents to go through, each pass counted."""
        return self.documents * (self.last_pass - self.first_pass)


def plan_units(blocks: Sequence[Block], passes: int) -> list[Unit]:
    """Cuts the passes over the corpus into units: one per block, or more where that is too much for memory."""
    units = []
    for index, block in enumerate(blocks):
        groups = min(passes, math.ceil(passes * block.tokens / TOKENS_PER_UNIT))
        edges = [passes * i // groups for i in range(groups + 1)]
        units += [Unit(index, block.documents, first, last) for first, last in itertools.pairwise(edges)]
    return units


def window_around(blocks: Sequence[Block], index: int) -> range:
    """The blocks from which the random next sentences of block `index` come.

    The nearest ones, until they hold WINDOW_BYTES of text and two documents, or are all there are.
    """
    start, stop = index, index + 1
    size, documents = blocks[index].text_bytes, blocks[index].documents
    while (size < WINDOW_BYTES or documents < 2) and stop - start < len(blocks):
        if start > 0 and (index - start <= stop - 1 - index or stop == len(blocks)):
            start -= 1
            added = blocks[start]
        else:
            added = blocks[stop]
            stop += 1
        size += added.text_bytes
        documents += added.documents
    return range(start, stop)
