"""Encodes the examples of a split, and caches the rows on disk for later commands or trials with the same examples.

A cache is a TFRecord file. The file's name contains a hash of everything that the encoded rows depend on. The file is
written atomically. A damaged cache is replaced.

Letters: N rows.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.core import storage
from bert_tf.core.datasets import without_autotune
from bert_tf.finetuning.task import Columns, Split, Task
from bert_tf.text.data_vocabulary import tokens_sha256
from bert_tf.tokenization import BertTokenizer

FOLDER = "encoded"
# Increase this number if tokenization or the file format changes, so that older caches are not used.
_VERSION = 1
_ROWS_PER_RECORD = 4096
_ROWS_PER_CALL = 4096
_LENGTHS, _EXAMPLE_IDS, _TOTAL = "lengths of rows", "example_ids", "number of all rows"


def encoded_split(task: Task, examples: Sequence[Any], tokenizer: BertTokenizer, max_seq_length: int) -> Split:
    """Encodes the examples of a split.

    Raises:
      ValueError: the task's columns have different numbers of rows.
    """
    columns = dict(task.encode(examples, tokenizer, max_seq_length))
    example_ids = np.asarray(columns.pop("example_ids", np.arange(len(examples))), np.int64)
    columns = {
        name: column if isinstance(column, tf.RaggedTensor) else tf.convert_to_tensor(column)
        for name, column in columns.items()
    }
    counts = {name: int(column.shape[0]) for name, column in columns.items()} | {"example_ids": len(example_ids)}
    if len(set(counts.values())) > 1:
        raise ValueError(f"{task.name}: columns have different numbers of rows: {counts}")
    lengths = _lengths(task, columns, len(example_ids), tokenizer, max_seq_length)
    return Split(examples, columns, example_ids, lengths, tokenizer)


def _lengths(task: Task, columns: Columns, count: int, tokenizer: BertTokenizer, max_seq_length: int) -> np.ndarray:
    """Counts the tokens of each row, int32 [N]."""
    parts = [np.zeros(0, np.int32)]
    for begin in range(0, count, _ROWS_PER_CALL):
        rows = {name: column[begin : begin + _ROWS_PER_CALL] for name, column in columns.items()}
        inputs = task.model_inputs(rows, tokenizer, max_seq_length)
        parts.append(tf.reduce_sum(inputs["input_mask"], axis=1).numpy())
    return np.concatenate(parts)


def cached_split(
    name: str, task: Task, examples: Sequence[Any], tokenizer: BertTokenizer, max_seq_length: int, folder: str
) -> tuple[Split, Callable[[], None]]:
    """Returns the encoded examples of a split; reads the rows from a cache if the folder contains them.

    Args:
      name: name of the split; the name of the cache file starts with this name.
      task: task that encodes the examples.
      examples: examples of the split; the `repr` of an example must show all of its content.
      tokenizer: tokenizer of the model.
      max_seq_length: maximum number of tokens in a row.
      folder: folder of the caches.

    Returns:
      The split, and a function that writes a missing cache and deletes stale caches of the split. If the disk is full
      or read-only, this function only logs a warning.
    """
    if not task.is_cached:
        return encoded_split(task, examples, tokenizer, max_seq_length), lambda: None
    path = os.path.join(folder, f"{name}-{_key(task, examples, tokenizer, max_seq_length)}.tfrecord")
    with contextlib.suppress(tf.errors.OpError, OSError, ValueError, KeyError, IndexError):
        if tf.io.gfile.exists(path):
            return dataclasses.replace(_read(path, examples), tokenizer=tokenizer), lambda: None
    split = encoded_split(task, examples, tokenizer, max_seq_length)

    def keep() -> None:
        try:
            _write(path, split)
            for other in _caches(folder, name):
                if other != path:
                    tf.io.gfile.remove(other)
        except (tf.errors.OpError, OSError) as error:
            logging.warning("the tokenized examples cannot be cached in %s: %s", folder, " ".join(str(error).split()))

    return split, keep


def _key(task: Task, examples: Sequence[Any], tokenizer: BertTokenizer, max_seq_length: int) -> str:
    facts = {
        "version": _VERSION,
        "task": [task.kind, task.name, list(task.labels), dict(task.parameters), task.data_facts()],
        "vocabulary": tokens_sha256(tokenizer.vocabulary),
        "do_lower_case": tokenizer.do_lower_case,
        "max_seq_length": max_seq_length,
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=repr).encode())
    for example in examples:
        digest.update(repr(example).encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:24]


def _write(path: str, split: Split) -> None:
    tf.io.gfile.makedirs(os.path.dirname(path))
    columns = {**split.columns, _EXAMPLE_IDS: tf.constant(split.example_ids), _LENGTHS: tf.constant(split.lengths)}
    columns[_TOTAL] = tf.fill([len(split)], len(split))  # reveals a file that lacks its last records
    with storage.atomic_path(path) as temporary, tf.io.TFRecordWriter(temporary) as file:
        for begin in range(0, max(1, len(split)), _ROWS_PER_RECORD):
            rows = {name: column[begin : begin + _ROWS_PER_RECORD] for name, column in columns.items()}
            file.write(_record(rows))


def _record(rows: Mapping[str, tf.Tensor | tf.RaggedTensor]) -> bytes:
    """Serializes rows as a `tf.train.Example`.

    The feature of a column has the column's dtype and values; for a ragged column, it also has the row lengths.
    """
    features = {}
    for name, column in rows.items():
        ragged = isinstance(column, tf.RaggedTensor)
        tensors = [column.values, column.row_lengths()] if ragged else [column]
        values = [tensors[0].dtype.name.encode(), *(tf.io.serialize_tensor(tensor).numpy() for tensor in tensors)]
        features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def _read(path: str, examples: Sequence[Any]) -> Split:
    parts = list(map(_parsed, without_autotune(tf.data.TFRecordDataset(path)).as_numpy_iterator()))
    columns = {name: tf.concat([part[name] for part in parts], axis=0) for name in parts[0]}
    example_ids, lengths = columns.pop(_EXAMPLE_IDS).numpy(), columns.pop(_LENGTHS).numpy()
    if np.any(columns.pop(_TOTAL).numpy() != len(example_ids)) or (len(example_ids) == 0) != (len(examples) == 0):
        raise ValueError("some records are missing")
    return Split(examples, columns, example_ids, lengths)


def _parsed(record: bytes) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    columns = {}
    # Sort the columns, because the order of a record's map differs between processes.
    for name, feature in sorted(tf.train.Example.FromString(record).features.feature.items()):
        dtype, values, *lengths = feature.bytes_list.value
        column = tf.io.parse_tensor(values, tf.as_dtype(dtype.decode()))
        if lengths:
            column = tf.RaggedTensor.from_row_lengths(column, tf.io.parse_tensor(lengths[0], tf.int64))
        columns[name] = column
    return columns


def _caches(folder: str, name: str) -> Iterator[str]:
    return (
        os.path.join(folder, file)
        for file in tf.io.gfile.listdir(folder)
        if file.startswith(f"{name}-") and file.endswith(".tfrecord")
    )
