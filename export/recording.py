"""The warm-up requests of an export: real inputs for each of its signatures.

Letters: N choices per example.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from export import signatures, warmup
from export.kinds.base import ServedModel

# Number of choices per example in requests of tokens, if the model accepts any number of choices.
_CHOICES = 2


def requests(served: ServedModel) -> list[warmup.Request]:
    """Returns a request for each signature, and another request with a single row for the default signature."""
    rows = [{name: _bytes(value) for name, value in row.items()} for row in served.samples()]
    method = served.method.rpartition("/")[2]
    examples = np.array([_example(row).SerializeToString() for row in rows], object)
    return [
        warmup.Request("predict", signatures.DEFAULT, _columns(rows[:1], served)),
        warmup.Request("predict", signatures.DEFAULT, _columns(rows, served)),
        warmup.Request("predict", signatures.TOKENS, _tokens(served, rows)),
        warmup.Request(method, signatures.EXAMPLES, {signatures.EXAMPLES_INPUT: examples}),
        *(
            warmup.Request("predict", name, _first(rows, inputs))
            for name, (_, inputs) in served.more_signatures().items()
        ),
    ]


def _bytes(value: Any) -> list[bytes]:
    """Returns the texts of one input in one row, in UTF-8. If the input has one text per row, the list has one text."""
    return [text.encode("utf-8", errors="ignore") for text in ([value] if isinstance(value, str) else value)]


def _columns(rows: Sequence[Mapping[str, list[bytes]]], served: ServedModel) -> dict[str, np.ndarray]:
    """Maps each input to a string array [B] or [B, N]; short rows are padded with empty texts."""
    columns = {}
    for name, spec in served.inputs().items():
        most = max(len(row[name]) for row in rows)
        values = np.array([row[name] + [b""] * (most - len(row[name])) for row in rows], object)
        columns[name] = values[:, 0] if spec.shape.rank == 1 else values
    return columns


def _first(rows: Sequence[Mapping[str, list[bytes]]], inputs: Mapping[str, tf.TensorSpec]) -> dict[str, np.ndarray]:
    texts = np.array([next(iter(row.values()))[0] for row in rows], object)
    return dict.fromkeys(inputs, texts)


def _example(row: Mapping[str, list[bytes]]) -> tf.train.Example:
    features = {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=texts)) for name, texts in row.items()}
    return tf.train.Example(features=tf.train.Features(feature=features))


def _tokens(served: ServedModel, rows: Sequence[Mapping[str, list[bytes]]]) -> dict[str, np.ndarray]:
    """Returns inputs of the token signature, int32 [B, S] or [B, N, S], with the tokens of each row's first text."""
    packed = served.rows(served.tokenizer.encode([next(iter(row.values()))[0] for row in rows]))
    found, shape = {name: values.numpy() for name, values in packed.items()}, served.token_spec().shape
    if shape.rank == 2:
        return found
    return {name: np.repeat(values[:, np.newaxis], shape[1] or _CHOICES, axis=1) for name, values in found.items()}
