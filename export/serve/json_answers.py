"""Writes the JSON bodies of REST answers, with the number formats of TF Serving.

A float has six digits if parsing these digits gives the same float. Otherwise, it has 9 digits (float32) or 17 digits
(float64). Floats that are whole numbers end with ".0". NaN and Infinity have no quotes. Strings are UTF-8; if the name
of an output ends with `_bytes`, its strings are {"b64": "..."}.
"""

import base64
import json
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from google.protobuf.message import Message
from tensorflow_serving.apis import get_model_metadata_pb2

from export.serve.errors import invalid

_BARE_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_BYTES_SUFFIX = "_bytes"


def predictions(outputs: Mapping[str, np.ndarray], by_rows: bool) -> bytes:
    """Returns the body of a Predict answer. If there is only one output, the body does not contain the output's name.

    Args:
      outputs: arrays by name. If `by_rows` is true, all arrays must have the same number of rows.
      by_rows: whether the request listed rows (`instances`).

    Raises:
      ServingError: the numbers of rows differ, or JSON cannot represent an output's type.
    """
    if not by_rows:
        written = {name: _nested(_written(name, array), array.shape) for name, array in outputs.items()}
        text = next(iter(written.values())) if len(written) == 1 else _object(written, "        ", "    ")
        return _encoded(f'{{\n    "outputs": {text}\n}}')
    count = _check_rows(outputs)
    columns = {name: _rows(_written(name, array), array.shape) for name, array in outputs.items()}
    if len(columns) == 1:
        rows = next(iter(columns.values()))
    else:
        rows = [
            _object({name: rows[row] for name, rows in columns.items()}, "            ", "        ")
            for row in range(count)
        ]
    return _encoded(f'{{\n    "predictions": {_lines(rows)}\n}}')


def error(message: str) -> bytes:
    """Returns the body of an error."""
    return _encoded(f'{{\n    "error": {json.dumps(message, ensure_ascii=False)}\n}}')


def status(response: Message) -> bytes:
    """Returns the body of a model's status."""
    return _encoded(_message(response) + "\n")


def metadata(response: get_model_metadata_pb2.GetModelMetadataResponse) -> bytes:
    """Returns the body of a model's metadata."""
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    spec, listed = _message(response.model_spec), _message(signatures)
    return _encoded(f'{{\n"model_spec":{spec}\n,\n"metadata": {{"signature_def": {listed}\n}}\n}}\n')


def _message(message: Message) -> str:
    return json_format.MessageToJson(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True, indent=1
    )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _check_rows(outputs: Mapping[str, np.ndarray]) -> int:
    counts = {len(array) if array.ndim else None for array in outputs.values()}
    if None in counts or len(counts) > 1:
        raise invalid("the outputs are not lists of the same number of rows; send inputs instead of instances")
    return counts.pop()


def _written(name: str, array: np.ndarray) -> list[str]:
    flat = array.ravel()
    if array.dtype == np.object_:
        if name.endswith(_BYTES_SUFFIX):
            return [f'{{"b64": "{base64.b64encode(value).decode()}"}}' for value in flat]
        return [json.dumps(value.decode("utf-8", "replace"), ensure_ascii=False) for value in flat]
    if array.dtype == np.bool_:
        return ["true" if value else "false" for value in flat.tolist()]
    if np.issubdtype(array.dtype, np.integer):
        return list(map(str, flat.tolist()))
    dtype = tf.as_dtype(array.dtype)
    if dtype.is_floating:
        return _floats(flat if dtype.size >= 4 else flat.astype(np.float32))
    raise invalid(f"JSON has no values of the type {dtype.name} ({name}); send the request over gRPC")


def _floats(values: np.ndarray) -> list[str]:
    """Returns the text of each float, in TF Serving's format. Parsing the text gives the same float."""
    texts = [f"{value:.6g}" for value in values.tolist()]
    # Find the floats for which six digits are not enough, and write these floats with all digits.
    again = np.array(list(map(float, texts)), np.float64).astype(values.dtype)
    digits = 9 if values.dtype == np.float32 else 17
    for index in np.flatnonzero((again != values) & np.isfinite(values)).tolist():
        texts[index] = f"{float(values[index]):.{digits}g}"
    return [text if "." in text or "e" in text else _BARE_WORDS.get(text, text + ".0") for text in texts]


def _rows(texts: list[str], shape: Sequence[int]) -> list[str]:
    if len(shape) == 1:
        return texts
    size = len(texts) // shape[0] if shape[0] else 0
    return [_nested(texts[row * size : (row + 1) * size], shape[1:]) for row in range(shape[0])]


def _nested(texts: list[str], shape: Sequence[int]) -> str:
    """Returns the text of an array with this shape; `texts` are the texts of the array's values."""
    if not shape:
        return texts[0]
    return "[" + ", ".join(_rows(texts, shape)) + "]"


def _lines(rows: Sequence[str]) -> str:
    return "[\n        " + ",\n        ".join(rows) + "\n    ]" if rows else "[]"


def _object(members: Mapping[str, str], indent: str, end: str) -> str:
    lines = ",\n".join(f"{indent}{json.dumps(name)}: {text}" for name, text in members.items())
    return f"{{\n{lines}\n{end}}}"
