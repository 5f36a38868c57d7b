"""Writes the vectors of all texts of some files: a part for each source of text, then shards of parts.

Parts and shards are written atomically, so that an interrupted run resumes from the files that exist.

Paper: section 5.3.
"""

import itertools
import os
import shutil
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.features import model
from bert_tf.features.chunks import Facts
from bert_tf.features.formats import find_format
from bert_tf.features.parts import (
    PartTask,
    ShardTask,
    delete_part,
    finished_part,
    finished_shard,
    read_facts,
    write_part,
    write_shard,
)
from bert_tf.features.sources import Source, plan_sources
from bert_tf.settings.features import FeaturesSettings
from bert_tf.tokenization import load_vocabulary
from jobs import job
from jobs.content import corpus_entries, hash_range, plan_hashes
from jobs.progress import Progress
from jobs.runner import Runner
from jobs.shard_names import output_paths
from tfrecords import manifest, reader, writer
from tfrecords.errors import InputError
from tfrecords.vocabulary import tokens_sha256

# Increment this number whenever the same settings produce other bytes.
_RECIPE = 1
_KIND = job.Kind(
    program="extract_features",
    recipe=_RECIPE,
    immaterial=frozenset({
        "input_file", "output_file", "init_checkpoint", "bert_config_file", "vocab_file", "ignore_checkpoint_tokenizer",
        "num_workers", "runner", "spark_master",
    }),
    folders=("parts", "shards"),
    facts={
        "vocab_sha256": "the vocabulary has changed",
        "encoder_sha256": "the encoder has other weights or another configuration",
    },
)  # fmt: skip


class _NoRoomError(InputError):
    """A disk is too small; a rerun resumes from what is finished."""


def extract_features(settings: FeaturesSettings, runner: Runner) -> list[manifest.Shard]:
    """Writes the shards that `settings` describes, then their manifest.

    A finished set is left unchanged; an unfinished one is resumed.

    Returns:
      The shards.

    Raises:
      InputError: a file is missing or empty, the encoder lacks a layer, a line is not what the format says, or the
        existing set has other settings.
    """
    outputs = output_paths(settings.output_file)
    files = reader.expand_files(settings.input_file)
    settings = model.resolve(settings)
    find_format(settings.output_format)
    writer.check_outputs(outputs, read=[*files, settings.vocab_file])
    sources = plan_sources(files, len(outputs))
    facts = {
        "vocab_sha256": tokens_sha256(load_vocabulary(settings.vocab_file)),
        "encoder_sha256": model.encoder_sha256(settings),
    }
    corpus = corpus_entries(files, dict(runner.map(hash_range, plan_hashes(files))))
    this = job.Job(_KIND, settings, outputs, corpus, facts)
    if all(finished := this.finished_shards()):
        this.clear()
        logging.info("%s: all shards exist, nothing to do", this.manifest_path)
        return finished
    try:
        this.open()
        return _make(sources, this, runner)
    finally:
        this.release()


def _make(sources: Sequence[Source], this: job.Job, runner: Runner) -> list[manifest.Shard]:
    # Read the state again: now that this run holds the lock, no other run can change it.
    finished = this.finished_shards()
    encoder, folder = this.identity["encoder_sha256"], f"{this.folder}/parts"
    tasks = [PartTask(source, f"{folder}/{i:06d}", this.settings, encoder) for i, source in enumerate(sources)]
    tf.io.gfile.makedirs(folder)
    tf.io.gfile.makedirs(f"{this.folder}/shards")
    groups = _groups(tasks, len(this.outputs))
    shards = {index: shard for index, shard in enumerate(finished) if shard is not None}
    shards |= {index: shard for index in range(len(groups)) if index not in shards and (shard := _done(this, index))}
    missing = [index for index in range(len(groups)) if index not in shards]
    try:
        facts = _make_parts([task for index in missing for task in groups[index]], tasks, runner)
    except InputError as error:
        if not isinstance(error, _NoRoomError):  # the input or the flags must change, which makes the parts useless
            this.close()
        raise
    joins = [_shard_task(this, index, groups[index], facts) for index in missing]
    with Progress("joining", len(groups), "shards") as progress:
        progress.start_at(len(shards))
        for index, shard in runner.map(write_shard, joins):
            shards[index] = shard
            for task in groups[index]:  # not in the task, which a cluster may repeat
                delete_part(task)
            progress.update()
    ordered = [shards[index] for index in range(len(groups))]
    if any(finished):  # the manifest exists and is still valid
        logging.info("wrote the missing shards again: %d", finished.count(None))
    else:
        _finish(this, ordered, sum(map(read_facts, tasks), Facts()))
    this.close()
    return ordered


