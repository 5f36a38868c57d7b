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
from bert_tf.jobs.job import Counts, Job, ShardTask, corpus_entries, write_result
from bert_tf.jobs.line_ranges import LineRange, plan_sources
from bert_tf.jobs.runner import Runner
from bert_tf.jobs.shard_names import output_paths
from bert_tf.jobs.stage import run_stage
from tfrecords import manifest, reader


@dataclasses.dataclass(frozen=True)
class PartTask:
    """The task to write the part of a source.

    Attributes:
      path: path of the part; the file `path` + ".json" contains the part's facts and marks the part as finished.
      weights_sha256: SHA-256 of the model's weights, which may change under the same path.
    """

    source: LineRange
    path: str
    settings: Any
    weights_sha256: str

    @property
    def result_path(self) -> str:
        return self.path + ".json"


@dataclasses.dataclass(frozen=True)
class Facts(Counts):
    """Counts of a part; a program's subclass adds the program's own counts.

    Attributes:
      lines: number of lines read.
      texts, tokens: number of texts and number of tokens written.
    """

    lines: int = 0
    texts: int = 0
    tokens: int = 0
    bytes: int = 0


@dataclasses.dataclass(frozen=True)
class JoinTask(ShardTask):
    """The task to join parts into a shard.

    Attributes:
      parts: the paths of the parts, in order.
    """

    parts: tuple[str, ...]
    facts: Facts
    settings: Any


def _one_file(task: PartTask) -> list[str]:
    return [task.path]


def _concatenate(task: JoinTask) -> None:
    local_files.concatenate(task.path, task.parts)


@dataclasses.dataclass(frozen=True)
class Program:
    """The functions with which a program makes parts and shards; the functions must be picklable.

    Attributes:
      what: name of the work, for the progress bar.
      recipe: a number that changes whenever the program begins to make other bytes from the same settings.
      write: function that writes a part atomically and returns its facts without `bytes`.
      finish: function that logs the results and returns the counts for the manifest.
      join: function that writes a shard atomically.
    """

    what: str
    recipe: int
    facts: type[Facts]
    write: Callable[[PartTask], Facts]
    finish: Callable[[Job, Sequence[manifest.Shard], Any], Mapping[str, int]]
    files: Callable[[PartTask], list[str]] = _one_file
    join: Callable[[JoinTask], None] = _concatenate


def run(
    program: Program, settings, identity: Mapping[str, str], runner: Runner, check: Callable[[Any], None] | None = None
) -> list[manifest.Shard]:
    """Writes the shards that the settings name, then their manifest.

    A finished set is left unchanged, and an unfinished set is resumed.

    Args:
      settings: the resolved settings, a dataclass whose fields name the files.
      identity: `vocab_sha256` and `weights_sha256`, the SHA-256 of the vocabulary and of the weights.
      check: function that refuses invalid sources before anything is written.
    """
    outputs = output_paths(settings.output_file)
    files = reader.expand_files(settings.input_file)
    storage.check_outputs(outputs, read=[*files, settings.vocab_file])
    sources = plan_sources(files, len(outputs))
    corpus = corpus_entries(files, runner)
    job = Job(program.recipe, settings, outputs, corpus, identity)
    return job.run(
        lambda finished: _make_shards(program, job, sources, runner, finished), lambda: check and check(sources)
    )


def _make_shards(
    program: Program, job: Job, sources: Sequence[LineRange], runner: Runner, finished: Sequence[manifest.Shard | None]
) -> list[manifest.Shard]:
    weights_sha256 = job.identity["weights_sha256"]
    tasks = [
        PartTask(source, f"{job.folder}/parts/{number:06d}", job.settings, weights_sha256)
        for number, source in enumerate(sources)
    ]
    tf.io.gfile.makedirs(f"{job.folder}/parts")
    groups = _groups(tasks, len(job.outputs))
    shard_tasks = job.shard_tasks(finished)
    missing = [task.index for task in shard_tasks if task.read() is None]
    parts = [task for index in missing for task in groups[index]]
    made = run_stage(
        program.what, "lines", runner, parts, functools.partial(_write_part, program),
        functools.partial(_finished_part, program), amount=lambda task: task.source.lines, compiles=True,
    )  # fmt: skip
    facts = dict(zip(parts, made, strict=True))

    def delete_parts(join: JoinTask) -> None:  # not in the task itself, because a cluster may repeat the task
        for path in filter(tf.io.gfile.exists, (path for task in groups[join.index] for path in program.files(task))):
            tf.io.gfile.remove(path)

    joins = [_join_task(program, job, task, groups[task.index], facts) for task in shard_tasks]
    write = functools.partial(_write_shard, program)
    shards = run_stage("joining", "shards", runner, joins, write, JoinTask.read, after=delete_parts)

    def summary() -> Mapping[str, int]:
        return program.finish(job, shards, sum((_read_facts(program, task) for task in tasks), program.facts()))

    job.complete(shards, finished, summary)
    return shards


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


def _join_task(
    program: Program, job: Job, task: ShardTask, group: Sequence[PartTask], facts: dict[PartTask, Facts]
) -> JoinTask:
    total = sum((facts[part] for part in group if part in facts), program.facts())
    return JoinTask(**vars(task), parts=tuple(part.path for part in group), facts=total, settings=job.settings)


def _write_part(program: Program, task: PartTask) -> Facts:
    facts = program.write(task)
    size = sum(tf.io.gfile.stat(path).length for path in program.files(task))
    facts += program.facts(bytes=size)
    write_result(task.result_path, facts)
    return facts


def _finished_part(program: Program, task: PartTask) -> Facts | None:
    """Returns the facts of a part that is finished and not yet deleted; else None."""
    files = [task.result_path, *program.files(task)]
    return _read_facts(program, task) if all(map(tf.io.gfile.exists, files)) else None


def _read_facts(program: Program, task: PartTask) -> Facts:
    with tf.io.gfile.GFile(task.result_path) as file:
        return program.facts(**json.load(file))


def _write_shard(program: Program, task: JoinTask) -> manifest.Shard:
    program.join(task)
    size = tf.io.gfile.stat(task.path).length
    shard = manifest.Shard(task.name, task.facts.texts, size, storage.sha256(task.path))
    write_result(task.result_path, shard)
    return shard
