"""A job that reads files of text: a part for each source of lines, then shards of parts.

Parts and shards are written atomically, so that an interrupted run resumes from the files that exist. A task may run
more than once, on any worker; it writes the same bytes each time.
"""

import dataclasses
import functools
import itertools
import json
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from absl import logging

from jobs.job import Job
from jobs.progress import Progress
from jobs.runner import Runner
from jobs.sources import Source
from tfrecords import manifest, writer
from tfrecords.errors import InputError

# What a job writes into its work folder.
FOLDERS = ("parts", "shards")


@dataclasses.dataclass(frozen=True)
class PartTask:
    """A source of which a part is to be written.

    Attributes:
      source: the lines.
      path: where the part is written; `path` + ".json" holds its facts and marks it as finished.
      settings: resolved, a dataclass.
      weights_sha256: of the model, whose weights may change under the same path.
    """

    source: Source
    path: str
    settings: Any
    weights_sha256: str

    @property
    def result_path(self) -> str:
        """The file with the facts."""
        return self.path + ".json"


class Facts(Protocol):
    """Counts of a part, a dataclass; `+` adds those of another part. Without arguments, of nothing.

    Attributes:
      lines: lines read.
      texts: written.
      bytes: size of the part.
    """

    lines: int
    texts: int
    bytes: int

    def __add__(self, other: "Facts") -> "Facts": ...


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """Parts to be joined.

    Attributes:
      index: of the shard.
      path, name: the output path, and the shard's name in the manifest.
      result_path: the file that marks the shard as finished and holds its manifest entry.
      parts: the paths of the parts, in order.
      facts: their sum.
      settings: resolved, a dataclass.
    """

    index: int
    path: str
    name: str
    result_path: str
    parts: tuple[str, ...]
    facts: Facts
    settings: Any


@dataclasses.dataclass(frozen=True)
class Program:
    """What a program does with parts and shards; its functions must be picklable.

    Attributes:
      what: what it does, for the progress.
      facts: the class of its facts.
      write: writes a part, atomically, and returns its facts without `bytes`.
      files: returns the paths of a part's files.
      join: writes a shard, atomically.
      smaller: what else than more space would help on a full disk.
    """

    what: str
    facts: type
    write: Callable[[PartTask], Facts]
    files: Callable[[PartTask], list[str]]
    join: Callable[[ShardTask], None]
    smaller: str


class _NoRoomError(InputError):
    """A disk is too small; a rerun resumes from what is finished."""


def run(
    program: Program,
    this: Job,
    sources: Sequence[Source],
    weights_sha256: str,
    runner: Runner,
    finish: Callable[[Job, Sequence[manifest.Shard], Any], None],
    check: Callable[[], None] = lambda: None,
) -> list[manifest.Shard]:
    """Runs a job to its end; a finished one is left unchanged, an unfinished one is resumed.

    Args:
      program: what the job computes.
      this: the job.
      sources: of the lines.
      weights_sha256: see `PartTask`.
      runner: of the tasks.
      finish: writes the manifest, from the job, the shards and the facts of all parts together.
      check: refuses the input, before anything is written.

    Returns:
      The shards.

    Raises:
      InputError: a line is not what the program reads, or a disk is full; or the existing set has other settings.
    """
    if all(finished := this.finished_shards()):
        this.clear()
        logging.info("%s: all shards exist, nothing to do", this.manifest_path)
        return finished
    check()
    try:
        this.open()
        shards, facts = _make_shards(program, this, sources, weights_sha256, runner)
        if facts is None:
            logging.info("wrote the missing shards again: %d", finished.count(None))
        else:
            finish(this, shards, facts)
        this.close()
        return shards
    finally:
        this.release()


def _make_shards(
    program: Program, this: Job, sources: Sequence[Source], weights_sha256: str, runner: Runner
) -> tuple[list[manifest.Shard], Facts | None]:
    """Makes the parts and shards that are missing, in an open job.

    Returns:
      The shards; and the facts of all parts together, None if the manifest exists and some shards were made again.

    Raises:
      InputError: a line is not what the program reads, or a disk is full.
    """
    # Read the state again: now that this run holds the lock, no other run can change it.
    finished = this.finished_shards()
    tasks = [
        PartTask(source, f"{this.folder}/parts/{number:06d}", this.settings, weights_sha256)
        for number, source in enumerate(sources)
    ]
    for folder in FOLDERS:
        tf.io.gfile.makedirs(f"{this.folder}/{folder}")
    groups = _groups(tasks, len(this.outputs))
    shards = {index: shard for index, shard in enumerate(finished) if shard is not None}
    shards |= {index: shard for index in range(len(groups)) if index not in shards and (shard := _done(this, index))}
    missing = [index for index in range(len(groups)) if index not in shards]
    try:
        facts = _make_parts(program, [task for index in missing for task in groups[index]], tasks, runner)
    except InputError as error:
        if not isinstance(error, _NoRoomError):  # the input or the flags must change, which makes the parts useless
            this.close()
        raise
    joins = [_shard_task(program, this, index, groups[index], facts) for index in missing]
    with Progress("joining", len(groups), "shards") as progress:
        progress.start_at(len(shards))
        for index, shard in runner.map(functools.partial(_write_shard, program), joins):
            shards[index] = shard
            for task in groups[index]:  # not in the task, which a cluster may repeat
                _delete_part(program, task)
            progress.update()
    ordered = [shards[index] for index in range(len(groups))]
    if any(finished):
        return ordered, None
    return ordered, sum((_read_facts(program, task) for task in tasks), program.facts())


