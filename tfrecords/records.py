"""Serializes many `tf.train.Example` records at once, by encoding whole columns in protobuf's wire format.

Building one `tf.train.Example` object per record takes longer than everything else that the generator does. This
module uses NumPy instead. `tests/tfrecords/test_records.py` compares the result with protobuf's output.

Letters: N records, L values of a feature.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from tfrecords.schema import Feature

# Protobuf's tags of five fields, in this order: the features of an Example; an entry of the map of features; the key of
# an entry; the value of an entry; the packed values of a list.
_FEATURES, _ENTRY, _KEY, _VALUE, _PACKED = b"\x0a", b"\x0a", b"\x0a", b"\x12", b"\x0a"
# Protobuf's tags of the two types of lists in a Feature.
_LIST = {"float": b"\x12", "int64": b"\x1a"}


def serialize(columns: Mapping[str, np.ndarray], features: Sequence[Feature]) -> list[bytes]:
    """Serializes N records.
    `columns`: maps feature names to arrays [N, L] of non-negative integers or of floats.
    `features`: the features of each record; L is a feature's length.
    Returns n serialized `tf.train.Example` messages, each with its features sorted by name.
    Raises ValueError: a column's length or type differs from the feature's, or a column contains a negative integer."""
    blocks: list[_Block] = []
    for feature in sorted(features, key=lambda feature: feature.name):
        values = np.asarray(columns[feature.name])
        if values.ndim != 2 or values.shape[1] != feature.length:
            raise ValueError(f"{feature.name} has shape {values.shape}, but the schema says [N, {feature.length}]")
        block = _encode_column(feature, values)
        # Merge adjacent blocks of fixed size, so that each record is joined from fewer parts.
        if block.stride and blocks and blocks[-1].stride:
            block = _joined(blocks.pop(), block)
        blocks.append(block)
    parts = [block.parts() for block in blocks]
    records = []
    for record in zip(*parts, strict=True):
        body = b"".join(record)
        records.append(_FEATURES + _varint(len(body)) + body)
    return records


class _Block:
    """One or several encoded features of all records.
    `data`: bytes of all records, one record after another.
    `stride`: number of bytes per record; 0 if records differ in size.
    `offsets`: int64 [N + 1], only for stride 0; record n has the bytes from offsets[n] to offsets[n + 1] (exclusive).
    `feature`: only for stride 0; the feature in `data`. For stride 0, `data` has no headers; `parts` adds the headers.
    """

    def __init__(
        self, data: bytes, *, stride: int = 0, offsets: np.ndarray | None = None, feature: Feature | None = None
    ):
        self.data, self.stride, self.offsets, self.feature = data, stride, offsets, feature

    def parts(self) -> list[bytes]:
        data = self.data
        if self.stride:
            return [data[start : start + self.stride] for start in range(0, len(data), self.stride)]
        starts = self.offsets.tolist()
        feature = self.feature
        return [
            _header(feature.name, feature.kind, end - start) + data[start:end]
            for start, end in itertools.pairwise(starts)
        ]


def _joined(left: _Block, right: _Block) -> _Block:
    a = np.frombuffer(left.data, np.uint8).reshape(-1, left.stride)
    b = np.frombuffer(right.data, np.uint8).reshape(-1, right.stride)
    return _Block(np.hstack([a, b]).tobytes(), stride=left.stride + right.stride)


def _encode_column(feature: Feature, values: np.ndarray) -> _Block:
    if feature.kind == "float":
        return _fixed(feature, np.ascontiguousarray(values, "<f4").view(np.uint8))
    if values.dtype.kind not in "iub":
        raise ValueError(f"{feature.name} contains {values.dtype}, but the schema says integers")
    if values.size and values.min() < 0:
        raise ValueError(f"{feature.name} contains {values.min()}; integers must not be negative")
    if not values.size or values.max() < 0x80:
        return _fixed(feature, values.astype(np.uint8))
    data, ends = _varints(values.reshape(-1))
    offsets = np.concatenate([[0], ends[values.shape[1] - 1 :: values.shape[1]]])
    return _Block(data, offsets=offsets, feature=feature)


def _fixed(feature: Feature, payload: np.ndarray) -> _Block:
    header = np.frombuffer(_header(feature.name, feature.kind, payload.shape[1]), np.uint8)
    rows = np.hstack([np.broadcast_to(header, (len(payload), len(header))), payload])
    return _Block(rows.tobytes(), stride=rows.shape[1])


def _varints(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Encodes integers as concatenated varints; returns the bytes and the end offset of each integer."""
    sizes = np.ones(len(values), np.uint8)
    for bits in range(7, int(values.max()).bit_length(), 7):
        sizes += values >= 1 << bits
    ends = np.cumsum(sizes, dtype=np.int64)
    starts = ends - sizes
    data = np.empty(ends[-1], np.uint8)
    data[starts] = (values & 0x7F) | ((sizes > 1).astype(np.uint8) << 7)
    for index in range(1, int(sizes.max())):
        has = np.flatnonzero(sizes > index)
        rest = values[has] >> 7 * index
        data[starts[has] + index] = (rest & 0x7F) | ((sizes[has] > index + 1).astype(np.uint8) << 7)
    return data.tobytes(), ends


@functools.lru_cache(maxsize=1 << 14)
def _header(name: str, kind: str, payload: int) -> bytes:
    """Returns the bytes that precede the packed values in a map entry. The packed values take `payload` bytes."""
    key = name.encode()
    packed = _PACKED + _varint(payload)
    values = _LIST[kind] + _varint(len(packed) + payload) + packed
    entry = _KEY + _varint(len(key)) + key + _VALUE + _varint(len(values) + payload) + values
    return _ENTRY + _varint(len(entry) + payload) + entry


@functools.lru_cache(maxsize=1 << 14)
def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)
