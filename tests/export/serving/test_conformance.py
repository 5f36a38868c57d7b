"""The contract of the REST and gRPC interfaces: a table of requests and answers over real sockets."""

import gzip
import http.client
import json
import re
import socket
import zlib

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    predict_pb2,
    regression_pb2,
)

from export.serve.errors import from_exception
from tests.export.serving.cases import ANSWERS, ERRORS, MODEL
from tests.export.serving.models import KINDS, write_model
from tests.export.serving.running import running
from tests.waiting import PATIENCE


@pytest.fixture(scope="module", params=["alone", "batched"])
def server(request, tmp_path_factory):
    """The same contract with and without batching."""
    base = tmp_path_factory.mktemp("half")
    write_model(base, 2)
    (base / "not_a_version").mkdir()
    flags = ["--model_name=half", f"--model_base_path={base}"]
    if request.param == "batched":
        flags += ["--enable_batching", "--max_batch_size=64", "--batch_timeout_micros=1000", "--num_batch_threads=2"]
    with running(*flags) as started:
        yield started


@pytest.mark.parametrize("case", ANSWERS)
def test_rest_answers(server, case):
    path, body, expected = ANSWERS[case]
    status, headers, answer = server.http("POST", MODEL + path, body)
    assert (status, json.loads(answer)) == (200, expected)
    assert headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize("case", ERRORS)
def test_rest_errors(server, case):
    path, body, expected, pattern = ERRORS[case]
    status, headers, answer = server.http("POST", path, body)
    message = json.loads(answer)
    assert status == expected, message
    assert message.keys() == {"error"} and re.search(pattern, message["error"]), message
    assert headers["Content-Type"].startswith("application/json")


def test_outputs_that_are_no_rows(server):
    """Without batching, a single number is allowed in columns; in rows and in batches it is an error."""
    status, answer = server.post(MODEL + ":predict", {"signature_name": "total", "instances": [1.0, 2.0]})
    assert status == 400 and re.search("not lists of the same number of rows|not one row for each", answer["error"])
    if not server.settings.enable_batching:
        assert server.post(MODEL + ":predict", {"signature_name": "total", "inputs": [1.0, 2.0]}) == (
            200,
            {"outputs": 3.0},
        )


def test_number_formats(server):
    """A float has as few digits as its type allows; NaN and Infinity have no quotes, as TF Serving writes them."""
    body = {"signature_name": "float32", "instances": [0.2, 1e-7, 9e6, 1.23456789, 16777215, -0.0, 1e38]}
    _, _, answer = server.http("POST", MODEL + ":predict", body)
    assert answer == b'{"predictions":[0.2,1e-7,9000000.0,1.2345679,16777215.0,-0.0,1e+38]}'
    body = b'{"signature_name": "float32", "instances": [0.2, NaN, -Infinity]}'
    _, _, answer = server.http("POST", MODEL + ":predict", body)
    small, undefined, low = json.loads(answer)["predictions"]
    assert np.float32(small) == np.float32(0.2) and np.isnan(undefined) and low == -np.inf
    body = {"signature_name": "float64", "instances": [0.1, 1 / 3, 1e100]}
    assert server.post(MODEL + ":predict", body) == (200, {"predictions": [0.1, 1 / 3, 1e100]})
    body = {"signature_name": "uint64", "instances": [2**64 - 1]}
    assert server.post(MODEL + ":predict", body) == (200, {"predictions": [2**64 - 1]})


