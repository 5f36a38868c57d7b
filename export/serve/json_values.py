"""Checks and converts single JSON values."""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from export.serve.errors import Code, ServingError, invalid

# Maximum number of characters that an error message quotes from a request.
_LONGEST_QUOTE = 200


def is_base64(value: Any) -> bool:
    """Returns whether a value is a binary string, {"b64": "..."}."""
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def converter(dtype: tf.DType) -> Callable[[Any], Any]:
    """Returns a function that checks one JSON value and converts it to `dtype`.

    A number that float32 or float64 cannot represent exactly is accepted: the array will contain the nearest value of
    the type, or infinity.
    """
    if dtype == tf.string:
        return string
    if dtype == tf.bool:
        return lambda value: value if type(value) is bool else _refuse(value, dtype)
    if dtype in (tf.float32, tf.float64):
        return lambda value: _float(value) if type(value) in (int, float) else _refuse(value, dtype)
    if dtype.is_integer:
        low, high = dtype.min, dtype.max
        return lambda value: value if type(value) is int and low <= value <= high else _refuse(value, dtype)
    raise ServingError(Code.UNIMPLEMENTED, f"JSON has no values of the type {dtype.name}; send the request over gRPC")


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise invalid("a number is too large") from error


def string(value: Any) -> bytes:
    """Returns the bytes of a text string or a binary string."""
    try:
        if isinstance(value, str):
            return value.encode("utf-8", "surrogateescape")
        if is_base64(value):
            text = value["b64"].encode("ascii")
            return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        pass  # a lone surrogate, or no Base64
    return _refuse(value, tf.string)


def _refuse(value: Any, dtype: tf.DType):
    raise invalid(f"{_quoted(value)} is not a value of the type {dtype.name}")


def _quoted(value: Any) -> str:
    """Returns the beginning of a value as JSON, without converting the rest."""
    text = ""
    for part in json.JSONEncoder().iterencode(value):
        text += part[: _LONGEST_QUOTE + 1]
        if len(text) > _LONGEST_QUOTE:
            return text[:_LONGEST_QUOTE] + "..."
    return text
