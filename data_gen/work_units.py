"""Plans deterministic work units from blocks of token ids.

A work unit makes the records of one block in some of the passes over the corpus. Its output depends only on the
settings, the seed and its position in the corpus, not on the worker or the time.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

from data_gen.token_blocks import TokenBlock

# Random next sentences come from this much text around the unit, or from the whole corpus if the corpus is smaller.
WINDOW_BYTES = 64 << 20
# The records of a unit, about 7 bytes per token, must fit in memory several times.
TOKENS_PER_UNIT = 8 << 20


@dataclasses.dataclass(frozen=True)
class Unit:
    """The work on one block in some of the passes over the corpus."""

    block: int  # index of the block
    documents: int  # number of documents of the block
    first_pass: int
    last_pass: int  # the pass after the last pass of this unit

    @property
    def name(self) -> str:
        """The base name of the unit's files, unique within the plan."""
        return f"{self.block:06d}-{self.first_pass:04d}"

    @property
    def work(self) -> int:
        """Number of documents to process, summed over passes."""
        return self.documents * (self.last_pass - self.first_pass)


def plan_units(blocks: Sequence[TokenBlock], passes: int) -> list[Unit]:
    """Splits the passes into units: one unit per block, or several units if one unit would not fit in memory."""
    units = []
    for index, block in enumerate(blocks):
        groups = min(passes, math.ceil(passes * block.tokens / TOKENS_PER_UNIT))
        edges = [passes * i // groups for i in range(groups + 1)]
        units += [Unit(index, block.documents, first, last) for first, last in itertools.pairwise(edges)]
    return units


def window_around(blocks: Sequence[TokenBlock], index: int) -> range:
    """Returns the range of blocks from which the random next sentences of block `index` are drawn. The range grows by
    the nearest blocks until it contains WINDOW_BYTES of text and two documents, or until it contains all blocks."""
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
