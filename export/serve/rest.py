"""The REST interface, with the paths, bodies and status codes of TF Serving."""

import asyncio
import contextlib
import re
import urllib.parse
from collections.abc import Callable

from aiohttp import web
from tensorflow_serving.apis import get_model_metadata_pb2, model_pb2

from export.serve import json_bodies, page
from export.serve.batching import Alone, Batcher
from export.serve.connections import UNKNOWN_ENCODING
from export.serve.errors import Code, ServingError, answer_to, invalid
from export.serve.servable import Arrays, Servable, find_signature
from export.serve.service import SIGNATURES, Service
from export.serve.settings import ServeSettings

_VERSION = r"(?:/versions/(\d{1,18}))?"
_POST = re.compile(rf"/v1/models/([^/:]+){_VERSION}:predict", re.IGNORECASE | re.ASCII)
_GET = re.compile(rf"/v1/models(?:/([^/:]+))?{_VERSION}(?:/(metadata))?", re.IGNORECASE | re.ASCII)
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}
# Bodies of more bytes than this are parsed in a thread, so that other requests do not wait.
_LARGE_BODY = 1 << 16
# Answers with more values than this are converted to JSON in a thread.
_LARGE_ANSWER = 1 << 14
METRICS_PATH = "/monitoring/prometheus/metrics"


