"""The plan: blocks of ids -> deterministic work units -> shards.

A unit is a few documents of one block and some of the passes over the corpus. What it writes depends on the
settings, the seed and its place in the corpus alone, not on who does it, or when.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from data_gen.token_blocks import Block
from tfrecords.errors import InputError

# A random next sentence comes from so much text around the unit, or from the whole corpus if that is less.
WINDOW_BYTES = 64 << 20
# So that the records of a unit, about 7 bytes a token, fit in memory several times.
TOKENS_PER_UNIT = 8 << 20
# Tells the plan's stream of numbers apart from others of the same seed.
_PLANNING = 2


@dataclasses.dataclass(frozen=True)
class Unit:
    """Documents `start` to `stop` of a block, in passes `first_pass` to `last_pass`, both ends open above."""

    block: int
    start: int
    stop: int
    first_pass: int
    last_pass: int

    @property
    def name(self) -> str:
        """Names the unit's files; no other unit of the plan has the same."""
        return f"{self.block:06d}-{self.start:06d}-{self.first_pass:04d}"

    @property
    def documents(self) -> int:
        """Documents to go through, each pass counted."""
        return (self.stop - self.start) * (self.last_pass - self.first_pass)


def plan_units(blocks: Sequence[Block], passes: int, shards: int) -> list[Unit]:
    """Cuts the corpus into units: one a block, more where that is too much for memory or too few for the shards.

    Raises:
      InputError: there are fewer documents and passes than shards.
    """
    pass_groups = [min(passes, math.ceil(passes * block.tokens / TOKENS_PER_UNIT)) for block in blocks]
    units = _cut(blocks, [1] * len(blocks), pass_groups, passes)
    if len(units) < shards:
        slices = [min(block.documents, math.ceil(shards / len(units))) for block in blocks]
        units = _cut(blocks, slices, pass_groups, passes)
    if len(units) < shards:
        slices = [block.documents for block in blocks]
        units = _cut(blocks, slices, [min(passes, math.ceil(shards / sum(slices)))] * len(blocks), passes)
    if len(units) < shards:
        documents = sum(block.documents for block in blocks)
        raise InputError(
            f"--output_file names {shards} shards, but --input_file holds {documents} document(s), gone through "
            f"{passes} time(s): give at most {documents * passes} shards"
        )
    return units


def _cut(blocks: Sequence[Block], slices: Sequence[int], pass_groups: Sequence[int], passes: int) -> list[Unit]:
    units = []
    for index, block in enumerate(blocks):
        edges = [block.documents * i // slices[index] for i in range(slices[index] + 1)]
        groups = pass_groups[index]
        turns = [passes * i // groups for i in range(groups + 1)]
        for start, stop in itertools.pairwise(edges):
            units += [Unit(index, start, stop, a, b) for a, b in itertools.pairwise(turns)]
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


def assign_shards(units: Sequence[Unit], shards: int, seed: int) -> list[list[Unit]]:
    """The units of each shard.

    Units are dealt out in random order, so that each shard, and each part of a shard, is a sample of the whole
    corpus and not one corner of it.
    """
    order = np.random.default_rng((seed, _PLANNING)).permutation(len(units))
    return [[units[i] for i in order[shard::shards]] for shard in range(shards)]
