"""The output formats; each format writes the part of a task, and joins parts into a shard.

Parts are written chunk by chunk and shards block by block, so memory stays bounded.
"""

import json
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from bert_tf.features.chunks import TOKEN_COLUMNS, Chunk, Format
from bert_tf.features.rows import NOWHERE
from bert_tf.jobs import local_files
from bert_tf.settings.features import FeaturesSettings

# The original rounds to this number of decimals.
_DIGITS = 6


class JsonLines(Format):
    """The original's format: one JSON object per text."""

    def write(self, path: str, chunks: Iterable[Chunk]) -> None:
        with local_files.written(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            for chunk in chunks:
                file.writelines(json.dumps(entry) + "\n" for entry in _objects(chunk, self))


def _objects(chunk: Chunk, output: Format) -> Iterator[dict]:
    rows = chunk.rows
    splits = np.arange(len(chunk.lines) + 1) if output.is_pooled else rows.splits
    for number, line in enumerate(chunk.lines.tolist()):
        entry = {"linex_index": line}
        if chunk.ids is not None:
            entry["id"] = chunk.ids[number]
        taken = slice(splits[number], splits[number + 1])
        vectors = [_layers(values, output) for values in _rounded(chunk.values[taken])]
        if output.is_pooled:
            entry["layers"] = vectors[0]
        else:
            tokens = [{"token": output.vocabulary[id_]} for id_ in rows.input_ids[taken].tolist()]
            if output.settings.alignment:
                for token, where in zip(tokens, _alignments(rows, taken), strict=True):
                    token.update(where)
            entry["features"] = [token | {"layers": each} for token, each in zip(tokens, vectors, strict=True)]
        yield entry


def _rounded(values: np.ndarray) -> list:
    # The product with 10^6 is exact in float64, so the result equals Python's round().
    return np.round(values.astype(np.float64), _DIGITS).tolist()


def _layers(values: list[list[float]], output: Format) -> list[dict]:
    return [{"index": layer, "values": each} for layer, each in zip(output.layers, values, strict=True)]


def _alignments(rows, taken: slice) -> Iterator[dict]:
    names = {"segment": rows.segment_ids, "word": rows.words, "start": rows.starts, "end": rows.ends}
    for values in zip(*(column[taken].tolist() for column in names.values()), strict=True):
        yield {name: None if value == NOWHERE else value for name, value in zip(names, values, strict=True)}


class TFRecord(Format):
    """One `tf.train.Example` per text; the example contains the vectors as bytes."""

    def write(self, path: str, chunks: Iterable[Chunk]) -> None:
        with local_files.written(path) as temporary, tf.io.TFRecordWriter(temporary) as file:
            for chunk in chunks:
                for number in range(len(chunk.lines)):
                    file.write(_example(chunk, number, self))


def _example(chunk: Chunk, number: int, output: Format) -> bytes:
    start, end = chunk.rows.splits[number : number + 2].tolist()
    values = chunk.values[number] if output.is_pooled else chunk.values[start:end]
    feature = {
        "line": _integers(chunk.lines[number : number + 1]),
        "values": _bytes(np.ascontiguousarray(values).tobytes()),
        "shape": _integers(np.array(values.shape)),
        "layers": _integers(np.array(output.layers)),
    }
    if chunk.ids is not None:
        feature["id"] = _bytes(str(chunk.ids[number]).encode())
    if not output.is_pooled:
        feature |= {name: _integers(getattr(chunk.rows, name)[start:end]) for name in TOKEN_COLUMNS}
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return example.SerializeToString(deterministic=True)


def _integers(values: np.ndarray) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values.tolist()))


def _bytes(value: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def format_of(settings: FeaturesSettings) -> type[Format]:
    if settings.output_format == "parquet":
        from bert_tf.features.parquet import Parquet

        return Parquet
    if settings.output_format == "npz":
        from bert_tf.features.npz import Npz

        return Npz
    return {"jsonl": JsonLines, "tfrecord": TFRecord}[settings.output_format]