class Rest:
    """Answers HTTP requests."""

    def __init__(self, service: Service, runner: Alone | Batcher, settings: ServeSettings):
        self._service, self._runner = service, runner
        self._timeout = settings.rest_api_timeout_in_ms / 1000
        self._cors, self._host = settings.rest_api_enable_cors_support, settings.host

    async def handle(self, request: web.BaseRequest, arrived: Callable) -> web.Response:
        """Computes and sends the answer to any request; calls `arrived` when the whole request is there."""
        with contextlib.ExitStack() as held:  # the request counts for `Admission` until the answer is sent
            response = await self._response(request, arrived, held)
            if self._cors:
                response.headers.update(_CORS)
            give_up = asyncio.get_running_loop().call_later(self._timeout, _abort, request)
            try:
                await response.prepare(request)
                await response.write_eof()
            finally:
                give_up.cancel()
            return response

    async def _response(self, request: web.BaseRequest, arrived: Callable, held: contextlib.ExitStack) -> web.Response:
        try:
            return await self._answer(request, arrived, held)
        except (asyncio.CancelledError, ConnectionError):
            raise  # the client has disconnected
        except Exception as error:
            answer = answer_to(error, f"{request.method} {request.rel_url.raw_path}")
            response = _json(json_bodies.error(answer.message), answer.http_status)
            if not request.content.at_eof():  # the rest of the body is not read
                response.force_close()
            return response

    async def _answer(self, request: web.BaseRequest, arrived: Callable, held: contextlib.ExitStack) -> web.Response:
        path, target = request.rel_url.raw_path, _target(request)
        if path == METRICS_PATH and request.method == "GET":
            return web.Response(body=self._service.metrics.page(), content_type="text/plain")
        if path == "/" and request.method in ("GET", "HEAD"):
            if not page.is_own_host(request.host, self._host):
                raise ServingError(Code.PERMISSION_DENIED, f"the page does not answer to the name {request.host[:100]}")
            return await self._page()
        if not path.lower().startswith("/v1/"):
            raise ServingError(Code.NOT_FOUND, f"not found: {path}")
        if request.method == "OPTIONS" and self._cors:
            return web.Response()
        if request.method == "POST" and (match := _POST.fullmatch(target)):
            return await self._post(request, _spec(*match.groups()), arrived, held)
        if request.method == "GET" and (match := _GET.fullmatch(target)):
            return self._get(_spec(*match.groups()[:2]), is_metadata=match[3] is not None)
        raise invalid(f"no such call: {request.method} {target}")

    async def _page(self) -> web.Response:
        versions = [version for name in self._service.models.names() if (version := self._service.models.latest(name))]
        labels = {version.model: await asyncio.to_thread(page.read_labels, version.folder) for version in versions}
        return web.Response(body=page.render(labels), content_type="text/html", charset="utf-8", headers=page.HEADERS)

    def _get(self, spec: model_pb2.ModelSpec, is_metadata: bool) -> web.Response:
        if not is_metadata:
            return _json(json_bodies.message(self._service.models.status(spec)))
        request = get_model_metadata_pb2.GetModelMetadataRequest(model_spec=spec, metadata_field=[SIGNATURES])
        return _json(json_bodies.metadata(self._service.metadata(request)))

    async def _post(
        self, request: web.BaseRequest, spec: model_pb2.ModelSpec, arrived: Callable, held: contextlib.ExitStack
    ) -> web.Response:
        with self._service.counted(spec.name, "REST"):
            take = held.enter_context(self._service.admission.body())
            try:
                body = await asyncio.wait_for(self._body(request, take), self._timeout)
            except asyncio.TimeoutError as error:
                message = "the request's body did not arrive in time"
                raise ServingError(Code.DEADLINE_EXCEEDED, message, http_status=408) from error
            arrived()
            held.enter_context(self._service.admission.request())
            try:
                return _json(await asyncio.wait_for(self._predict(spec, body), self._timeout))
            except asyncio.TimeoutError as error:
                message = f"no answer within {self._timeout * 1000:.0f} ms (--rest_api_timeout_in_ms)"
                raise ServingError(Code.DEADLINE_EXCEEDED, message) from error

    async def _body(self, request: web.BaseRequest, take: Callable[[int], None]) -> bytes:
        chunks, size = [], 0
        self._check_size(request.content_length or 0)
        if request.headers.get("Content-Encoding", "").lower() not in ("", "identity", "gzip", "deflate"):
            raise ServingError(Code.INVALID_ARGUMENT, UNKNOWN_ENCODING, http_status=415)
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # these bytes are not part of the answer
        try:
            async for chunk in request.content.iter_any():
                size += len(chunk)
                self._check_size(size)
                take(len(chunk))
                chunks.append(chunk)
        except web.RequestPayloadError as error:  # the body contradicts Content-Encoding or Transfer-Encoding
            raise invalid("the request's body cannot be decoded") from error
        return b"".join(chunks)

    def _check_size(self, size: int) -> None:
        if size > self._service.largest_bytes:
            message = f"the request's body is larger than {self._service.largest_bytes} bytes (--max_request_mb)"
            raise ServingError(Code.RESOURCE_EXHAUSTED, message, http_status=413)

    async def _predict(self, spec: model_pb2.ModelSpec, body: bytes) -> bytes:
        with self._service.models.version_of(spec) as version:
            if len(body) > _LARGE_BODY:
                name, inputs, by_rows = await asyncio.to_thread(_read, body, version.servable)
            else:
                name, inputs, by_rows = _read(body, version.servable)
            outputs = await self._service.infer(self._runner, version, name, inputs, self._timeout)
            if sum(array.size for array in outputs.values()) > _LARGE_ANSWER:
                return await asyncio.to_thread(json_bodies.predictions, outputs, by_rows)
            return json_bodies.predictions(outputs, by_rows)


def _read(body: bytes, servable: Servable) -> tuple[str, Arrays, bool]:
    """Returns the name of the signature, the arrays, and whether the request lists rows."""
    document = json_bodies.parse(body)
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid("signature_name must be a string")
    signature = find_signature(servable, name)
    if not signature.inputs:
        raise invalid("the signature has no inputs")
    return name, *json_bodies.predict_inputs(document, signature.inputs)


def _target(request: web.BaseRequest) -> str:
    """Returns the path and the query as the client sent them. `_POST` and `_GET` match both, so a query is refused."""
    sent = request.raw_path
    return sent if sent.startswith("/") else request.rel_url.raw_path_qs  # some proxies send a whole URL


def _spec(name: str | None, version: str | None) -> model_pb2.ModelSpec:
    """Returns the model and version that a URL names. The server never uses the name as a file path."""
    try:
        spec = model_pb2.ModelSpec(name=urllib.parse.unquote(name or "", errors="strict"))
    except UnicodeDecodeError as error:
        raise invalid("the path is not UTF-8") from error
    if version:
        spec.version.value = int(version)
    return spec


def _abort(request: web.BaseRequest) -> None:
    """Closes the connection of a client that does not read the answer."""
    if request.transport is not None:
        request.transport.abort()


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
