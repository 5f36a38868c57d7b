"""Runs a job that reads text files and writes one shard for each of several ranges of lines.

Shards are written atomically, so that an interrupted run resumes from the finished ones. A task may run more than once,
on any worker, and writes the same bytes each time.
"""

import dataclasses
import functools
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.core import storage
from bert_tf.core.progress_bar import ProgressBar
from bert_tf.jobs.job import Counts, Job, ShardTask, corpus_entries
from bert_tf.jobs.line_ranges import LineRange, plan_ranges
from bert_tf.jobs.runner import Runner
from bert_tf.jobs.shard_names import output_paths
from bert_tf.jobs.stage import run_stage
from tfrecords import manifest, reader


@dataclasses.dataclass(frozen=True)
class TextTask(ShardTask):
    """The task to write the shard of a range of lines."""

    source: LineRange
    settings: Any
    weights_sha256: str  # SHA-256 of the model's weights, which may change under the same path
    is_only: bool  # whether the job has no other task; if so, the task shows its progress

    @property
    def counts_path(self) -> str:
        return f"{self.result_path}.facts"


@dataclasses.dataclass(frozen=True)
class TextCounts(Counts):
    """Counts of a shard; a program's subclass adds the program's own counts."""

    lines: int = 0  # number of lines read
    # `texts`, `tokens`: number of texts and number of tokens written
    texts: int = 0
    tokens: int = 0


@dataclasses.dataclass(frozen=True)
class Program:
    """The functions with which a program makes shards; the functions must be picklable."""

    what: str  # name of the work, for the progress bar
    recipe: int  # a number that changes whenever the program begins to make other bytes from the same settings
    counts: type[TextCounts]
    # function that writes a shard atomically and returns its counts. It calls its second argument with the index of the
    # line up to which it has written.
    write: Callable[[TextTask, Callable[[int], None]], TextCounts]
    # function that logs the results and returns the counts for the manifest
    finish: Callable[[Job, Sequence[manifest.Shard], Any], Mapping[str, int]]


def run(
    program: Program, settings, identity: Mapping[str, str], runner: Runner, check: Callable[[Any], None] | None = None
) -> list[manifest.Shard]:
    """Writes the shards that the settings name, then their manifest. A finished set is left unchanged, and an
    unfinished set is resumed.
    `settings`: the resolved settings, a dataclass whose fields name the files.
    `identity`: `vocab_sha256` and `weights_sha256`, the SHA-256 of the vocabulary and of the weights.
    `check`: function that refuses invalid ranges of lines before anything is written."""
    outputs = output_paths(settings.output_file)
    files = reader.expand_files(settings.input_file)
    storage.check_outputs(outputs, read=[*files, settings.vocab_file])
    sources = plan_ranges(files, len(outputs))
    job = Job(program.recipe, settings, outputs, corpus_entries(files, runner), identity)
    return job.run(
        lambda finished: _make_shards(program, job, sources, runner, finished), lambda: check and check(sources)
    )


def _make_shards(
    program: Program, job: Job, sources: Sequence[LineRange], runner: Runner, finished: Sequence[manifest.Shard | None]
) -> list[manifest.Shard]:
    tasks = [
        TextTask(**vars(task), source=source, settings=job.settings, weights_sha256=job.identity["weights_sha256"],
                 is_only=len(sources) == 1)
        for task, source in zip(job.shard_tasks(finished), sources, strict=True)
    ]  # fmt: skip
    write, read = functools.partial(_write, program), functools.partial(_read, program)
    if len(tasks) == 1:  # the task shows its progress itself
        made = [done] if (done := read(tasks[0])) else list(runner.map(write, tasks))
    else:
        lines = operator.attrgetter("source.lines")
        made = run_stage(program.what, "lines", runner, tasks, write, read, amount=lines, compiles=True)
    shards, counts = zip(*made, strict=True)
    job.complete(shards, finished, lambda: program.finish(job, shards, sum(counts, program.counts())))
    return list(shards)


def _write(program: Program, task: TextTask) -> tuple[manifest.Shard, TextCounts]:
    if task.is_only:
        with ProgressBar(program.what, task.source.lines, "lines", compiles=True) as shown:
            counts = program.write(task, lambda line: shown.update(line - task.source.first_line - shown.done))
    else:
        counts = program.write(task, lambda line: None)
    storage.write_json(task.counts_path, counts)
    size = tf.io.gfile.stat(task.path).length
    shard = manifest.Shard(task.name, counts.texts, size, storage.sha256(task.path))
    storage.write_json(task.result_path, shard)
    return shard, counts


def _read(program: Program, task: TextTask) -> tuple[manifest.Shard, TextCounts] | None:
    """Returns a finished shard and its counts. A shard of an earlier set needs none, because its manifest exists."""
    shard = task.read()
    if shard is None or task.finished:
        return shard and (shard, program.counts())
    with tf.io.gfile.GFile(task.counts_path) as file:
        return shard, program.counts(**json.load(file))
