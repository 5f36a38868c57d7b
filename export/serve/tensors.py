"""Converts between TensorProto and arrays."""

import math

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2

from export.serve.errors import invalid
from export.serve.servable import reshaped

# Maps each dtype to the field of TensorProto that contains its values.
_FIELDS = {
    tf.float32: "float_val", tf.float64: "double_val", tf.int64: "int64_val", tf.uint32: "uint32_val",
    tf.uint64: "uint64_val", tf.bool: "bool_val", tf.int32: "int_val", tf.int16: "int_val", tf.int8: "int_val",
    tf.uint8: "int_val", tf.uint16: "int_val", tf.float16: "half_val", tf.bfloat16: "half_val", tf.string: "string_val",
}  # fmt: skip


def from_proto(name: str, proto: tensor_pb2.TensorProto, largest_bytes: int) -> np.ndarray:
    """Converts a TensorProto to an array.
    `largest_bytes`: maximum size of the array. The limit is necessary because a short message can describe a huge
      tensor of equal values.
    Raises ServingError: the message is not a tensor of a supported type, or the tensor is too large."""
    try:
        dtype = tf.as_dtype(proto.dtype)
    except TypeError as error:
        raise invalid(f"tensor parsing error: {name}") from error
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if dtype not in _FIELDS or proto.tensor_shape.unknown_rank or any(size < 0 for size in sizes):
        raise invalid(f"tensor parsing error: {name}")
    count = math.prod(sizes)
    if count * (8 if dtype == tf.string else dtype.size) > largest_bytes:
        raise invalid(f"input {name} has {count} values, too many for this server")
    held = len(getattr(proto, _FIELDS[dtype]))
    content = len(proto.tensor_content)
    if held > count or (content and (dtype == tf.string or content != count * dtype.size)):
        raise invalid(f"tensor parsing error: {name}")
    try:
        # if a message has fewer values than its shape, the last one is repeated
        values = tf.make_ndarray(proto) if count else np.zeros(0, dtype.as_numpy_dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise invalid(f"tensor parsing error: {name}") from error
    return reshaped(np.asarray(values), sizes)


def to_proto(array: np.ndarray) -> tensor_pb2.TensorProto:
    """Converts an array to a TensorProto. Clients expect the values in a typed field such as `float_val`, not in
    `tensor_content`."""
    dtype = tf.string if array.dtype == np.object_ else tf.as_dtype(array.dtype)
    shape = tensor_shape_pb2.TensorShapeProto(
        dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in array.shape]
    )
    proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum, tensor_shape=shape)
    if dtype not in _FIELDS:
        proto.tensor_content = array.tobytes()
        return proto
    values = array.ravel()
    if _FIELDS[dtype] == "half_val":
        values = values.view(np.uint16)
    getattr(proto, _FIELDS[dtype]).extend(values.tolist())
    return proto
