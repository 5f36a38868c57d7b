"""Reads the JSON bodies of REST requests, with the rules and the error messages of TF Serving.

`instances` lists rows; each row is a value, a list, or an object with a value for each input. `inputs` contains a
complete tensor for each input. A binary string has the form {"b64": "..."}. The error messages are worded as in TF
Serving, including the mistakes.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.example import example_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import input_pb2

from export.serve.errors import ServingError, invalid
from export.serve.json_values import converter, float_converter, is_base64, quoted, string, type_name
from export.serve.tensors import reshaped

Inputs = Mapping[str, meta_graph_pb2.TensorInfo]
# Maps messages of Python's parser to the messages of TF Serving's parser.
_PARSE_ERRORS = {
    "Expecting value": "Invalid value.",
    "Extra data": "The document root must not be followed by other values.",
    "Expecting property name enclosed in double quotes": "Missing a name for object member.",
    "Illegal trailing comma before end of object": "Missing a name for object member.",
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Expecting ',' delimiter": "Missing a comma, ] or } after a value.",
    "Unterminated string starting at": "Missing a closing quotation mark in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
    "Invalid control character at": "Invalid encoding in string.",
}
_as_float = float_converter("float")
# A deeply nested text is parsed in parts with this number of levels, because Python's parser is recursive. The
# outermost part contains each valid tensor completely, because a tensor has at most 254 levels.
_LEVELS = 400
# Maximum number of characters in a text that nests too deeply for Python's parser. Parsing a text of this size takes a
# second.
_LARGEST_DEEP = 1 << 20
# Matches brackets, and also whole strings, because brackets inside strings do not count.
_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)


def parse(body: bytes) -> dict[str, Any]:
    """Parses a body. Strings that are not valid UTF-8 are kept as bytes, as in TF Serving.

    Lists and objects may nest to any depth. If a part is nested more deeply than any tensor can be, this function
    only checks the syntax of the part, and replaces the part with a number.

    Raises:
      ServingError: the body is not a JSON object, or the body is both large and deeply nested.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    text = body.decode("utf-8", "surrogateescape")
    if text.startswith("\ufeff"):
        text = " " + text[1:]  # TF Serving accepts a byte order mark
    try:
        value = _parsed(text)
    except ValueError as error:  # an integer with thousands of digits
        raise invalid("JSON Parse error: Number too big to be stored in double.") from error
    if not isinstance(value, dict):
        raise invalid(f"JSON Value: {quoted(value)} Is not object")
    return value


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        return _parsed_in_parts(text)
    except json.JSONDecodeError as error:
        message = "The document is empty." if not text.strip() else _PARSE_ERRORS.get(error.msg, "Invalid value.")
        offset = len(text[: error.pos].encode("utf-8", "surrogateescape"))
        raise invalid(f"JSON Parse error: {message} at offset: {offset}") from error


def _parsed_in_parts(text: str) -> Any:
    """Parses a deeply nested text from its innermost parts outwards; a 0 replaces each parsed part."""
    if len(text) > _LARGEST_DEEP:
        raise invalid("JSON Parse error: The document nests too deeply.")
    parts: list[list[str]] = [[]]
    depth = end = 0
    try:
        for found in _BRACKETS.finditer(text):
            if found[0] in "[{":
                if depth and depth % _LEVELS == 0:
                    parts[-1].append(text[end : found.start()])
                    parts.append([])
                    end = found.start()
                depth += 1
            elif found[0] in "]}":
                depth -= 1
                if depth and depth % _LEVELS == 0 and len(parts) > 1:
                    json.loads("".join([*parts.pop(), text[end : found.end()]]))
                    parts[-1].append("0")
                    end = found.end()
        return json.loads("".join([*parts.pop(), text[end:]]))
    except json.JSONDecodeError as error:
        raise invalid(f"JSON Parse error: {_PARSE_ERRORS.get(error.msg, 'Invalid value.')}") from error


def signature_name(document: dict[str, Any]) -> str:
    """Returns the name of the signature in a request; "" if the request names no signature.

    Raises:
      ServingError: the name is not a string.
    """
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {quoted(document)} not formatted correctly. 'signature_name' key must be a string value."
        )
    return name


def predict_inputs(document: dict[str, Any], inputs: Inputs) -> tuple[dict[str, np.ndarray], bool]:
    """Returns the arrays of a Predict request, and whether the request lists rows (`instances`).

    Args:
      document: the parsed body.
      inputs: inputs of the signature.

    Raises:
      ServingError: the document does not fit the signature.
    """
    if "instances" in document and "inputs" in document:
        raise invalid(
            f"JSON Value: {quoted(document)} Not formatted correctly expecting only one of 'inputs' or 'instances' "
            "keys to exist "
        )
    if "instances" in document:
        rows = document["instances"]
        if not isinstance(rows, list):
            raise invalid(f"JSON Value: {quoted(document)} Excepting 'instances' to be an list/array")
        if not rows:
            raise invalid(f"JSON Value: {quoted(document)} No values in 'instances' array")
        return _from_rows(rows, inputs), True
    if "inputs" in document:
        return _from_columns(document["inputs"], inputs), False
    raise invalid("Missing 'inputs' or 'instances' key")


def _from_columns(value: Any, inputs: Inputs) -> dict[str, np.ndarray]:
    if not isinstance(value, dict) or is_base64(value):
        if len(inputs) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
                "tensorinfo_map"
            )
        value = {next(iter(inputs)): value}
    arrays = {}
    for name, info in inputs.items():
        if name not in value:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
        arrays[name] = _Tensor(info.dtype).add(value[name]).array()
    return arrays


