"""A server keeps no memory of the requests that it refuses."""

import gzip
import json
import pathlib
import threading
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.export.serving.held import PATH, resident_mb, start
from tests.export.serving.models import write_model
from tests.waiting import PATIENCE

VALUES = 5_000_000  # a body of 20 MB


class Client:
    """Sends requests to a server; each method returns the status."""

    def __init__(self, rest_port: int, grpc_port: int):
        self._url = f"http://127.0.0.1:{rest_port}{PATH}"
        self._channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}", [("grpc.max_receive_message_length", -1)])
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    def rest(self, body: bytes, **headers) -> int:
        request = urllib.request.Request(self._url, body, {name.replace("_", "-"): v for name, v in headers.items()})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                answer.read()
                return answer.status
        except urllib.error.HTTPError as error:
            error.read()
            return error.code

    def grpc(self, signature: str, name: str, value) -> str:
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = "default", signature
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        try:
            self._stub.Predict(request, timeout=PATIENCE)
            return "OK"
        except grpc.RpcError as error:
            return error.code().name

    def silent(self, count: int) -> str:
        """Begins calls without messages, answers a request meanwhile, and cancels the calls."""
        end = threading.Event()
        call = self._channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
        calls = [call.future(iter(end.wait, True)) for _ in range(count)]
        try:
            return self.grpc("", "x", np.zeros(1, np.float32))
        finally:
            for one in calls:
                one.cancel()
            end.set()


def rows(client: Client) -> dict:
    """Refused requests by name: a function that sends one, and the status that it gets."""
    numbers = b"1.5," * (VALUES - 1)
    bomb = gzip.compress(b" " * 100_000_000)

    def wide(size: int) -> bytes:
        return json.dumps({"signature_name": "wide", "instances": [size]}).encode()

    return {
        "answer of 240 MB": (lambda: client.rest(wide(60_000_000)), 413),
        "body with a wrong value": (lambda: client.rest(b'{"instances": [' + numbers + b'"x"]}'), 400),
        "body that is not JSON": (lambda: client.rest(b'{"instances": [' + numbers), 400),
        "gzip bomb": (lambda: client.rest(bomb, Content_Encoding="gzip"), 413),
        "gRPC, wrong dtype": (lambda: client.grpc("", "x", np.zeros(VALUES, np.int32)), "INVALID_ARGUMENT"),
        "gRPC, answer of 100 MB": (lambda: client.grpc("wide", "size", np.int32([25_000_000])), "RESOURCE_EXHAUSTED"),
        "gRPC, calls without a message": (lambda: client.silent(600), "OK"),
    }


def measured(base: pathlib.Path, count: int, *flags: str) -> dict[str, list[float]]:
    """Returns the resident MB for each row: after good requests of the same size, and after refused ones."""
    patient = f"--rest_api_timeout_in_ms={PATIENCE * 1000:.0f}"
    process, rest_port, grpc_port = start(base, "--max_request_rows=10000000", patient, *flags)
    client = Client(rest_port, grpc_port)
    found = {}
    try:
        good = b'{"instances": [' + b"1.5," * (VALUES // 4) + b"1.5]}"
        for _ in range(3):
            assert client.rest(good) == 200 and client.grpc("", "x", np.zeros(VALUES // 4, np.float32)) == "OK"
        for name, (send, status) in rows(client).items():
            sizes = []
            for number in range(count):
                assert send() == status, name
                if number in (count // 4, count - 1):
                    sizes.append(resident_mb(process.pid))
            found[name] = sizes
        return found
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--enable_batching", "--max_batch_size=10000000"]])
def test_refused_requests_leave_no_memory(tmp_path, flags):
    write_model(tmp_path, 1)
    found = measured(tmp_path, 12, *flags)
    for name, (early, late) in found.items():
        assert late < 1.1 * early, name