def _make_parts(
    program: Program, todo: Sequence[PartTask], tasks: Sequence[PartTask], runner: Runner
) -> dict[PartTask, Facts]:
    """Makes the parts that an earlier run did not finish; returns the facts of those to do."""
    facts = {task: found for task in todo if (found := _finished_part(program, task)) is not None}
    left = [task for task in todo if task not in facts]
    lines, lines_left = (sum(task.source.lines for task in some) for some in (tasks, left))
    with Progress(program.what, lines, "texts", compiles=True) as progress:
        progress.start_at(lines - lines_left)
        for task, found in runner.map(functools.partial(write_part, program), left):
            if len(facts) == len(todo) - len(left):  # the first one
                _check_space(program, task.path, found, lines_left)
            facts[task] = found
            progress.update(task.source.lines)
    return facts


def _check_space(program: Program, path: str, facts: Facts, lines: int) -> None:
    """Raises an error if a local disk has no room for so many lines; until a shard is joined they are there twice."""
    folder = os.path.dirname(path)
    need = 2 * facts.bytes / facts.lines * lines
    if "://" not in folder and need - facts.bytes > (free := shutil.disk_usage(folder).free):
        raise _NoRoomError(
            f"--output_file: {folder} has {free / 1e9:,.1f} GB free, but about {need / 1e9:,.1f} GB are needed, half "
            f"of them until the shards are joined; free some space and run the same command again{program.smaller}"
        )


def _groups(tasks: Sequence[PartTask], shards: int) -> list[Sequence[PartTask]]:
    """Divides the parts among the shards, in order, so that shards have about equally many lines."""
    ends = np.cumsum([task.source.lines for task in tasks])
    edges = np.searchsorted(ends, ends[-1] * np.arange(1, shards) / shards, side="left") + 1
    # Each shard gets at least one part.
    numbers = np.arange(1, shards)
    edges = np.maximum.accumulate(np.maximum(edges, numbers) - numbers) + numbers
    edges = np.minimum(edges, len(tasks) - shards + numbers)
    bounds = [0, *edges.tolist(), len(tasks)]
    return [tasks[start:end] for start, end in itertools.pairwise(bounds)]


def _shard_task(
    program: Program, this: Job, index: int, group: Sequence[PartTask], facts: dict[PartTask, Facts]
) -> ShardTask:
    return ShardTask(
        index,
        this.outputs[index],
        this.identity["outputs"][index],
        _result_path(this, index),
        tuple(task.path for task in group),
        sum((facts[task] for task in group), program.facts()),
        this.settings,
    )


def _result_path(this: Job, index: int) -> str:
    return f"{this.folder}/shards/{index:05d}.json"


def _done(this: Job, index: int) -> manifest.Shard | None:
    return _finished_shard(this.outputs[index], _result_path(this, index))


def write_part(program: Program, task: PartTask) -> tuple[PartTask, Facts]:
    """Writes the part of a source, then its facts, unless it is finished."""
    if (found := _finished_part(program, task)) is not None:  # a repeated task
        return task, found
    facts = program.write(task)
    size = sum(tf.io.gfile.stat(path).length for path in program.files(task))
    facts += program.facts(bytes=size)
    writer.write_text(task.result_path, json.dumps(dataclasses.asdict(facts)))
    return task, facts


def _finished_part(program: Program, task: PartTask) -> Facts | None:
    """Returns the facts of a part that is finished and not yet deleted; else None."""
    files = [task.result_path, *program.files(task)]
    return _read_facts(program, task) if all(map(tf.io.gfile.exists, files)) else None


def _delete_part(program: Program, task: PartTask) -> None:
    """Deletes a part; its facts stay."""
    for path in filter(tf.io.gfile.exists, program.files(task)):
        tf.io.gfile.remove(path)


def _read_facts(program: Program, task: PartTask) -> Facts:
    with tf.io.gfile.GFile(task.result_path) as file:
        return program.facts(**json.load(file))


def _write_shard(program: Program, task: ShardTask) -> tuple[int, manifest.Shard]:
    """Joins parts to a shard."""
    if (found := _finished_shard(task.path, task.result_path)) is not None:  # a repeated task
        return task.index, found
    program.join(task)
    size = tf.io.gfile.stat(task.path).length
    shard = manifest.Shard(task.name, task.facts.texts, size, writer.sha256(task.path))
    writer.write_text(task.result_path, json.dumps(dataclasses.asdict(shard)))
    return task.index, shard


def _finished_shard(path: str, result_path: str) -> manifest.Shard | None:
    """Returns the manifest entry of a shard that an earlier run finished; None if it is unfinished or was deleted."""
    if not tf.io.gfile.exists(result_path) or not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(result_path) as file:
        shard = manifest.Shard(**json.load(file))
    return shard if tf.io.gfile.stat(path).length == shard.bytes else None