def _from_rows(rows: list, inputs: Inputs) -> dict[str, np.ndarray]:
    named = _is_named(rows[0])
    if not isinstance(rows[0], dict) and len(inputs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
            "tensorinfo_map"
        )
    tensors = {name: _Tensor(info.dtype) for name, info in inputs.items()}
    only = next(iter(inputs))
    for index, row in enumerate(rows):
        if named != _is_named(row):
            wanted = "object but got list" if named else "value/list but got object"
            raise invalid(f"Expecting {wanted} at item {index} of input list")
        for name, value in row.items() if named else [(only, row)]:
            try:
                if name not in tensors:
                    raise invalid(f"JSON object: does not have named input: {name}")
                tensors[name].add(value)
            except ServingError as error:
                key = f" key: {name}" if named else ""
                raise invalid(
                    f"Failed to process element: {index}{key} of 'instances' list. Error: {error.code.name}: "
                    f"{error.message}"
                ) from error
        if named and row.keys() != tensors.keys():
            raise invalid(
                f"Failed to process element: {index} of 'instances' list. JSON object: {quoted(row)} keys must be "
                f"equal to: {','.join(sorted(tensors))}"
            )
    return {name: tensor.array(rows=len(rows)) for name, tensor in tensors.items()}


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and not is_base64(value)


class _Tensor:
    """Collects the values of one input."""

    def __init__(self, dtype: int):
        self._dtype = tf.as_dtype(dtype)
        self._converted = converter(self._dtype)
        self._values: list = []
        self._shape: list[int] | None = None

    def add(self, value: Any) -> "_Tensor":
        """Adds a nested list or a single value. All added values must have the same shape."""
        shape: list[int] = []
        first = value
        while isinstance(first, list):
            shape.append(len(first))
            if not first:
                break
            first = first[0]
        before = len(self._values)
        self._fill(value, 0, shape)
        if self._shape is None:
            self._shape = shape
        elif shape != self._shape:
            given, expected = len(self._values) - before, math.prod(self._shape)
            if given != expected:
                raise invalid(f"Expecting tensor size: {expected} but got: {given}")
            raise invalid(f"Expecting shape {_sizes(self._shape)} but got: {_sizes(shape)}")
        return self

    def array(self, rows: int | None = None) -> np.ndarray:
        """Returns an array: the only added value if `rows` is None, else the stack of all `rows` added values."""
        shape = [*([] if rows is None else [rows]), *(self._shape or [])]
        dtype = np.object_ if self._dtype == tf.string else self._dtype.as_numpy_dtype
        array = np.empty(len(self._values), dtype)
        with np.errstate(over="ignore"):  # values beyond float32 become infinite
            array[:] = self._values
        return reshaped(array, shape)

    def _fill(self, value: Any, level: int, shape: list[int]) -> None:
        if not isinstance(value, list):
            if level != len(shape):
                raise invalid(
                    f"JSON Value: {quoted(value)} found at incorrect level: {level + 1} in the JSON DOM. "
                    f"Expected at level: {len(shape)}"
                )
            self._values.append(self._converted(value))
            return
        if level >= len(shape):
            raise invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
        if len(value) != shape[level]:
            raise invalid(
                f"Encountered list at unexpected size: {len(value)} at level: {level} expected size: {shape[level]}"
            )
        for part in value:
            self._fill(part, level + 1, shape)


def _sizes(shape: list[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def examples(document: dict[str, Any]) -> input_pb2.Input:
    """Returns the examples of a Classify or Regress request.

    Raises:
      ServingError: the document has no list of examples, or a feature mixes types.
    """
    result = input_pb2.Input()
    added = result.example_list
    if "context" in document:
        added = result.example_list_with_context
        added.context.CopyFrom(_example(document["context"]))
    if "examples" not in document:
        raise invalid(
            f"JSON Value: {quoted(document)} When method is classify, key 'examples' is expected and was not found"
        )
    listed = document["examples"]
    if not isinstance(listed, list):
        raise invalid(f"JSON Value: {quoted(document)} Expecting 'examples' value to be an list/array")
    if not listed:
        raise invalid(f"JSON Value: {quoted(document)} 'examples' value is an empty array")
    added.examples.extend(_example(value) for value in listed)
    return result


def _example(value: Any) -> example_pb2.Example:
    if not isinstance(value, dict):
        raise invalid(f"Example must be JSON object but got JSON {type_name(value)}")
    example = example_pb2.Example()
    for name, content in value.items():
        try:
            feature = example.features.feature[name]
        except (UnicodeEncodeError, ValueError) as error:
            raise invalid(f"Feature: {quoted(name)} has a name that is not UTF-8") from error
        for part in content if isinstance(content, list) else [content]:
            _add_to_feature(name, part, feature)
    return example


def _add_to_feature(name: str, value: Any, feature) -> None:
    if value is None or isinstance(value, list) or (isinstance(value, dict) and not is_base64(value)):
        raise invalid(f"Feature: {name} has element with unexpected JSON type: {type_name(value)}")
    kind = {bool: "int64", int: "int64", float: "float"}.get(type(value), "bytes")
    if kind == "int64" and not -(2**63) <= value < 2**64:
        kind = "float"  # as in TF Serving's parser
    held = feature.WhichOneof("kind")
    if held not in (None, f"{kind}_list"):
        raise invalid(f"Unexpected element type in feature: {name} expecting type: {held.removesuffix('_list')}")
    if kind == "bytes":
        feature.bytes_list.value.append(string(value))
    elif kind == "float":
        feature.float_list.value.append(_as_float(value))
    elif value >= 2**63:
        raise invalid(f"Feature: {name} has uint64 element. Only int64 is supported.")
    else:
        feature.int64_list.value.append(int(value))
