"""A server in a thread of the test process, and small clients."""

import asyncio
import contextlib
import json
import threading
import urllib.error
import urllib.request

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import model_service_pb2_grpc, predict_pb2, prediction_service_pb2_grpc

from bert_tf.core.command_line import parse
from export.serve import servable as servables
from export.serve.server import Server
from export.serve.settings import ServeSettings
from tests.bert_tf.ports import free_hosts
from tests.waiting import PATIENCE


def free_ports() -> list[int]:
    """Returns two different free ports."""
    return [int(host.rpartition(":")[2]) for host in free_hosts(2)]


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock a test can advance."""

    ahead = 0.0

    def time(self) -> float:
        """See `asyncio.AbstractEventLoop`."""
        return super().time() + self.ahead

    async def advance(self, seconds: float) -> None:
        """Advances the clock, and runs the callbacks that are then due."""
        self.ahead += seconds
        for _ in range(5):  # each iteration runs the callbacks that the previous one made ready
            await asyncio.sleep(0)


class Running:
    """A running server. Its clients use real sockets.

    Its deadlines are so long that they pass only if a test advances the clock. gRPC's own deadlines use a real clock.
    """

    def __init__(self, *flags: str):
        self.rest_port, self.grpc_port = free_ports()
        ports = [f"--rest_api_port={self.rest_port}", f"--port={self.grpc_port}"]
        patient = [f"--rest_api_timeout_in_ms={PATIENCE * 1000:.0f}", f"--shutdown_grace_seconds={PATIENCE}"]
        self.settings = parse(ServeSettings, ["--file_system_poll_wait_seconds=0.05", *patient, *ports, *flags])
        self._loop = Loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.server = Server(self.settings)
        try:
            self.wait(self.server.start())
        except BaseException:
            self.wait(self.server.stop())
            self.end()
            raise
        self._channel = grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}")
        self.predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def submit(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def wait(self, coroutine):
        return self.submit(coroutine).result(2 * PATIENCE)

    def advance(self, seconds: float) -> None:
        """Advances the server's clock."""
        self.wait(self._loop.advance(seconds))

    @property
    def requests(self) -> int:
        """Number of accepted requests without an answer."""
        return self.server._service.admission.requests

    @property
    def bodies(self) -> int:
        """Number of received bytes of the bodies of requests without an answer."""
        return self.server._service.admission._bytes

    @property
    def begun(self) -> int:
        """Number of runs of the signature `held` that have begun."""
        return self._run("default", "begun", 1)[0]

    def release(self, runs: int = 1, model: str = "default") -> None:
        """Ends this number of runs of `held`, including runs of abandoned requests."""
        self._run(model, "release", runs)

    def _run(self, model: str, signature: str, rows: int) -> np.ndarray:
        """Runs a model directly, without the limits of the server."""
        servable = self.server._models.latest(model).servable
        feeds, outputs = servables.plan_predict(servable, signature, {"x": np.zeros(rows, np.int32)})
        return servable.run(feeds, (outputs["y"],))[outputs["y"]]

    def stop(self) -> None:
        self.wait(self.server.stop())
        self.end()

    def end(self) -> None:
        """Ends the thread of a stopped server."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def http(self, method: str, path: str, body=None, headers=None) -> tuple[int, dict, bytes]:
        """Sends a request; returns status, headers and body. A body of another type than bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.rest_port}{path}"
        request = urllib.request.Request(url, data, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def post(self, path: str, body) -> tuple[int, dict]:
        status, _, answer = self.http("POST", path, body)
        return status, json.loads(answer)

    def get(self, path: str) -> tuple[int, dict]:
        status, _, answer = self.http("GET", path)
        return status, json.loads(answer)

    def predict(self, model: str, signature: str = "", timeout: float = PATIENCE, **inputs) -> dict[str, np.ndarray]:
        """Predicts over gRPC."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = model, signature
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        response = self.predictions.Predict(request, timeout=timeout, wait_for_ready=True)
        return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}

    def states(self, model: str) -> dict[int, str]:
        status, answer = self.get(f"/v1/models/{model}")
        assert status == 200, answer
        return {int(one["version"]): one["state"] for one in answer["model_version_status"]}


@contextlib.contextmanager
def running(*flags: str):
    """Runs a server during the test."""
    server = Running(*flags)
    try:
        yield server
    finally:
        server.stop()
