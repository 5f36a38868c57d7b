"""Runs a job that reads text files, writes a part for each source of lines, and joins parts into shards.

Parts and shards are written atomically, so that an interrupted run resumes from existing files. A task may run more
than once, on any worker, and writes the same bytes each time.
"""

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.core import storage
from bert_tf.jobs import local_files
from bert_tf.jobs.content import corpus_entries
from bert_tf.jobs.job import Counts, Job, read_shard
from bert_tf.jobs.line_ranges import LineRange, plan_sources
from bert_tf.jobs.progress import Progress
from bert_tf.jobs.runner import Runner
from bert_tf.jobs.shard_names import output_paths
from tfrecords import manifest, reader


@dataclasses.dataclass(frozen=True)
class PartTask:
    """The task to write the part of a source.

    Attributes:
      source: the lines to read.
      path: path of the part; the file `path` + ".json" contains the part's facts and marks the part as finished.
      settings: the resolved settings, a dataclass.
      weights_sha256: SHA-256 of the model's weights, which may change under the same path.
    """

    source: LineRange
    path: str
    settings: Any
    weights_sha256: str

    @property
    def result_path(self) -> str:
        """The path of the file that contains the facts."""
        return self.path + ".json"


@dataclasses.dataclass(frozen=True)
class Facts(Counts):
    """Counts of a part; a program's subclass adds the program's own counts.

    Attributes:
      lines: number of lines read.
      texts, tokens: number of texts and number of tokens written.
      bytes: size of the part.
    """

    lines: int = 0
    texts: int = 0
    tokens: int = 0
    bytes: int = 0


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """The task to join parts into a shard.

    Attributes:
      index: index of the shard.
      path, name: the output path, and the shard's name in the manifest.
      result_path: the file that marks the shard as finished and contains its manifest entry.
      parts: the paths of the parts, in order.
      facts: the sum of the parts' facts.
      settings: the resolved settings, a dataclass.
    """

    index: int
    path: str
    name: str
    result_path: str
    parts: tuple[str, ...]
    facts: Facts
    settings: Any


def _one_file(task: PartTask) -> list[str]:
    return [task.path]


def _concatenate(task: ShardTask) -> None:
    local_files.concatenate(task.path, task.parts)


@dataclasses.dataclass(frozen=True)
class Program:
    """The functions with which a program makes parts and shards; the functions must be picklable.

    Attributes:
      what: name of the work, for the progress bar.
      recipe: a number that changes whenever the program begins to make other bytes from the same settings.
      facts: the program's class of facts.
      write: function that writes a part atomically and returns its facts without `bytes`.
      finish: function that logs the results and returns the counts for the manifest.
      files: function that returns the paths of a part's files.
      join: function that writes a shard atomically.
    """

    what: str
    recipe: int
    facts: type[Facts]
    write: Callable[[PartTask], Facts]
    finish: Callable[[Job, Sequence[manifest.Shard], Any], Mapping[str, int]]
    files: Callable[[PartTask], list[str]] = _one_file
    join: Callable[[ShardTask], None] = _concatenate


def run(
    program: Program, settings, identity: Mapping[str, str], runner: Runner, check: Callable[[Any], None] | None = None
) -> list[manifest.Shard]:
    """Writes the shards that the settings name, then their manifest.

    A finished set is left unchanged, and an unfinished set is resumed.

    Args:
      program: the program of the job.
      settings: the resolved settings, a dataclass whose fields name the files.
      identity: `vocab_sha256` and `weights_sha256`, the SHA-256 of the vocabulary and of the weights.
      runner: the runner that executes the tasks.
      check: function that refuses invalid sources before anything is written.

    Returns:
      The shards.

    Raises:
      InputError: a file is missing or empty, the program cannot read a line, a disk is full, or the existing set has
        other settings.
    """
    outputs = output_paths(settings.output_file)
    files = reader.expand_files(settings.input_file)
    storage.check_outputs(outputs, read=[*files, settings.vocab_file])
    sources = plan_sources(files, len(outputs))
    corpus = corpus_entries(files, runner)
    this = Job(program.recipe, settings, outputs, corpus, identity)
    return this.run(
        lambda finished: _make_shards(program, this, sources, runner, finished), lambda: check and check(sources)
    )


