"""Checks and converts single JSON values, and quotes JSON values in error messages, as TF Serving does."""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from export.serve.errors import Code, ServingError, invalid

# Maximum number of characters that an error message quotes from a request.
_LONGEST_QUOTE = 200
_TYPES = {dict: "Object", list: "Array", str: "String", int: "Number", float: "Number", type(None): "Null"}


def is_base64(value: Any) -> bool:
    """Returns whether a value is a binary string, {"b64": "..."}."""
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def converter(dtype: tf.DType) -> Callable[[Any], Any]:
    """Returns a function that checks one JSON value and converts it to `dtype`."""
    if dtype == tf.string:
        return string
    if dtype == tf.bool:
        return lambda value: value if type(value) is bool else _refuse(value, "bool")
    if dtype in (tf.float32, tf.float64):
        return float_converter("float" if dtype == tf.float32 else "double")
    if dtype.is_integer:
        low, high = dtype.min, dtype.max
        return lambda value: value if type(value) is int and low <= value <= high else _refuse(value, dtype.name)
    return lambda value: _refuse_conversion(value, dtype)


def float_converter(name: str) -> Callable[[Any], float]:
    """Returns a function that checks one number and converts it to a Python float.

    Args:
      name: name of the expected type, for error messages. If this type cannot represent the number exactly, the number
        is still accepted: the array will contain the nearest value of the type, or infinity.
    """

    def convert(value: Any) -> float:
        if type(value) not in (int, float):
            _refuse(value, name)
        try:
            return float(value)
        except OverflowError as error:
            raise invalid("JSON Parse error: Number too big to be stored in double.") from error

    return convert


def string(value: Any) -> bytes:
    """Returns the bytes of a text string or a binary string."""
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise invalid("JSON Parse error: The surrogate pair in string is invalid.") from error
    if isinstance(value, dict):
        return _base64(value)
    return _refuse(value, "string")


def _base64(value: dict) -> bytes:
    if not is_base64(value):
        raise invalid(f"JSON Value: {quoted(value)} not formatted correctly for base64 data")
    try:
        text = value["b64"].encode("ascii")
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise invalid("Unable to base64 decode") from error


def _refuse(value: Any, name: str):
    raise invalid(f"JSON Value: {quoted(value)} Type: {type_name(value)} is not of expected type: {name}")


def _refuse_conversion(value: Any, dtype: tf.DType):
    raise ServingError(Code.UNIMPLEMENTED, f"Conversion of JSON Value: {quoted(value)} to type: {dtype.name}")


def type_name(value: Any) -> str:
    """Returns TF Serving's name for the type of a value."""
    return str(value) if isinstance(value, bool) else _TYPES[type(value)]


def quoted(value: Any) -> str:
    """Returns the beginning of a value as JSON, without converting the rest."""
    parts, length = [], 0
    for part in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        parts.append(part[: _LONGEST_QUOTE + 1])
        length += len(part)
        if length > _LONGEST_QUOTE:
            return ("".join(parts)[:_LONGEST_QUOTE] + "...").encode("utf-8", "replace").decode()
    return "".join(parts).encode("utf-8", "replace").decode()
