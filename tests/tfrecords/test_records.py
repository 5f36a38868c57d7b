"""The encoder by columns, compared with protobuf's."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tfrecords import records
from tfrecords.schema import Feature

# The smallest and the largest id for each number of bytes.
IDS = st.one_of(
    st.integers(0, 1 << 28),
    st.sampled_from([0, 1, 127, 128, 16383, 16384, 65535, 65536, 2097151, 2097152, (1 << 31) - 1, (1 << 63) - 1]),
)
SMALL = st.integers(0, 127)
FLOATS = st.floats(width=32, allow_nan=False)


def example(columns, features, row) -> tf.train.Example:
    """Returns one record, built by protobuf."""
    message = tf.train.Example()
    for feature in features:
        values = columns[feature.name][row]
        found = message.features.feature[feature.name]
        (found.float_list if feature.kind == "float" else found.int64_list).value.extend(values.tolist())
    return message


@st.composite
def tables(draw):
    """Draws features in any order, and their columns."""
    names = draw(st.permutations(["input_ids", "b", "masked_lm_weights", "é", "z" * 200]))
    rows = draw(st.integers(0, 4))
    features, columns = [], {}
    for name in names[: draw(st.integers(1, 5))]:
        kind = draw(st.sampled_from(["int64", "small", "float"]))
        length = draw(st.sampled_from([1, 2, 3, 20, 127, 128, 130]))
        dtype = np.float32 if kind == "float" else np.int64
        values = {"int64": IDS, "small": SMALL, "float": FLOATS}[kind]
        columns[name] = draw(arrays.arrays(dtype, (rows, length), elements=values, fill=values))
        features.append(Feature(name, "float" if kind == "float" else "int64", length))
    return features, columns, rows


@given(tables())
@settings(max_examples=200, deadline=None)
def test_records_equal_deterministic_protobuf_bytes(table):
    features, columns, rows = table
    got = records.serialize(columns, features)
    expected = [example(columns, features, row) for row in range(rows)]
    assert [tf.train.Example.FromString(record) for record in got] == expected
    assert got == [message.SerializeToString(deterministic=True) for message in expected]


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_of_any_type_are_the_same_record(dtype):
    top = 1 if dtype is np.bool_ else min(int(np.iinfo(dtype).max), (1 << 63) - 1)
    features = [Feature("ids", "int64", 3)]
    columns = {"ids": np.array([[0, 1, top], [top, top, 0]]).astype(dtype)}
    exact = {"ids": np.array([[0, 1, top], [top, top, 0]], np.int64)}
    expected = [example(exact, features, row).SerializeToString(deterministic=True) for row in range(2)]
    assert records.serialize(columns, features) == expected
