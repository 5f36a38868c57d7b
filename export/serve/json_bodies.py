"""Reads the JSON bodies of REST requests, and writes the JSON bodies of answers.

`instances` lists rows; each row is a value, a list, or an object with a value for each input. `inputs` contains a
complete tensor for each input. A binary string has the form {"b64": "..."}. In answers, a number has as many digits as
its type needs, NaN and Infinity have no quotes, and outputs whose name ends with `_bytes` contain binary strings.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
import tensorflow as tf
from google.protobuf import json_format
from google.protobuf.message import Message
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import get_model_metadata_pb2

from export.serve.errors import Code, ServingError, invalid
from export.serve.servable import reshaped

Inputs = Mapping[str, meta_graph_pb2.TensorInfo]
# Maximum number of characters that an error message quotes from a request.
_LONGEST_QUOTE = 200
_BYTES_SUFFIX = "_bytes"


def parse(body: bytes) -> dict[str, Any]:
    """Parses a body. Bytes that are not valid UTF-8 become lone surrogates, which `_string` converts back.
    Raises ServingError: the body is not a JSON object."""
    try:
        value = json.loads(body.decode("utf-8-sig", "surrogateescape"))
    except ValueError as error:
        raise invalid(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise invalid('the body must be a JSON object, such as {"instances": ["a text"]}')
    return value


def predict_inputs(document: dict[str, Any], inputs: Inputs) -> tuple[dict[str, np.ndarray], bool]:
    """Returns the arrays of a Predict request, and whether the request lists rows (`instances`).
    Raises ServingError: the document does not fit the signature."""
    if ("instances" in document) == ("inputs" in document):
        raise invalid("give either instances (a list of rows) or inputs (a list of values for each input)")
    if "inputs" in document:
        # like TF Serving, names that the signature lacks are ignored here, but not in rows
        named = _named(document["inputs"], inputs)
        return {name: _Tensor(name, info.dtype).add(named[name]).array() for name, info in inputs.items()}, False
    rows = document["instances"]
    if not isinstance(rows, list) or not rows:
        raise invalid("instances must be a list with at least one row")
    return _from_rows(rows, inputs), True


def _named(value: Any, inputs: Inputs) -> dict[str, Any]:
    """Returns values by input name; a signature with one input also takes the value without its name."""
    if not _has_names(value):
        if len(inputs) > 1:
            raise invalid(f"an object with the inputs {_names(inputs)} expected")
        return {next(iter(inputs)): value}
    if not value.keys() >= set(inputs):
        raise invalid(f"the signature has the inputs {_names(inputs)}; the request has others")
    return value


def _has_names(value: Any) -> bool:
    return isinstance(value, dict) and not _is_base64(value)


def _names(inputs: Inputs) -> str:
    return ", ".join(sorted(inputs))


def _from_rows(rows: list, inputs: Inputs) -> dict[str, np.ndarray]:
    tensors = {name: _Tensor(name, info.dtype) for name, info in inputs.items()}
    has_names = _has_names(rows[0])
    for index, row in enumerate(rows):
        try:
            named = _named(row, inputs)
            if named.keys() != tensors.keys():
                raise invalid(f"the signature has the inputs {_names(inputs)}; the request has others")
            if (named is row) != has_names:
                raise invalid("give all rows as objects with the names of the inputs, or all without names")
            for name, value in named.items():
                tensors[name].add(value)
        except ServingError as error:
            raise invalid(f"instances[{index}]: {error.message}") from error
    return {name: tensor.array(rows=len(rows)) for name, tensor in tensors.items()}


class _Tensor:
    """Collects the values of one input."""

    def __init__(self, name: str, dtype: int):
        self._name = name
        self._dtype = tf.as_dtype(dtype)
        self._converted = _converter(self._dtype)
        self._values: list = []
        self._shape: list[int] | None = None

    def add(self, value: Any) -> "_Tensor":
        """Adds a nested list or a single value. All added values must have the same shape."""
        shape = _shape_of(value)
        if self._shape not in (None, shape):
            raise invalid(f"input {self._name} has the shape {shape}, and {self._shape} in the rows before")
        self._shape = shape
        self._fill(value, shape)
        return self

    def array(self, rows: int | None = None) -> np.ndarray:
        """Returns an array: the only added value if `rows` is None, else the stack of all `rows` added values."""
        shape = [*([] if rows is None else [rows]), *(self._shape or [])]
        dtype = np.object_ if self._dtype == tf.string else self._dtype.as_numpy_dtype
        array = np.empty(len(self._values), dtype)
        with np.errstate(over="ignore"):  # values beyond float32 become infinite
            array[:] = self._values
        return reshaped(array, shape)

    def _fill(self, value: Any, shape: list[int]) -> None:
        if isinstance(value, list) != bool(shape) or (shape and len(value) != shape[0]):
            raise invalid(f"input {self._name}: the lists have different lengths or depths")
        if not shape:
            try:
                self._values.append(self._converted(value))
            except ServingError as error:
                raise ServingError(error.code, f"input {self._name}: {error.message}") from error
            return
        for part in value:
            self._fill(part, shape[1:])


def _shape_of(value: Any) -> list[int]:
    """Returns the shape of a nested list, judged by the first value of each list."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return shape


