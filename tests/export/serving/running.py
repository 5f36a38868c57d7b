"""A server in a thread of the test's process, and small clients."""

import asyncio
import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import model_service_pb2_grpc, predict_pb2, prediction_service_pb2_grpc

from bert_tf.command_line import parse
from export.serve.server import Server, read_config
from export.serve.settings import ServeSettings


def free_ports() -> tuple[int, int]:
    """Returns two different ports that nothing listens on."""
    with socket.socket() as first, socket.socket() as second:
        for found in (first, second):
            found.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


class Running:
    """A running server. Its clients use real sockets."""

    def __init__(self, *flags: str):
        self.rest_port, self.grpc_port = free_ports()
        ports = [f"--rest_api_port={self.rest_port}", f"--port={self.grpc_port}"]
        self.settings = parse(ServeSettings, ["--file_system_poll_wait_seconds=0.05", *ports, *flags])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.server = Server(self.settings)
        self.wait(self.server.start(read_config(self.settings)))
        self._channel = grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}")
        self.predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def submit(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def wait(self, coroutine):
        return self.submit(coroutine).result(60)

    def stop(self) -> None:
        self._channel.close()
        self.wait(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def http(self, method: str, path: str, body=None, headers=None) -> tuple[int, dict, bytes]:
        """Sends a request; returns status, headers and body. A body that is no bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.rest_port}{path}"
        request = urllib.request.Request(url, data, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def post(self, path: str, body) -> tuple[int, dict]:
        status, _, answer = self.http("POST", path, body)
        return status, json.loads(answer)

    def get(self, path: str) -> tuple[int, dict]:
        status, _, answer = self.http("GET", path)
        return status, json.loads(answer)

    def predict(self, model: str, signature: str = "", timeout: float = 20, **inputs) -> dict[str, np.ndarray]:
        """Predicts over gRPC."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = model, signature
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        response = self.predictions.Predict(request, timeout=timeout)
        return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}

    def states(self, model: str) -> dict[int, str]:
        status, answer = self.get(f"/v1/models/{model}")
        assert status == 200, answer
        return {int(one["version"]): one["state"] for one in answer["model_version_status"]}


@contextlib.contextmanager
def running(*flags: str):
    """Runs a server while the test does."""
    server = Running(*flags)
    try:
        yield server
    finally:
        server.stop()
