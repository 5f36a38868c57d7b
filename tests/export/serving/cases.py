"""A table of requests and answers, with the answers and status codes of TF Serving."""

import base64

MODEL = "/v1/models/half"
PREDICT = f"{MODEL}:predict"
INFINITY = float("inf")
DEEP_LIST = b"[" * 5000 + b"]" * 5000


def b64(value: bytes) -> dict:
    return {"b64": base64.b64encode(value).decode()}


# Path, body and answer; the default signature computes x / 2 + version.
ANSWERS = {
    "rows, a single input": (":predict", {"instances": [1.0, 2.0, 5]}, {"predictions": [2.5, 3.0, 4.5]}),
    "rows, named": (":predict", {"instances": [{"x": 1.0}, {"x": 2}]}, {"predictions": [2.5, 3.0]}),
    "columns, a single input": (":predict", {"inputs": [1.0, 2.0]}, {"outputs": [2.5, 3.0]}),
    "columns, named": (":predict", {"inputs": {"x": [1.0]}}, {"outputs": [2.5]}),
    "a version": ("/versions/2:predict", {"instances": [1.0]}, {"predictions": [2.5]}),
    "upper case": (":PREDICT", {"instances": [1.0]}, {"predictions": [2.5]}),
    "the default signature by name": (
        ":predict", {"signature_name": "serving_default", "instances": [1.0]}, {"predictions": [2.5]},
    ),
    "several outputs by rows": (
        ":predict",
        {"signature_name": "two", "instances": [{"a": [1, 2.5], "b": 1}, {"a": [3, 4], "b": -2}]},
        {"predictions": [{"double": 2, "sum": [2.0, 3.5]}, {"double": -4, "sum": [1.0, 2.0]}]},
    ),
    "several outputs by columns": (
        ":predict",
        {"signature_name": "two", "inputs": {"a": [[1, 2], [3, 4]], "b": [1, 1]}},
        {"outputs": {"double": [2, 2], "sum": [[2.0, 3.0], [4.0, 5.0]]}},
    ),
    "strings and bytes": (
        ":predict",
        {"signature_name": "text", "instances": ["a\"b\\\n", "Ünï ☃", b64(b"plain"), ""]},
        {"predictions": [
            {"echo": "a\"b\\\n", "echo_bytes": b64(b"a\"b\\\n"), "length": 5},
            {"echo": "Ünï ☃", "echo_bytes": b64("Ünï ☃".encode()), "length": 9},
            {"echo": "plain", "echo_bytes": b64(b"plain"), "length": 5},
            {"echo": "", "echo_bytes": b64(b""), "length": 0},
        ]},
    ),
    "bytes that are not text": (
        ":predict",
        {"signature_name": "text", "inputs": [b64(b"\xff\x00")]},
        {"outputs": {"echo": ["\ufffd\x00"], "echo_bytes": [b64(b"\xff\x00")], "length": [2]}},
    ),
    "base64 without padding": (
        ":predict", {"signature_name": "string", "instances": [{"b64": "YQ"}]}, {"predictions": ["a"]},
    ),
    "no number, and infinities": (
        ":predict", {"instances": [INFINITY, -INFINITY]}, {"predictions": [INFINITY, -INFINITY]},
    ),
    "lists of lists": (
        ":predict", {"signature_name": "ids", "instances": [[1, 2, 3], [4, 5, 6]]}, {"predictions": [6, 15]},
    ),
    "integers that float32 rounds": (
        ":predict", {"signature_name": "float32", "instances": [1435774380, -(2**24) - 1, 10**30]},
        {"predictions": [1.4357743e09, -16777216.0, 1e30]},
    ),
    "integers that float64 rounds": (
        ":predict", {"signature_name": "float64", "instances": [2**53 + 1, 2**64]},
        {"predictions": [2.0**53, 2.0**64]},
    ),
    "numbers beyond float32": (
        ":predict", {"signature_name": "float32", "inputs": [1e300, -1e300, 1e-300]},
        {"outputs": [INFINITY, -INFINITY, 0.0]},
    ),
    "empty rows": (":predict", {"signature_name": "ids", "inputs": [[], []]}, {"outputs": [0, 0]}),
    "columns that the signature lacks": (":predict", {"inputs": {"x": [1.0], "z": [1]}}, {"outputs": [2.5]}),
    "an empty batch": (":predict", {"inputs": []}, {"outputs": []}),
    "half precision": (
        ":predict", {"signature_name": "half", "instances": [0.5]}, {"predictions": [{"y": 0.5, "z": 0.5}]},
    ),
    "unknown members": (":predict", {"instances": [1.0], "comment": {"a": [1]}}, {"predictions": [2.5]}),
    "a byte order mark": (":predict", b'\xef\xbb\xbf{"instances": [1.0]}', {"predictions": [2.5]}),
}  # fmt: skip