def _make_shards(
    program: Program, this: Job, sources: Sequence[LineRange], runner: Runner, finished: Sequence[manifest.Shard | None]
) -> list[manifest.Shard]:
    """Makes the missing parts and shards, and the manifest, in an open job.

    Raises:
      InputError: the program cannot read a line, or a disk is full.
    """
    weights_sha256 = this.identity["weights_sha256"]
    tasks = [
        PartTask(source, f"{this.folder}/parts/{number:06d}", this.settings, weights_sha256)
        for number, source in enumerate(sources)
    ]
    for folder in ("parts", "shards"):
        tf.io.gfile.makedirs(f"{this.folder}/{folder}")
    groups = _groups(tasks, len(this.outputs))
    known = [
        shard or read_shard(this.outputs[index], _result_path(this, index)) for index, shard in enumerate(finished)
    ]
    shards = {index: shard for index, shard in enumerate(known) if shard is not None}
    missing = [index for index, shard in enumerate(known) if shard is None]
    facts = _make_parts(program, [task for index in missing for task in groups[index]], tasks, runner)
    joins = [_shard_task(program, this, index, groups[index], facts) for index in missing]
    with Progress("joining", len(groups), "shards") as progress:
        progress.start_at(len(shards))
        for index, shard in runner.map(functools.partial(_write_shard, program), joins):
            shards[index] = shard
            for task in groups[index]:  # `_write_shard` does not delete parts, because a cluster may repeat the task
                _delete_part(program, task)
            progress.update()
    ordered = [shards[index] for index in range(len(groups))]

    def summary() -> Mapping[str, int]:
        return program.finish(this, ordered, sum((_read_facts(program, task) for task in tasks), program.facts()))

    this.complete(ordered, finished, summary)
    return ordered


def _make_parts(
    program: Program, todo: Sequence[PartTask], tasks: Sequence[PartTask], runner: Runner
) -> dict[PartTask, Facts]:
    """Makes the unfinished parts of the tasks in `todo`, and returns the facts of all parts in `todo`.

    `tasks` contains all tasks of the job, for the total in the progress bar.
    """
    facts = {task: found for task in todo if (found := _finished_part(program, task)) is not None}
    left = [task for task in todo if task not in facts]
    lines, lines_left = (sum(task.source.lines for task in some) for some in (tasks, left))
    with Progress(program.what, lines, "lines", compiles=True) as progress:
        progress.start_at(lines - lines_left)
        for task, found in runner.map(functools.partial(write_part, program), left):
            facts[task] = found
            progress.update(task.source.lines)
    return facts


def _groups(tasks: Sequence[PartTask], shards: int) -> list[Sequence[PartTask]]:
    """Divides the parts among the shards, in order, so that all shards have about the same number of lines."""
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


def write_part(program: Program, task: PartTask) -> tuple[PartTask, Facts]:
    """Writes the part of a source, then its facts, unless both are finished."""
    if (found := _finished_part(program, task)) is not None:  # a repeated task
        return task, found
    facts = program.write(task)
    size = sum(tf.io.gfile.stat(path).length for path in program.files(task))
    facts += program.facts(bytes=size)
    storage.write_text(task.result_path, json.dumps(dataclasses.asdict(facts)))
    return task, facts


def _finished_part(program: Program, task: PartTask) -> Facts | None:
    """Returns the facts of a part that is finished and not yet deleted; else None."""
    files = [task.result_path, *program.files(task)]
    return _read_facts(program, task) if all(map(tf.io.gfile.exists, files)) else None


def _delete_part(program: Program, task: PartTask) -> None:
    for path in filter(tf.io.gfile.exists, program.files(task)):
        tf.io.gfile.remove(path)


def _read_facts(program: Program, task: PartTask) -> Facts:
    with tf.io.gfile.GFile(task.result_path) as file:
        return program.facts(**json.load(file))


def _write_shard(program: Program, task: ShardTask) -> tuple[int, manifest.Shard]:
    if (found := read_shard(task.path, task.result_path)) is not None:  # a repeated task
        return task.index, found
    program.join(task)
    size = tf.io.gfile.stat(task.path).length
    shard = manifest.Shard(task.name, task.facts.texts, size, storage.sha256(task.path))
    storage.write_text(task.result_path, json.dumps(dataclasses.asdict(shard)))
    return task.index, shard