def test_gzip_status_metadata_and_metrics(server):
    body = gzip.compress(b'{"instances": [1.0]}')
    status, _, answer = server.http("POST", MODEL + ":predict", body, {"Content-Encoding": "gzip"})
    assert (status, json.loads(answer)) == (200, {"predictions": [2.5]})
    status, _, answer = server.http("POST", MODEL + ":predict", b"no gzip", {"Content-Encoding": "gzip"})
    assert status == 400
    ok = {"error_code": "OK", "error_message": ""}
    served = {"model_version_status": [{"version": "2", "state": "AVAILABLE", "status": ok}]}
    assert server.get(MODEL) == server.get(MODEL + "/versions/2") == (200, served)
    for path, expected, message in [
        ("/v1/models/none", 404, "no model none; the server has half"),
        (MODEL + "/versions/7", 404, "the model half has no version 7"),
        ("/v1/models", 400, "the request names no model"),
        ("/v1/models/none/metadata", 404, "no model none; the server has half"),
        (MODEL + "?a=1", 404, "no model half?a=1; the server has half"),
        (MODEL + "/metadata?a=1", 400, "no such call: GET /v1/models/half/metadata?a=1"),
        (MODEL + "/versions/2?", 400, "no such call: GET /v1/models/half/versions/2?"),
        ("/v1/models?a=1", 400, "no such call: GET /v1/models?a=1"),
    ]:
        assert server.get(path) == (expected, {"error": message})
    status, answer = server.get(MODEL + "/versions/2/metadata")
    assert status == 200 and answer["model_spec"] == {"name": "half", "signature_name": "", "version": "2"}
    signature = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"]["x"]["dtype"] == "DT_FLOAT"
    assert signature["inputs"]["x"]["tensor_shape"] == {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    assert server.http("PUT", MODEL)[0] == 400
    _, headers, page = server.http("GET", "/monitoring/prometheus/metrics")
    assert headers["Content-Type"].startswith("text/plain")
    assert re.search(rb'\n:tensorflow:serving:request_count{model_name="half",status="OK"} [1-9]', page)
    assert re.search(rb':tensorflow:serving:request_latency_bucket{API="predict",entrypoint="REST",le="[^"]+"', page)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.core
def test_rest_and_grpc_give_the_same_answers(server, kind):
    values = {"bool": [True, False], "string": ["a", "ü"]}.get(kind, [0, 1, 2])
    by_grpc = server.predict("half", kind, x=np.asarray(values, object if kind == "string" else kind))["y"]
    assert by_grpc.dtype == (object if kind == "string" else np.dtype(kind))
    _, by_rest = server.post(MODEL + ":predict", {"signature_name": kind, "instances": values})
    texts = [value.decode() for value in by_grpc] if kind == "string" else by_grpc.tolist()
    assert texts == by_rest["predictions"] == values


def test_half_precision_over_grpc(server):
    values = np.float32([0.5, -2.0, 65504.0])
    for name, dtype in (("y", tf.float16), ("z", tf.bfloat16)):
        found = server.predict("half", "half", x=values)[name]
        assert tf.as_dtype(found.dtype) == dtype
        np.testing.assert_array_equal(found, values.astype(dtype.as_numpy_dtype))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MemoryError(), 429),
        (tf.errors.ResourceExhaustedError(None, None, "no memory"), 429),
        (tf.errors.InvalidArgumentError(None, None, "wrong"), 400),
        (tf.errors.UnavailableError(None, None, "later"), 503),
        (tf.errors.DeadlineExceededError(None, None, "late"), 504),
        (tf.errors.UnimplementedError(None, None, "never"), 501),
        (RecursionError(), 400),
        (KeyError("x"), 500),
    ],
)
def test_an_exception_becomes_the_status_of_its_code(error, status):
    assert from_exception(error).http_status == status


def test_grpc_fills_typed_fields_and_the_model_spec(server):
    request = predict_pb2.PredictRequest(output_filter=["sum"])
    request.model_spec.name, request.model_spec.signature_name = "half", "two"
    request.model_spec.version.value = 2
    request.inputs["a"].CopyFrom(tf.make_tensor_proto([[1.0, 2.0]]))
    request.inputs["b"].CopyFrom(tf.make_tensor_proto([1]))
    response = server.predictions.Predict(request)
    assert response.outputs.keys() == {"sum"}
    assert list(response.outputs["sum"].float_val) == [2.0, 3.0] and not response.outputs["sum"].tensor_content
    assert [dim.size for dim in response.outputs["sum"].tensor_shape.dim] == [1, 2]
    assert response.model_spec.version.value == 2 and response.model_spec.signature_name == "two"


def grpc_error(call, *arguments, **options) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as raised:
        call(*arguments, **options)
    return raised.value.code().name, raised.value.details()


def test_grpc_errors(server):
    def predict(**inputs):
        return grpc_error(server.predict, **{"model": "half", **inputs})

    one = np.float32([1])
    assert predict(model="none", x=one) == ("NOT_FOUND", "no model none; the server has half")
    assert predict(model="", x=one) == ("INVALID_ARGUMENT", "the request names no model")
    code, message = predict(signature="no", x=one)
    assert code == "FAILED_PRECONDITION" and message.startswith("no signature no; the model has ")
    assert predict(y=one) == ("INVALID_ARGUMENT", "the signature has the inputs x, the request has y")
    assert predict() == ("INVALID_ARGUMENT", "the signature has the inputs x, the request has none")
    assert predict(x=[1])[1] == "input x is int32; it must be float32"
    assert predict(x=np.float32([[1]]))[0] == "INVALID_ARGUMENT"
    assert predict(signature="checked", x=-one)[0] == "INVALID_ARGUMENT"
    request = predict_pb2.PredictRequest(output_filter=["nope"])
    request.model_spec.name = "half"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(one))
    assert grpc_error(server.predictions.Predict, request)[1] == "no output nope; the signature has y"
    del request.output_filter[:]
    for shape in ([-1], [2**40], [2**31, 2**31, 2**31]):  # one value can represent many
        del request.inputs["x"].tensor_shape.dim[:]
        for size in shape:
            request.inputs["x"].tensor_shape.dim.add(size=size)
        assert grpc_error(server.predictions.Predict, request)[0] == "INVALID_ARGUMENT"
    request.model_spec.version_label = "stable"
    assert grpc_error(server.predictions.Predict, request)[1].startswith("labels of versions are not supported")
    held = np.zeros(1, np.int32)
    assert grpc_error(server.predict, "half", "held", x=held, timeout=0.2)[0] == "DEADLINE_EXCEEDED"
    server.release(model="half")


