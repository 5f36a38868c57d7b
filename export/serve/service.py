"""The part of the server that REST and gRPC share: it limits and answers requests."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

from tensorflow_serving.apis import get_model_metadata_pb2

from export.serve.batching import Alone, Batcher
from export.serve.errors import Code, ServingError, from_exception, invalid
from export.serve.metrics import Metrics
from export.serve.models import Models
from export.serve.servable import Arrays, plan_predict
from export.serve.versions import Version

SIGNATURES = "signature_def"


class Admission:
    """Limits the memory of requests, by limiting their number and the total size of their bodies. A request counts from
    the moment at which its whole body is there, so slow clients take no places.
    `most_requests`: maximum number of requests at the same time.
    `most_bytes`: maximum total size of all bodies, including those that are arriving, in bytes."""

    def __init__(self, most_requests: int, most_bytes: int):
        self._most_requests = most_requests
        self._most_bytes = most_bytes
        self.requests = 0
        self._bytes = 0

    @contextlib.contextmanager
    def body(self) -> Iterator[Callable[[int], None]]:
        """Accounts for a body. Yields a function that must be called with the number of bytes of each received part of
        the body. The function raises `ServingError` (UNAVAILABLE) if the total size of all bodies exceeds the limit."""
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if self._bytes + count > self._most_bytes:
                raise ServingError(Code.UNAVAILABLE, "the server holds too many large requests; try again later")
            taken += count
            self._bytes += count

        try:
            yield take
        finally:
            self._bytes -= taken

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Admits a request whose body is complete.
        Raises ServingError: UNAVAILABLE if there are too many requests."""
        if self.requests >= self._most_requests:
            raise ServingError(Code.UNAVAILABLE, f"the server is busy with {self.requests} requests; try again later")
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1


class Service:
    """Answers inference and metadata requests of both APIs.
    `largest_bytes`: maximum size of a request's body, and of each decoded array of a request.
    `most_rows`: maximum number of rows in a request."""

    def __init__(self, models: Models, admission: Admission, metrics: Metrics, largest_bytes: int, most_rows: int):
        self.models = models
        self.admission = admission
        self.metrics = metrics
        self.largest_bytes = largest_bytes
        self._most_rows = most_rows

    async def infer(
        self,
        runner: Alone | Batcher,
        version: Version,
        signature_name: str,
        inputs: Arrays,
        seconds: float,
        output_filter: Iterable[str] = (),
    ) -> Arrays:
        """Answers a Predict request; returns arrays by output name. The computation ends after a number of seconds."""
        feeds, outputs = plan_predict(version.servable, signature_name, inputs, output_filter)
        rows = max((len(array) for array in feeds.values() if array.ndim), default=0)
        if rows > self._most_rows:
            raise invalid(f"the request has {rows} rows, more than {self._most_rows} (--max_request_rows)")
        arrays = await runner.run(version, feeds, tuple(outputs.values()), seconds)
        return {name: arrays[tensor] for name, tensor in outputs.items()}

    def metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """Returns the signatures of a version.
        Raises ServingError: the version does not exist, or the request asks for metadata other than signatures."""
        if set(request.metadata_field) != {SIGNATURES}:
            raise invalid(f"metadata_field must be {SIGNATURES}")
        version = self.models.version_of(request.model_spec)
        signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=version.servable.signatures)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = version.model
        response.model_spec.version.value = version.number
        response.metadata[SIGNATURES].Pack(signatures)
        return response

    @contextlib.contextmanager
    def counted(self, model: str, entrypoint: str) -> Iterator[None]:
        """Counts a Predict request with its status and time. Clients can choose any name for a model, so all names of
        unknown models share one count."""
        start, status = time.monotonic(), "OK"
        try:
            yield
        except BaseException as error:
            status = from_exception(error).code.name if isinstance(error, Exception) else Code.CANCELLED.name
            raise
        finally:
            served = model if model in self.models.names() else ""
            self.metrics.on_request(served, entrypoint, status, time.monotonic() - start)
