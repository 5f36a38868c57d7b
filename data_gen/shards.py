"""From blocks of ids to shards: the units are made, and shuffled into shards as soon as they are there."""

import dataclasses
import json
from collections.abc import Iterator, Sequence

import tensorflow as tf

from bert_tf.masking import MaskingRule
from bert_tf.tokenization import CLS, SEP
from data_gen.examples import Facts, Pieces, UnitTask, make_unit, read_facts
from data_gen.job import Job
from data_gen.progress import Progress
from data_gen.runner import Runner
from data_gen.token_blocks import Block
from data_gen.work_units import Unit, assign_shards, plan_units, window_around
from tfrecords import writer
from tfrecords.manifest import Shard

# Told apart from the streams of numbers of units (`examples`) and of the plan (`work_units`).
_JOINING = 3
# Shards are finished in groups of so many units, so that units and shards are not both on the disk in full.
_UNITS_PER_GROUP = 64


@dataclasses.dataclass(frozen=True)
class JoinTask:
    """A shard and the tasks of its units; the seed decides the order of its records."""

    path: str
    name: str
    result_path: str
    units: Sequence[UnitTask]
    seed: tuple[int, ...]
    gzip_compress: bool


def make_shards(
    blocks: Sequence[Block], vocabulary: Sequence[str], job: Job, runner: Runner, finished: Sequence[Shard | None]
) -> tuple[list[Shard], Facts]:
    """Makes what is missing of a job's shards.

    Args:
      blocks: the corpus as ids.
      vocabulary: pieces in the order of their ids.
      job: says what to make.
      runner: does the work.
      finished: for each of the job's outputs its shard, or None where it is to be made.

    Returns:
      All shards, and the facts of the records of those that were not finished.

    Raises:
      InputError: there are fewer documents and passes than shards.
    """
    for folder in ("units", "shards"):
        tf.io.gfile.makedirs(f"{job.folder}/{folder}")
    plan = _plan(blocks, vocabulary, job)
    joins = [join for join, shard in zip(plan, finished, strict=True) if shard is None]
    done = {join.path: result for join in joins if (result := _read_result(join)) is not None}
    _remove_units([join for join in joins if join.path in done])
    todo = [join for join in joins if join.path not in done]
    units = [unit for join in joins for unit in join.units]
    ready = {unit.unit.name for join in todo for unit in join.units if read_facts(unit) is not None}
    made = sum(facts.examples for _, facts in done.values())
    with Progress("making examples", sum(task.unit.documents for task in units), "documents") as progress:
        kept = [unit for join in joins for unit in join.units if join.path in done or unit.unit.name in ready]
        progress.start_at(sum(task.unit.documents for task in kept))
        for group in _groups(todo, max(_UNITS_PER_GROUP, 4 * runner.num_workers)):
            tasks = [unit for join in group for unit in join.units if unit.unit.name not in ready]
            # in the corpus's order, as neighbouring units have most blocks of their windows in common
            tasks.sort(key=lambda task: (task.unit.block, task.unit.start, task.unit.first_pass))
            for unit, facts in runner.map(make_unit, tasks):
                made += facts.examples
                progress.update(unit.documents, f"{made:,} examples")
            for path, shard, facts in runner.map(join_units, group):
                done[path] = (shard, facts)
            _remove_units(group)
    shards = [shard or done[join.path][0] for join, shard in zip(plan, finished, strict=True)]
    return shards, sum((facts for _, facts in done.values()), Facts())


def _groups(joins: Sequence[JoinTask], units: int) -> Iterator[list[JoinTask]]:
    """Neighbouring shards with so many units together, or more where one shard has more."""
    group: list[JoinTask] = []
    for join in joins:
        group.append(join)
        if sum(len(member.units) for member in group) >= units:
            yield group
            group = []
    if group:
        yield group


def join_units(task: JoinTask) -> tuple[str, Shard, Facts]:
    """Writes a shard from its units, all their records shuffled."""
    facts = sum((read_facts(unit) for unit in task.units), Facts())
    size, digest = writer.merge_shuffled(task.path, [u.path for u in task.units], task.seed, task.gzip_compress)
    shard = Shard(task.name, facts.examples, size, digest)
    writer.write_text(task.result_path, json.dumps([dataclasses.asdict(shard), dataclasses.asdict(facts)]))
    return task.path, shard, facts


def _remove_units(joins: Sequence[JoinTask]) -> None:
    """Removes the units of finished shards; not when they are joined, as a cluster may join the same ones again."""
    for join in joins:
        for unit in join.units:
            # what says that the records are there goes before them
            for path in (unit.result_path, unit.path):
                if tf.io.gfile.exists(path):
                    tf.io.gfile.remove(path)


def _read_result(task: JoinTask) -> tuple[Shard, Facts] | None:
    """What an earlier run found of a shard that it finished; None if it did not, or the shard has gone since."""
    if not tf.io.gfile.exists(task.result_path) or not tf.io.gfile.exists(task.path):
        return None
    with tf.io.gfile.GFile(task.result_path) as file:
        shard, facts = json.load(file)
    if tf.io.gfile.stat(task.path).length != shard["bytes"]:
        return None
    return Shard(**shard), Facts(**facts)


def _plan(blocks: Sequence[Block], vocabulary: Sequence[str], job: Job) -> list[JoinTask]:
    settings = job.settings
    units = plan_units(blocks, settings.dupe_factor, len(job.outputs))
    rule = MaskingRule.of_settings(vocabulary, dataclasses.asdict(settings), settings.max_predictions_per_seq)
    pieces = Pieces(vocabulary.index(CLS), vocabulary.index(SEP), rule)

    def task_of(unit: Unit) -> UnitTask:
        # without random next sentences nothing but the unit's own block is read
        own = range(unit.block, unit.block + 1)
        window = window_around(blocks, unit.block) if settings.objective == "mlm_nsp" else own
        return UnitTask(
            unit, blocks[window.start : window.stop], unit.block - window.start, settings, pieces, job.id,
            f"{job.folder}/units",
        )  # fmt: skip

    members = assign_shards(units, len(job.outputs), settings.random_seed)
    return [
        JoinTask(
            path,
            name,
            f"{job.folder}/shards/{index:05d}.json",
            [task_of(unit) for unit in units],
            (settings.random_seed, _JOINING, index),
            settings.gzip_compress,
        )
        for index, (path, name, units) in enumerate(zip(job.outputs, job.identity["outputs"], members, strict=True))
    ]
