"""The tasks of extraction: the vectors of a source of text, and a shard of such parts.

A task may run more than once, on any worker; it writes the same bytes each time.
"""

import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.features import model
from bert_tf.features.chunks import Chunk, Facts, Output
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.features.formats import find_format
from bert_tf.features.rows import Rows
from bert_tf.features.sources import Source
from bert_tf.features.texts import Text, read_texts
from bert_tf.settings.features import FeaturesSettings, VectorSettings
from tfrecords import manifest, writer


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


@functools.lru_cache(maxsize=1)
def _extractor(settings: VectorSettings, encoder_sha256: str) -> FeatureExtractor:
    """Returns the extractor of this process, which loads the weights once."""
    return FeatureExtractor.of_settings(settings)


def write_part(task: PartTask) -> tuple[PartTask, Facts]:
    """Writes the vectors of a source, then its facts."""
    if (found := finished_part(task)) is not None:  # a repeated task
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

    find_format(settings.output_format).write(task.path, chunks(), output)
    size = sum(tf.io.gfile.stat(path).length for path in _files(task))
    facts = counts["facts"] + Facts(bytes=size)
    writer.write_text(task.result_path, json.dumps(dataclasses.asdict(facts)))
    return task, facts


def _count(texts: Sequence[Text], rows: Rows) -> Facts:
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


def finished_part(task: PartTask) -> Facts | None:
    """Returns the facts of a part that is finished and not yet deleted; else None."""
    files = [task.result_path, *_files(task)]
    return read_facts(task) if all(map(tf.io.gfile.exists, files)) else None


def _files(task: PartTask) -> list[str]:
    return find_format(task.settings.output_format).files(task.path, _output(task.settings, 0, ()))


def delete_part(task: PartTask) -> None:
    """Deletes the vectors of a part; its facts stay."""
    for path in filter(tf.io.gfile.exists, _files(task)):
        tf.io.gfile.remove(path)


def read_facts(task: PartTask) -> Facts:
    """Reads the facts of a part that is finished."""
    with tf.io.gfile.GFile(task.result_path) as file:
        return Facts(**json.load(file))


def write_shard(task: ShardTask) -> tuple[int, manifest.Shard]:
    """Joins parts to a shard."""
    if (found := finished_shard(task.path, task.result_path)) is not None:  # a repeated task
        return task.index, found
    settings = task.settings
    config = model.config_of(settings)
    output = _output(settings, config.hidden_size, ())
    find_format(settings.output_format).join(task.path, task.parts, task.facts, output)
    size = tf.io.gfile.stat(task.path).length
    shard = manifest.Shard(task.name, task.facts.texts, size, writer.sha256(task.path))
    writer.write_text(task.result_path, json.dumps(dataclasses.asdict(shard)))
    return task.index, shard


def finished_shard(path: str, result_path: str) -> manifest.Shard | None:
    """Returns the manifest entry of a shard that an earlier run finished; None if it is unfinished or was deleted."""
    if not tf.io.gfile.exists(result_path) or not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(result_path) as file:
        shard = manifest.Shard(**json.load(file))
    return shard if tf.io.gfile.stat(path).length == shard.bytes else None