@pytest.mark.parametrize(
    "head",
    [
        f"POST {MODEL}:predict HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\n{{",
        f"BREW {MODEL} HTTP/1.1\r\nHost: x\r\n\r\n",
        "no HTTP\r\n\r\n",
        f"GET {MODEL} HTTP/1.1\r\nHost: x\r\nX: {'y' * 40_000}\r\n\r\n",
    ],
)
def test_what_is_not_http_gets_errors_in_json(server, head):
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=PATIENCE) as client:
        client.sendall(head.encode())
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert answer.status in (400, 501) and answer.headers["Content-Type"].startswith("application/json")
        assert json.loads(answer.read()).keys() == {"error"}


@pytest.mark.parametrize("encoding", ["zz", "br", "zstd", "gzip, br"])
def test_unknown_content_encodings_are_refused(server, encoding):
    body = json.dumps({"instances": [1.0]}).encode()
    status, headers, answer = server.http("POST", MODEL + ":predict", body, {"Content-Encoding": encoding})
    expected = "the Content-Encoding is not supported; send gzip, deflate, or no Content-Encoding"
    assert (status, json.loads(answer)) == (415, {"error": expected})
    assert headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize("encode", [bytes, gzip.compress, zlib.compress])
@pytest.mark.parametrize("size", [20, 1_000_000])
def test_a_half_closed_client_gets_its_answer(server, encode, size):
    body = encode(b'{"instances": [1.0]}'.ljust(size))
    name = {bytes: "identity", gzip.compress: "gzip", zlib.compress: "deflate"}[encode]
    head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: x\r\nContent-Encoding: {name}\r\nContent-Length: {len(body)}"
    answer = half_closed(server, head.encode() + b"\r\n\r\n" + body)
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"predictions": [2.5]}


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (f"GET {MODEL} HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 "),
        (f"GET {MODEL} HTTP/1.1\r\nHost: x\r\n", b""),
        (f"POST {MODEL}:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{", b""),
        (f"POST {MODEL}:predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{{", b""),
        ("", b""),
    ],
)
def test_only_whole_requests_outlive_the_sending_half(server, sent, expected):
    answer = half_closed(server, sent.encode())
    assert answer.startswith(expected) and bool(answer) == bool(expected)


def half_closed(server, sent: bytes) -> bytes:
    """Sends bytes, ends the sending half of the connection, and returns all received bytes."""
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=PATIENCE) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(1 << 20), b""))


@pytest.mark.parametrize("method", ["Classify", "Regress", "MultiInference"])
def test_other_calls_name_the_signature_for_predict(server, method):
    request = {
        "Classify": classification_pb2.ClassificationRequest, "Regress": regression_pb2.RegressionRequest,
        "MultiInference": inference_pb2.MultiInferenceRequest,
    }[method]()  # fmt: skip
    code, message = grpc_error(getattr(server.predictions, method), request)
    assert code == "UNIMPLEMENTED" and message.endswith("call Predict with signature_name=examples")


def test_grpc_refuses_what_it_cannot_decode(server, caplog):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        found = grpc_error(call, b"\xff\xff", timeout=PATIENCE)
    assert found == ("INVALID_ARGUMENT", "The request is not a message of this method")
    assert not caplog.records


def test_grpc_status_and_metadata(server):
    status = get_model_status_pb2.GetModelStatusRequest()
    assert grpc_error(server.models.GetModelStatus, status) == ("INVALID_ARGUMENT", "the request names no model")
    status.model_spec.name = "half"
    listed = server.models.GetModelStatus(status).model_version_status
    assert [(one.version, one.state) for one in listed] == [(2, 30)]
    metadata = get_model_metadata_pb2.GetModelMetadataRequest()
    metadata.model_spec.name = "half"
    assert grpc_error(server.predictions.GetModelMetadata, metadata)[0] == "INVALID_ARGUMENT"
    metadata.metadata_field.append("signature_def")
    response = server.predictions.GetModelMetadata(metadata)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures) and response.model_spec.version.value == 2
    assert signatures.signature_def["classify_x"].method_name == "tensorflow/serving/classify"