# Path, body, status, and a pattern of the message.
ERRORS = {
    "unknown model": ("/v1/models/none:predict", {"instances": [1]}, 404, "no model none; the server has half"),
    "unknown version": (
        MODEL + "/versions/9:predict", {"instances": [1]}, 404, "no version 9 of the model half is available",
    ),
    "version too large": (MODEL + "/versions/99999999999999999999:predict", {}, 400, "no such call"),
    "unknown signature": (
        PREDICT, {"signature_name": "no", "instances": [1]}, 400, "no signature no; the model has .*serving_default",
    ),
    "signature name is not a string": (PREDICT, {"signature_name": 100}, 400, "signature_name must be a string"),
    "unknown method": (MODEL + ":explain", {}, 400, "no such call: POST /v1/models/half:explain"),
    "no method": (MODEL, {}, 400, "no such call: POST /v1/models/half"),
    "a label": (MODEL + "/labels/stable:predict", {"instances": [1]}, 400, "no such call"),
    "empty query": (PREDICT + "?", {}, 400, r"no such call: POST /v1/models/half:predict\?"),
    "outside of the interface": ("/v2/models/half", {}, 404, "not found"),
    "path that climbs": ("/v1/models/..%2f..%2fetc%2fpasswd:predict", {"instances": [1]}, 404, "no model "),
    "empty body": (PREDICT, b"", 400, "the body is not JSON"),
    "no JSON": (PREDICT, b"x", 400, "the body is not JSON: .*column 1"),
    "truncated": (PREDICT, b'{"instances": [1.0', 400, "the body is not JSON"),
    "not an object": (PREDICT, [1, 2], 400, "the body must be a JSON object"),
    "neither rows nor columns": (PREDICT, {"x": 1}, 400, "give either instances .* or inputs"),
    "rows and columns": (PREDICT, {"inputs": [1], "instances": [1]}, 400, "give either instances .* or inputs"),
    "rows are not a list": (PREDICT, {"instances": 1}, 400, "instances must be a list"),
    "no rows": (PREDICT, {"instances": []}, 400, "at least one row"),
    "wrong type": (
        PREDICT, {"instances": [1, "x"]}, 400, r'instances\[1\]: input x: "x" is not a value of the type float32',
    ),
    "null": (PREDICT, {"instances": [None]}, 400, "null is not a value of the type float32"),
    "decimal for an integer": (PREDICT, {"signature_name": "int32", "instances": [1.0]}, 400, "of the type int32"),
    "integer out of range": (PREDICT, {"signature_name": "uint8", "instances": [256]}, 400, "of the type uint8"),
    "number for a bool": (PREDICT, {"signature_name": "bool", "instances": [1]}, 400, "of the type bool"),
    "number for a string": (PREDICT, {"signature_name": "text", "instances": [1]}, 400, "of the type string"),
    "bad base64": (PREDICT, {"signature_name": "text", "instances": [{"b64": "%%"}]}, 400, "of the type string"),
    "rows of different sizes": (
        PREDICT, {"signature_name": "ids", "instances": [[1, 2], [3]]}, 400, r"the shape \[1\], and \[2\]",
    ),
    "rows of different shapes": (
        PREDICT, {"signature_name": "ids", "instances": [[1, 2], [[3], [4]]]}, 400, r"\[2, 1\], and \[2\] in the rows",
    ),
    "ragged columns": (PREDICT, {"signature_name": "ids", "inputs": [[1, 2], [3]]}, 400, "different lengths or depths"),
    "plain rows for two inputs": (
        PREDICT, {"signature_name": "two", "instances": [1]}, 400, "an object with the inputs a, b expected",
    ),
    "missing input in rows": (
        PREDICT, {"signature_name": "two", "instances": [{"b": 1}]}, 400, r"instances\[0\]: .* has the inputs a, b;",
    ),
    "an object after values": (PREDICT, {"instances": [1, {"x": 1}]}, 400, r"instances\[1\]: give all rows as objects"),
    "a value after objects": (PREDICT, {"instances": [{"x": 1}, 1]}, 400, r"instances\[1\]: give all rows as objects"),
    "unknown input in rows": (PREDICT, {"instances": [{"x": 1, "z": 1}]}, 400, "has the inputs x;"),
    "a shape that the signature forbids": (
        PREDICT, {"signature_name": "two", "inputs": {"a": [[1, 2, 3]], "b": [1]}}, 400,
        r"input a has the shape \[1, 3\], which does not fit",
    ),
    "an op fails": (PREDICT, {"signature_name": "checked", "instances": [-1]}, 400, "x is negative"),
    "lone surrogate": (
        PREDICT, rb'{"signature_name": "text", "instances": ["\ud800"]}', 400, "not a value of the type string",
    ),
    "deep nesting": (PREDICT, b'{"instances": ' + b"[" * 100_000, 400, "nests too deeply"),
    "deep nesting of another member": (PREDICT, b'{"a": %s, "instances": [1]}' % DEEP_LIST, 400, "nests too deeply"),
    "huge integer": (PREDICT, b'{"instances": [' + b"9" * 10_000 + b"]}", 400, "the body is not JSON"),
}  # fmt: skip