def _is_base64(value: Any) -> bool:
    """Returns whether a value is a binary string, {"b64": "..."}."""
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def _converter(dtype: tf.DType) -> Callable[[Any], Any]:
    """Returns a function that checks one JSON value and converts it to `dtype`. A number that float32 or float64 cannot
    represent exactly is accepted: the array will contain the nearest value of the type, or infinity."""
    if dtype == tf.string:
        return _string
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


def _string(value: Any) -> bytes:
    """Returns the bytes of a text string or a binary string."""
    try:
        if isinstance(value, str):
            return value.encode("utf-8", "surrogateescape")
        if _is_base64(value):
            text = value["b64"].encode("ascii")
            return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        pass  # a lone surrogate, or no Base64
    return _refuse(value, tf.string)


def _refuse(value: Any, dtype: tf.DType):
    text = json.dumps(value)
    quoted = text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "..."
    raise invalid(f"{quoted} is not a value of the type {dtype.name}")


def predictions(outputs: Mapping[str, np.ndarray], by_rows: bool) -> bytes:
    """Returns the body of a Predict answer. If there is only one output, the body does not contain the output's name.
    `outputs`: arrays by name. If `by_rows` is true, all arrays must have the same number of rows.
    `by_rows`: whether the request listed rows (`instances`).
    Raises ServingError: the numbers of rows differ, or JSON cannot represent an output's type."""
    values = {name: _value(name, array) for name, array in outputs.items()}
    if by_rows:
        counts = {len(array) if array.ndim else None for array in outputs.values()}
        if None in counts or len(counts) > 1:
            raise invalid("the outputs are not lists of the same number of rows; send inputs instead of instances")
    answer: Any = next(iter(values.values())) if len(values) == 1 else values
    if by_rows and len(values) > 1:
        answer = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    body = {"predictions" if by_rows else "outputs": answer}
    floats = (array for array in outputs.values() if tf.as_dtype(array.dtype).is_floating)
    if all(np.isfinite(array).all() for array in floats):
        return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    return json.dumps(body, default=lambda array: array.tolist(), ensure_ascii=False).encode()


def _value(name: str, array: np.ndarray) -> Any:
    if array.dtype == np.object_:
        decode = _binary if name.endswith(_BYTES_SUFFIX) else _text
        return np.frompyfunc(decode, 1, 1)(array).tolist() if array.ndim else decode(array.item())
    dtype = tf.as_dtype(array.dtype)
    if dtype.is_floating and dtype.size < 4:
        array = array.astype(np.float32)
    elif not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        raise invalid(f"JSON has no values of the type {dtype.name} ({name}); send the request over gRPC")
    return np.ascontiguousarray(array) if array.ndim else array[()]


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _binary(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode()}


def error(message: str) -> bytes:
    return json.dumps({"error": message}).encode()


def metadata(response: get_model_metadata_pb2.GetModelMetadataResponse) -> bytes:
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    spec, listed = message(response.model_spec).decode(), message(signatures).decode()
    return f'{{"model_spec": {spec}, "metadata": {{"signature_def": {listed}}}}}'.encode()


def message(proto: Message) -> bytes:
    options = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True, "indent": 1}
    return json_format.MessageToJson(proto, **options).encode()
