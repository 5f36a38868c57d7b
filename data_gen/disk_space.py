"""Estimates the size of a set of records from a sample, and checks that the disks have room for the set.

The records are on disk twice while they are shuffled: in the files of the work units and in the shards.
"""

import dataclasses
import gzip
import os
import shutil
from collections.abc import Sequence

import numpy as np

from bert_tf.core.errors import InputError
from bert_tf.jobs.job import Job, NoRoomError
from data_gen.examples import SpecialTokens, example_columns, features_of
from data_gen.settings import GeneratorSettings
from data_gen.token_blocks import Block, load_window
from tfrecords import records
from tfrecords.reader import FRAME_BYTES

_SAMPLED_TOKENS = 1 << 17
_COMPRESSED_RECORDS = 500


@dataclasses.dataclass(frozen=True)
class Need:
    """Estimated size of all records of a set.

    Attributes:
      units: total size of the work units' files in bytes.
      shards: total size of the shards in bytes.
    """

    units: float
    shards: float


def check(blocks: Sequence[Block], share: float, special_tokens: SpecialTokens, job: Job) -> None:
    """Checks that every disk has enough free space for its part of the set.

    If an earlier run of the same job has left files, their space counts as free. Remote file systems are not checked.

    Args:
      blocks: the tokenized corpus, or its beginning.
      share: fraction of the corpus that the blocks cover, above 0 and at most 1.
      special_tokens: see `SpecialTokens`.
      job: the job that generates the set.

    Raises:
      InputError: a disk has too little free space; the message names the folder, the space needed and the space
        available. If work units of an earlier run exist, the error is a NoRoomError, because a rerun can resume.
    """
    need = estimate(blocks, share, special_tokens, job.settings, job.id)
    if need is None:
        return
    wanted: dict[int, float] = {}
    folders: dict[int, str] = {}
    per_shard = need.shards / len(job.outputs)
    for folder, size in [*((os.path.dirname(path), per_shard) for path in job.outputs), (job.folder, need.units)]:
        if "://" in folder:
            continue
        place = _existing(folder)
        device = os.stat(place).st_dev
        folders.setdefault(device, place)
        wanted[device] = wanted.get(device, 0.0) + size
    there = _sizes([*unit_paths(job), *job.outputs])
    for device, size in wanted.items():
        free = shutil.disk_usage(folders[device]).free + there.get(device, 0)
        if size > free:
            raise (NoRoomError if unit_paths(job) else InputError)(
                f"--output_file: {folders[device]} has {_shown(free)} free, but about {_shown(size)} are needed: "
                f"{_shown(need.shards)} for all records, and {_shown(need.units)} more while they are shuffled; free "
                "some space and run the same command again, or start over with --output_file on a larger disk or a "
                "lower --dupe_factor"
            )


def unit_paths(job: Job) -> list[str]:
    """Returns the files of work units that an earlier run of the job left on a local disk."""
    folder = f"{job.folder}/units"
    return [f"{folder}/{name}" for name in os.listdir(folder)] if os.path.isdir(folder) else []


def estimate(
    blocks: Sequence[Block], share: float, special_tokens: SpecialTokens, settings: GeneratorSettings, job: str
) -> Need | None:
    """Estimates the size of a set from the rows of its first documents; returns None if there are too few documents."""
    sample = _first_blocks(blocks, 2 if settings.objective == "mlm_nsp" else 1)
    if not sample:
        return None
    window = load_window(sample, job)
    ends = window.sentence_starts[window.document_starts[1:]]  # end of each document, in tokens
    documents = range(min(len(ends), int(np.searchsorted(ends, _SAMPLED_TOKENS)) + 1))
    made: list[bytes] = []
    for columns in example_columns(window, documents, settings, special_tokens, np.random.default_rng(0)):
        made += records.serialize(columns, features_of(settings))
    size = sum(map(len, made)) + FRAME_BYTES * len(made)
    tokens = sum(block.tokens for block in blocks) / share
    units = size / ends[len(documents) - 1] * tokens * settings.dupe_factor
    return Need(units, units * (_compressed(made) if settings.gzip_compress else 1.0))


def _first_blocks(blocks: Sequence[Block], documents: int) -> Sequence[Block]:
    """Returns the shortest prefix of the blocks with at least `documents` documents; [] if all blocks have fewer."""
    found = 0
    for index, block in enumerate(blocks):
        found += block.documents
        if found >= documents:
            return blocks[: index + 1]
    return []


def _compressed(made: Sequence[bytes]) -> float:
    some = b"".join(made[:_COMPRESSED_RECORDS])
    return len(gzip.compress(some)) / max(1, len(some))


def _existing(folder: str) -> str:
    """Returns the folder, or its nearest parent that exists."""
    folder = os.path.abspath(folder or ".")
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def _sizes(paths: Sequence[str]) -> dict[int, int]:
    """Maps device numbers to the total bytes of the files on the device; files that do not exist are skipped."""
    sizes: dict[int, int] = {}
    for path in paths:
        if os.path.isfile(path):
            found = os.stat(path)
            sizes[found.st_dev] = sizes.get(found.st_dev, 0) + found.st_size
    return sizes


def _shown(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
