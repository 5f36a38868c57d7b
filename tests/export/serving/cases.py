"""A table of requests and answers from TF Serving's REST documentation and behaviour: each endpoint, each error."""

import base64

MODEL = "/v1/models/half"
PREDICT, CLASSIFY, REGRESS = (f"{MODEL}:{method}" for method in ("predict", "classify", "regress"))
INFINITY = float("inf")
DEEP_LIST = b"[" * 5000 + b"]" * 5000
DEEP_OBJECT = b'{"]\\"[": ' * 5000 + b"1" + b"}" * 5000


def b64(value: bytes) -> dict:
    return {"b64": base64.b64encode(value).decode()}


# Path, body and answer; the default signature computes x / 2 + version.
ANSWERS = {
    "rows, a single input": (":predict", {"instances": [1.0, 2.0, 5]}, {"predictions": [2.5, 3.0, 4.5]}),
    "rows, named": (":predict", {"instances": [{"x": 1.0}, {"x": 2}]}, {"predictions": [2.5, 3.0]}),
    "columns, a single input": (":predict", {"inputs": [1.0, 2.0]}, {"outputs": [2.5, 3.0]}),
    "columns, named": (":predict", {"inputs": {"x": [1.0]}}, {"outputs": [2.5]}),
    "a version": ("/versions/1:predict", {"instances": [1.0]}, {"predictions": [1.5]}),
    "a label": ("/labels/stable:predict", {"instances": [1.0]}, {"predictions": [1.5]}),
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
        {"predictions": [1.43577434e09, -16777216.0, 1e30]},
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
    "an empty batch": (":predict", {"inputs": []}, {"outputs": []}),
    "half precision": (
        ":predict", {"signature_name": "half", "instances": [0.5]}, {"predictions": [{"y": 0.5, "z": 0.5}]},
    ),
    "unknown members": (":predict", {"instances": [1.0], "comment": {"a": [1]}}, {"predictions": [2.5]}),
    "unknown members that nest deeply": (
        ":predict", b'{"a": %s, "instances": [1.0], "b": %s}' % (DEEP_LIST, DEEP_OBJECT), {"predictions": [2.5]},
    ),
    "a byte order mark": (":predict", b'\xef\xbb\xbf{"instances": [1.0]}', {"predictions": [2.5]}),
    "classify": (
        ":classify",
        {"signature_name": "classify_x", "examples": [{"x": 1.0}, {"x": [2.0]}]},
        {"results": [[["plus", 2.5], ["minus", -2.5]], [["plus", 3.0], ["minus", -3.0]]]},
    ),
    "classes without scores": (
        ":classify",
        {"signature_name": "classes_only", "examples": [{"x": 1.0}]},
        {"results": [[["plus", 0.0], ["minus", 0.0]]]},
    ),
    "a context for all examples": (
        "/versions/1:regress",
        {"signature_name": "regress_x", "context": {"add": 10.0}, "examples": [{"x": 1.0}, {"x": 1.0, "add": 0.5}]},
        {"results": [11.5, 2.0]},
    ),
    "regress": (":regress", {"signature_name": "regress_x", "examples": [{"x": 4.0}]}, {"results": [4.0]}),
    "numbers of examples that float32 rounds": (
        ":regress",
        {"signature_name": "regress_x", "examples": [{"x": 1e300}, {"x": 10**20}, {"x": -(10**20)}]},
        {"results": [INFINITY, 5e19, -5e19]},
    ),
    "a label to classify": (
        "/labels/stable:classify", {"signature_name": "classify_x", "examples": [{"x": 1.0}]},
        {"results": [[["plus", 1.5], ["minus", -1.5]]]},
    ),
    "a label to regress": (
        "/labels/stable:regress", {"signature_name": "regress_x", "examples": [{"x": 1.0}]}, {"results": [1.5]},
    ),
    "regress with a column": (
        ":regress", {"signature_name": "regress_column", "examples": [{"x": 4.0}]}, {"results": [4.0]},
    ),
}  # fmt: skip

