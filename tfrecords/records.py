"""Many records at once as bytes: `tf.train.Example` in protobuf's wire format, written by columns.

Building one `tf.train.Example` object a record takes longer than everything else that the generator
does. Here whole columns are encoded by NumPy; `tests/tfrecords/test_records.py` holds the result to
protobuf's own.

Letters: N records, L values of a feature.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from tfrecords.schema import Feature

# Field numbers of Example, Features, the map's entries, Feature and the two lists, as tags of length-delimited fields.
_FEATURES, _ENTRY, _KEY, _VALUE, _PACKED = b"\x0a", b"\x0a", b"\x0a", b"\x12", b"\x0a"
_LIST = {"float": b"\x12", "int64": b"\x1a"}


def serialize(columns: Mapping[str, np.ndarray], features: Sequence[Feature]) -> list[bytes]:
    """Serializes N records.

    Args:
      columns: feature name to [N, L] values: integers of at least 0, or floats.
      features: what each record must hold, with the L of each.

    Returns:
      N times the bytes of a `tf.train.Example`, features in the order of their names.

    Raises:
      ValueError: a column has another length or type than stated, or holds a negative integer.
    """
    blocks: list[_Block] = []
    for feature in sorted(features, key=lambda feature: feature.name):
        values = np.asarray(columns[feature.name])
        if values.ndim != 2 or values.shape[1] != feature.length:
            raise ValueError(f"{feature.name} has shape {values.shape}, the schema says [N, {feature.length}]")
        block = _encode_column(feature, values)
        # neighbours of fixed size become one, so that fewer parts are joined for each record
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
    """One or several features of every record: bytes of a fixed size, or of a size that varies."""

    def __init__(
        self, data: bytes, *, stride: int = 0, offsets: np.ndarray | None = None, feature: Feature | None = None
    ):
        self.data, self.stride, self.offsets, self.feature = data, stride, offsets, feature

    def parts(self) -> list[bytes]:
        """The bytes of each record."""
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
        raise ValueError(f"{feature.name} holds {values.dtype}, the schema says integers")
    if values.size and values.min() < 0:
        raise ValueError(f"{feature.name} holds {values.min()}; records hold integers of at least 0")
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
    """Integers as varints one after the other, and where each one ends."""
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
    """Everything of a map entry before its packed values, which take `payload` bytes."""
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