def _make_parts(todo: Sequence[PartTask], tasks: Sequence[PartTask], runner: Runner) -> dict[PartTask, Facts]:
    """Makes the parts that an earlier run did not finish; returns the facts of those to do."""
    facts = {task: found for task in todo if (found := finished_part(task)) is not None}
    left = [task for task in todo if task not in facts]
    lines, lines_left = (sum(task.source.lines for task in some) for some in (tasks, left))
    with Progress("extracting", lines, "texts") as progress:
        progress.start_at(lines - lines_left)
        for task, found in runner.map(write_part, left):
            if len(facts) == len(todo) - len(left):  # the first one
                _check_space(task.path, found, lines_left)
            facts[task] = found
            progress.update(task.source.lines)
    return facts


def _check_space(path: str, facts: Facts, lines: int) -> None:
    """Raises an error if a local disk has no room for so many lines; until a shard is joined they are there twice."""
    folder = os.path.dirname(path)
    need = 2 * facts.bytes / facts.lines * lines
    if "://" not in folder and need - facts.bytes > (free := shutil.disk_usage(folder).free):
        raise _NoRoomError(
            f"--output_file: {folder} has {free / 1e9:,.1f} GB free, but about {need / 1e9:,.1f} GB are needed, half "
            "of them until the shards are joined; free some space and run the same command again, or give a more "
            "compact --output_format or --dtype, or fewer --layers"
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


def _shard_task(this: job.Job, index: int, group: Sequence[PartTask], facts: dict[PartTask, Facts]) -> ShardTask:
    return ShardTask(
        index,
        this.outputs[index],
        this.identity["outputs"][index],
        _result_path(this, index),
        tuple(task.path for task in group),
        sum((facts[task] for task in group), Facts()),
        this.settings,
    )


def _result_path(this: job.Job, index: int) -> str:
    return f"{this.folder}/shards/{index:05d}.json"


def _done(this: job.Job, index: int) -> manifest.Shard | None:
    return finished_shard(this.outputs[index], _result_path(this, index))


def _finish(this: job.Job, shards: Sequence[manifest.Shard], facts: Facts) -> None:
    """Writes the manifest, and says what was written and what was cut off."""
    entries = {key: value for key, value in this.identity.items() if key not in ("settings", "outputs")}
    counts = {"lines": facts.lines, "texts": facts.texts, "tokens": facts.tokens, "truncated": facts.truncated}
    text = manifest.to_json(this.identity["settings"], list(shards), **entries, **counts, damaged=facts.damaged)
    writer.write_text(this.manifest_path, text)
    if facts.truncated:
        logging.warning(
            "%s of %s texts are longer than --max_seq_length=%d and were cut off",
            f"{facts.truncated:,}", f"{facts.texts:,}", this.settings.max_seq_length,
        )  # fmt: skip
    if facts.damaged:
        logging.warning(
            "bytes that are not UTF-8 were dropped in %s of %s lines", f"{facts.damaged:,}", f"{facts.lines:,}"
        )
    what = f"vectors of {facts.texts:,} texts"
    if not this.settings.is_pooled:
        what = f"vectors of {facts.tokens:,} tokens in {facts.texts:,} texts"
    size = sum(shard.bytes for shard in shards)
    plural = "s" * (len(shards) > 1)
    logging.info("%s: wrote %s, %.1f MB in %d shard%s", this.manifest_path, what, size / 1e6, len(shards), plural)