# Path, body, status, and a pattern of the message.
ERRORS = {
    "unknown model": (
        "/v1/models/none:predict", {"instances": [1]}, 404, r"Servable not found for request: Latest\(none\)",
    ),
    "unknown version": (
        MODEL + "/versions/9:predict", {"instances": [1]}, 404, r"Servable not found for request: Specific\(half, 9\)",
    ),
    "unknown label": (
        MODEL + "/labels/nope:predict", {"instances": [1]}, 400, "Unrecognized servable version label: nope",
    ),
    "version too large": (
        MODEL + "/versions/99999999999999999999:predict", {}, 400, "Failed to convert version: 9+ to numeric.",
    ),
    "unknown signature": (
        PREDICT, {"signature_name": "no", "instances": [1]}, 400,
        'Serving signature name: "no" not found in signature def',
    ),
    "signature name is not a string": (
        PREDICT, {"signature_name": 100}, 400, "'signature_name' key must be a string value.",
    ),
    "unknown method": (MODEL + ":explain", {}, 400, "Malformed request: POST /v1/models/half:explain"),
    "no method": (MODEL, {}, 400, "Malformed request: POST /v1/models/half"),
    "query": (
        PREDICT + "?trace=1", {"instances": [1]}, 400, r"Malformed request: POST /v1/models/half:predict\?trace=1",
    ),
    "empty query": (CLASSIFY + "?", {}, 400, r"Malformed request: POST /v1/models/half:classify\?"),
    "query of a version": (
        MODEL + "/versions/1:regress?a=b&c", {}, 400, r"Malformed request: POST .*/versions/1:regress\?a=b&c",
    ),
    "query in a name": (
        MODEL + "?a:predict", {"instances": [1]}, 404, r"Servable not found for request: Latest\(half\?a\)",
    ),
    "version and label": (MODEL + "/versions/1/labels/stable:predict", {}, 400, "Malformed request: POST "),
    "upper case, unknown model": ("/V1/MODELS/none:predict", {"instances": [1]}, 404, "Servable not found for request"),
    "outside of the interface": ("/v2/models/half", {}, 404, "Not found"),
    "path that climbs": ("/v1/models/..%2f..%2fetc%2fpasswd:predict", {"instances": [1]}, 404, "Servable not found"),
    "empty body": (PREDICT, b"", 400, "JSON Parse error: The document is empty"),
    "no JSON": (PREDICT, b"x", 400, r"JSON Parse error: Invalid value. at offset: 0"),
    "truncated": (PREDICT, b'{"instances": [1.0', 400, "JSON Parse error: Missing a comma"),
    "trailing text": (PREDICT, b'{"instances": [1.0]} x', 400, "followed by other values. at offset: 21"),
    "not an object": (PREDICT, [1, 2], 400, r"JSON Value: \[1, 2\] Is not object"),
    "neither rows nor columns": (PREDICT, {"x": 1}, 400, "Missing 'inputs' or 'instances' key"),
    "rows and columns": (PREDICT, {"inputs": [1], "instances": [1]}, 400, "expecting only one of 'inputs' or"),
    "rows are not a list": (PREDICT, {"instances": 1}, 400, "Excepting 'instances' to be an list/array"),
    "no rows": (PREDICT, {"instances": []}, 400, "No values in 'instances' array"),
    "wrong type": (
        PREDICT, {"instances": ["x"]}, 400,
        "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: JSON Value: \"x\" Type: String is "
        "not of expected type: float",
    ),
    "null": (PREDICT, {"instances": [None]}, 400, "JSON Value: null Type: Null is not of expected type: float"),
    "decimal for an integer": (
        PREDICT, {"signature_name": "int32", "instances": [1.0]}, 400, "is not of expected type: int32",
    ),
    "integer out of range": (
        PREDICT, {"signature_name": "uint8", "instances": [256]}, 400, "is not of expected type: uint8",
    ),
    "number for a bool": (PREDICT, {"signature_name": "bool", "instances": [1]}, 400, "expected type: bool"),
    "number for a string": (PREDICT, {"signature_name": "text", "instances": [1]}, 400, "expected type: string"),
    "bad base64": (
        PREDICT, {"signature_name": "text", "instances": [{"b64": "%%"}]}, 400, "Unable to base64 decode",
    ),
    "rows of different sizes": (
        PREDICT, {"signature_name": "ids", "instances": [[1, 2], [3]]}, 400, "Expecting tensor size: 2 but got: 1",
    ),
    "rows of different shapes": (
        PREDICT, {"signature_name": "ids", "instances": [[1, 2], [[3], [4]]]}, 400,
        r"Expecting shape \[2\] but got: \[2,1\]",
    ),
    "ragged columns": (
        PREDICT, {"signature_name": "ids", "inputs": [[1, 2], [3]]}, 400,
        "Encountered list at unexpected size: 1 at level: 1 expected size: 2",
    ),
    "value among lists": (PREDICT, {"signature_name": "ids", "inputs": [[1], 3]}, 400, "found at incorrect level"),
    "list among values": (PREDICT, {"inputs": [1, [3]]}, 400, "Encountered list at unexpected level: 1"),
    "plain rows for two inputs": (
        PREDICT, {"signature_name": "two", "instances": [1]}, 400, "expecting list of objects as multiple",
    ),
    "plain columns for two inputs": (
        PREDICT, {"signature_name": "two", "inputs": [1]}, 400, "expecting an object as multiple input tensors",
    ),
    "missing input in rows": (
        PREDICT, {"signature_name": "two", "instances": [{"b": 1}]}, 400, "keys must be equal to: a,b",
    ),
    "unknown input in rows": (
        PREDICT, {"instances": [{"x": 1, "z": 1}]}, 400, "JSON object: does not have named input: z",
    ),
    "missing input in columns": (
        PREDICT, {"signature_name": "two", "inputs": {"b": [1]}}, 400, "Missing named input: a in 'inputs' object.",
    ),
    "objects and values": (
        PREDICT, {"instances": [{"x": 1}, 2]}, 400, "Expecting object but got list at item 1 of input list",
    ),
    "a shape that the signature forbids": (
        PREDICT, {"signature_name": "two", "inputs": {"a": [[1, 2, 3]], "b": [1]}}, 400,
        r"input a has shape \[1,3\], which does not fit",
    ),
    "an op fails": (PREDICT, {"signature_name": "checked", "instances": [-1]}, 400, "x is negative"),
    "lone surrogate": (
        PREDICT, rb'{"signature_name": "text", "instances": ["\ud800"]}', 400, "surrogate pair in string",
    ),
    "deep nesting": (PREDICT, b'{"instances": ' + b"[" * 100_000, 400, "JSON Parse error: Invalid value."),
    "deep nesting with a mistake": (
        PREDICT, b'{"a": %s, "instances": [1]}' % DEEP_LIST.replace(b"[]", b"[x]"), 400, "error: Invalid value.",
    ),
    "deep nesting, large": (PREDICT, b'{"instances": ' + b"[" * 2_000_000, 400, "nests too deeply"),
    "more dimensions than tensors have": (
        PREDICT, b'{"inputs": %s}' % DEEP_LIST, 400, "a tensor of [0-9]+ dimensions",
    ),
    "feature beyond int64": (
        REGRESS, {"signature_name": "regress_x", "examples": [{"x": 2**63}]}, 400,
        "Feature: x has uint64 element. Only int64 is supported.",
    ),
    "huge integer": (PREDICT, b'{"instances": [' + b"9" * 10_000 + b"]}", 400, "too big"),
    "predict signature for classify": (
        CLASSIFY, {"examples": [{"x": 1.0}]}, 400,
        "signature method_name to be tensorflow/serving/classify. Was: tensorflow/serving/predict",
    ),
    "unknown signature for regress": (
        REGRESS, {"signature_name": "no", "examples": [{}]}, 400, "No signature was found with the name: no",
    ),
    "no examples": (CLASSIFY, {"instances": []}, 400, "key 'examples' is expected and was not found"),
    "empty examples": (CLASSIFY, {"examples": []}, 400, "'examples' value is an empty array"),
    "examples are not a list": (REGRESS, {"examples": {}}, 400, "Expecting 'examples' value to be an list/array"),
    "example is not an object": (REGRESS, {"examples": [1]}, 400, "Example must be JSON object but got JSON Number"),
    "mixed feature": (CLASSIFY, {"examples": [{"x": [1.0, "a"]}]}, 400, "Unexpected element type in feature: x"),
    "nested feature": (CLASSIFY, {"examples": [{"x": [[1]]}]}, 400, "has element with unexpected JSON type: Array"),
    "example without a feature": (
        CLASSIFY, {"signature_name": "classify_x", "examples": [{}]}, 400, "[Ff]eature: x",
    ),
    "scores of another rank": (
        CLASSIFY, {"signature_name": "flat_scores", "examples": [{"x": 1.0}]}, 400,
        r"Expected Tensor shape: \[batch_size num_classes\] but got",
    ),
}  # fmt: skip
