"""Writes the vectors of all texts of some files: a part for each source of text, then shards of parts.

Parts and shards are written atomically, so that an interrupted run resumes from the files that exist.

Paper: section 5.3.
"""

import dataclasses
import functools
import itertools
import json
import os
import shutil
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.features import model
from bert_tf.features.chunks import Chunk, Facts, Output
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.features.formats import find_format
from bert_tf.features.sources import Source, plan_sources
from bert_tf.features.texts import Text, read_texts
from bert_tf.settings.features import FeaturesSettings, VectorSettings
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


@dataclasses.dataclass(frozen=True)
class PartTask:
    """A source whose vectors are to be written.

    Attributes:
      source: the lines.
      path: where the part is written; `path` + ".json" holds its facts and marks it as finished.
      settings: see `model.resolve`.
      encoder_sha256: of the weights, which may change under the same path.
    """

    source: Source
    path: str
    settings: FeaturesSettings
    encoder_sha256: str

    @property
    def result_path(self) -> str:
        """The file with the facts."""
        return self.path + ".json"


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """Parts to be joined.

    Attributes:
      index: of the shard.
      path, name: the output path, and the shard's name in the manifest.
      result_path: the file that marks the shard as finished and holds its manifest entry.
      parts: the paths of the parts, in order.
      facts: their sum.
      settings: see `model.resolve`.
    """

    index: int
    path: str
    name: str
    result_path: str
    parts: tuple[str, ...]
    facts: Facts
    settings: FeaturesSettings


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
            progress.update()
    ordered = [shards[index] for index in range(len(groups))]
    if any(finished):  # the manifest exists and is still valid
        logging.info("recreated %d missing shard(s)", finished.count(None))
    else:
        _finish(this, ordered, sum(map(_read_facts, tasks), Facts()))
    this.close()
    return ordered


def _make_parts(todo: Sequence[PartTask], tasks: Sequence[PartTask], runner: Runner) -> dict[PartTask, Facts]:
    """Makes the parts that an earlier run did not finish; returns the facts of those to do."""
    facts = {task: found for task in todo if (found := _finished_part(task)) is not None}
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


@functools.lru_cache(maxsize=1)
def _extractor(settings: VectorSettings, encoder_sha256: str) -> FeatureExtractor:
    """Returns the extractor of this process, which loads the weights once."""
    return FeatureExtractor.of_settings(settings)


def write_part(task: PartTask) -> tuple[PartTask, Facts]:
    """Writes the vectors of a source, then its facts."""
    if (found := _finished_part(task)) is not None:  # a repeated task
        return task, found
    extractor, settings = _extractor(task.settings, task.encoder_sha256), task.settings
    output = _output(settings, extractor.hidden_size, extractor.tokenizer.vocabulary)
    counts = {"facts": Facts(lines=task.source.lines)}

    def chunks() -> Iterator[Chunk]:
        for texts, rows, values in extractor.vectors(read_texts(task.source, settings)):
            counts["facts"] += _count(texts, rows)
            lines = np.array([text.line for text in texts], np.int64)
            ids = [text.id for text in texts] if output.has_ids else None
            yield Chunk(lines, ids, rows, extractor.pooled(values, rows).astype(settings.dtype))

    form = find_format(settings.output_format)
    form.write(task.path, chunks(), output)
    size = sum(tf.io.gfile.stat(path).length for path in form.files(task.path, output))
    facts = counts["facts"] + Facts(bytes=size)
    writer.write_text(task.result_path, json.dumps(dataclasses.asdict(facts)))
    return task, facts


def _count(texts: Sequence[Text], rows) -> Facts:
    return Facts(
        texts=len(texts),
        tokens=len(rows.input_ids),
        truncated=int(rows.is_truncated.sum()),
        damaged=sum(text.is_damaged for text in texts),
        longest_id=max((len(str(text.id)) for text in texts if text.id is not None), default=0),
    )


def _output(settings: FeaturesSettings, hidden_size: int, vocabulary: Sequence[str]) -> Output:
    return Output(
        vocabulary,
        settings.layer_numbers,
        hidden_size,
        settings.dtype,
        settings.is_pooled,
        bool(settings.id_field),
        settings.alignment,
    )


def _finished_part(task: PartTask) -> Facts | None:
    """Returns the facts of a part that is finished and not yet deleted; else None."""
    columns = _output(task.settings, 0, ())
    files = [task.result_path, *find_format(task.settings.output_format).files(task.path, columns)]
    return _read_facts(task) if all(map(tf.io.gfile.exists, files)) else None


def _read_facts(task: PartTask) -> Facts:
    with tf.io.gfile.GFile(task.result_path) as file:
        return Facts(**json.load(file))


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


def write_shard(task: ShardTask) -> tuple[int, manifest.Shard]:
    """Joins parts to a shard, then deletes them."""
    if (found := _finished_shard(task.path, task.result_path)) is not None:  # a repeated task
        return task.index, found
    settings = task.settings
    config = model.config_of(settings)
    output = _output(settings, config.hidden_size, ())
    form = find_format(settings.output_format)
    form.join(task.path, task.parts, task.facts, output)
    size = tf.io.gfile.stat(task.path).length
    shard = manifest.Shard(task.name, task.facts.texts, size, writer.sha256(task.path))
    writer.write_text(task.result_path, json.dumps(dataclasses.asdict(shard)))
    for part in task.parts:
        for path in form.files(part, output):
            if tf.io.gfile.exists(path):
                tf.io.gfile.remove(path)
    return task.index, shard


def _finished_shard(path: str, result_path: str) -> manifest.Shard | None:
    """Returns the manifest entry of a shard that an earlier run finished; None if it is unfinished or was deleted."""
    if not tf.io.gfile.exists(result_path) or not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(result_path) as file:
        shard = manifest.Shard(**json.load(file))
    return shard if tf.io.gfile.stat(path).length == shard.bytes else None


def _done(this: job.Job, index: int) -> manifest.Shard | None:
    return _finished_shard(this.outputs[index], _result_path(this, index))


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
        logging.warning("%s lines have bytes that are not UTF-8, which were dropped", f"{facts.damaged:,}")
    what = f"vectors of {facts.texts:,} texts"
    if not this.settings.is_pooled:
        what = f"vectors of {facts.tokens:,} tokens in {facts.texts:,} texts"
    size = sum(shard.bytes for shard in shards)
    logging.info("%s: wrote %s, %.1f MB in %d shard(s)", this.manifest_path, what, size / 1e6, len(shards))
