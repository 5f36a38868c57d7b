"""Makes shards from blocks of token ids: makes all work units, then distributes their records randomly over shards."""

import dataclasses
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.core.progress_bar import SECONDS_BETWEEN_LINES
from bert_tf.jobs.job import Job, ShardTask
from bert_tf.jobs.runner import Runner
from bert_tf.jobs.stage import run_stage
from data_gen import unit_files
from data_gen.examples import SpecialTokens, UnitCounts, UnitTask, make_unit, read_counts
from data_gen.shuffle import deal
from data_gen.token_blocks import TokenBlock
from data_gen.work_units import Unit, plan_units, window_around
from tfrecords import writer
from tfrecords.manifest import Shard

# Keys of the random streams that this module uses; `examples` uses other keys.
_TO_SHARDS, _TO_BUCKETS, _IN_BUCKET = 3, 4, 5
# A shard is shuffled in buckets of about this size, so that each bucket fits in memory.
BUCKET_BYTES = 64 << 20
_RECORDS_AT_ONCE = 1024


@dataclasses.dataclass(frozen=True)
class ShuffleTask(ShardTask):
    """The task to write a shard."""

    units_path: str  # the file that lists all work units
    shards: int  # number of shards
    buckets: int  # number of buckets in which the shard is shuffled
    seed: int  # seed of the order of the records
    gzip_compress: bool


def plan_unit_tasks(blocks: Sequence[TokenBlock], special_tokens: SpecialTokens, job: Job) -> list[UnitTask]:
    """Returns the unit tasks in corpus order, so that adjacent units share most blocks of their windows."""
    settings = job.settings

    def task_of(unit: Unit) -> UnitTask:
        # Only random next sentences need text from other blocks.
        own = range(unit.block, unit.block + 1)
        window = window_around(blocks, unit.block) if settings.objective == "mlm_nsp" else own
        return UnitTask(
            unit, blocks[window.start : window.stop], unit.block - window.start, settings, special_tokens, job.id,
            f"{job.folder}/units",
        )  # fmt: skip

    return [task_of(unit) for unit in plan_units(blocks, settings.dupe_factor)]


def make_units(tasks: Sequence[UnitTask], runner: Runner) -> list[UnitCounts]:
    """Makes the units that an earlier run did not finish; returns the counts of all units in the order of the tasks."""
    if tasks:
        tf.io.gfile.makedirs(tasks[0].folder)
    return run_stage(
        "making examples", "documents", runner, tasks, make_unit, read_counts, amount=lambda task: task.unit.work
    )


def make_shards(
    tasks: Sequence[UnitTask], counts: Sequence[UnitCounts], job: Job, runner: Runner, finished: Sequence[Shard | None]
) -> list[Shard]:
    """Makes the missing shards of a job.
    `tasks`: the tasks of all units; the units' records are on disk.
    `counts`: the counts of each unit, in the order of `tasks`.
    `finished`: the shard of each output; None for a missing shard."""
    examples = sum(each.examples for each in counts)
    if examples < len(job.outputs):
        raise InputError(
            f"--output_file names {len(job.outputs)} shards, but the corpus yields {examples} example(s); give at most "
            f"{examples} shards"
        )
    units = [(task.path, each.examples) for task, each in zip(tasks, counts, strict=True)]
    units_path = f"{job.folder}/units/units.json"
    storage.write_json(units_path, units)
    buckets = math.ceil(sum(each.bytes for each in counts) / len(job.outputs) / BUCKET_BYTES)
    shuffles = [
        ShuffleTask(
            **vars(task), units_path=units_path, shards=len(job.outputs), buckets=buckets,
            seed=job.settings.random_seed, gzip_compress=job.settings.gzip_compress,
        )
        for task in job.shard_tasks(finished)
    ]  # fmt: skip
    return run_stage("shuffling", "shards", runner, shuffles, write_shard, ShuffleTask.read)


def write_shard(task: ShuffleTask) -> Shard:
    """Writes a shard: a random share of every unit's records, in random order."""
    with tf.io.gfile.GFile(task.units_path) as file:
        paths, examples = zip(*json.load(file), strict=True)
    only = range(task.index, task.index + 1)
    ((starts, counts),) = deal(np.array(examples, np.int64), task.shards, (task.seed, _TO_SHARDS), only)
    parts = _shuffled(paths, starts, counts, task)
    size, digest = writer.write_framed(task.path, parts, task.gzip_compress)
    shard = Shard(task.name, int(counts.sum()), size, digest)
    storage.write_json(task.result_path, shard)
    return shard


def _shuffled(paths: Sequence[str], starts: np.ndarray, counts: np.ndarray, task: ShuffleTask) -> Iterator[bytes]:
    """Yields the records of a shard in their final order, several records per item."""
    last_line = time.monotonic()
    for bucket, (within, taken) in enumerate(deal(counts, task.buckets, (task.seed, _TO_BUCKETS, task.index))):
        data, edges = bytearray(), [np.zeros(1, np.int64)]
        for unit in np.flatnonzero(taken).tolist():
            records, offsets = unit_files.read(paths[unit], int(starts[unit] + within[unit]), int(taken[unit]))
            edges.append(len(data) + offsets[1:])
            data += records
        offsets = np.concatenate(edges)
        order = np.random.default_rng((task.seed, _IN_BUCKET, task.index, bucket)).permutation(len(offsets) - 1)
        view = memoryview(data)
        for start in range(0, len(order), _RECORDS_AT_ONCE):
            part = order[start : start + _RECORDS_AT_ONCE]
            yield b"".join([view[a:b] for a, b in zip(offsets[part].tolist(), offsets[part + 1].tolist(), strict=True)])
        # On a terminal, the progress bar counts whole shards, and a log line would break the bar.
        if time.monotonic() - last_line > SECONDS_BETWEEN_LINES and not sys.stderr.isatty():
            last_line = time.monotonic()
            logging.info("%s: shuffled %d of %d buckets", task.name, bucket + 1, task.buckets)
