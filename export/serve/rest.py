"""The REST interface, with the paths, bodies, status codes and errors of TF Serving."""

import asyncio
import contextlib
import re
import urllib.parse
from collections.abc import Callable
from typing import Any

from absl import logging
from aiohttp import web
from google.protobuf.message import Message
from tensorflow_serving.apis import get_model_metadata_pb2, model_pb2

from export.serve import inference, json_answers, json_requests, page
from export.serve.errors import Code, ServingError, from_exception, invalid
from export.serve.running import Runner
from export.serve.service import SIGNATURES, Service
from export.serve.settings import ServeSettings

_VERSION = r"(?:(?:/versions/(\d+))|(?:/labels/([^/:]+)))?"
_POST = re.compile(rf"/v1/models/([^/:]+){_VERSION}:(classify|regress|predict)", re.IGNORECASE | re.ASCII)
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
_LARGEST_VERSION = 2**63 - 1


class Rest:
    """Answers HTTP requests.

    Args:
      service: answers calls.
      runner: runs models for REST.
      settings: the flags.
      metrics_path: URL path of the metrics; "" if metrics are not enabled.
    """

    def __init__(self, service: Service, runner: Runner, settings: ServeSettings, metrics_path: str):
        self._service, self._runner, self._metrics_path = service, runner, metrics_path
        self._timeout = settings.rest_api_timeout_in_ms / 1000
        self._cors = settings.rest_api_enable_cors_support

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Computes and sends the answer to any request."""
        with contextlib.ExitStack() as held:  # the request counts for `Admission` until the answer is sent
            response = await self._response(request, held)
            if self._cors:
                response.headers.update(_CORS)
            if self._service.draining:
                response.force_close()
            give_up = asyncio.get_running_loop().call_later(self._timeout, _abort, request)
            try:
                await response.prepare(request)
                await response.write_eof()
            finally:
                give_up.cancel()
            return response

    async def _response(self, request: web.BaseRequest, held: contextlib.ExitStack) -> web.Response:
        try:
            return await self._answer(request, held)
        except (asyncio.CancelledError, ConnectionError):
            raise  # the client has disconnected
        except Exception as error:
            known = from_exception(error)
            if known.code in (Code.INTERNAL, Code.UNKNOWN) and not isinstance(error, ServingError):
                logging.exception("%s %s failed", request.method, request.rel_url.raw_path)
            response = _json(json_answers.error(known.message), known.http_status)
            if not request.content.at_eof():  # the rest of the body is not read
                response.force_close()
            return response

    async def _answer(self, request: web.BaseRequest, held: contextlib.ExitStack) -> web.Response:
        path, target = request.rel_url.raw_path, _target(request)
        if path == self._metrics_path:
            return self._metrics(target)
        if path == "/" and request.method in ("GET", "HEAD"):
            return await self._page()
        if not path.lower().startswith("/v1/"):
            raise ServingError(Code.NOT_FOUND, f"Not found: {path}")
        if request.method == "OPTIONS" and self._cors:
            return web.Response()
        if request.method == "POST" and (match := _POST.fullmatch(target)):
            return await self._post(request, _spec(*match.groups()[:3]), match[4].lower(), held)
        if request.method == "GET" and (match := _GET.fullmatch(target)):
            return self._get(_spec(*match.groups()[:3]), is_metadata=match[4] is not None)
        raise invalid(f"Malformed request: {request.method} {target}")

    def _metrics(self, target: str) -> web.Response:
        if target != self._metrics_path:
            message = f"Unexpected path: {target}. Should be {self._metrics_path}"
            return web.Response(text=message, status=invalid(message).http_status)
        return web.Response(body=self._service.metrics.page(), content_type="text/plain")

    async def _page(self) -> web.Response:
        versions = [version for name in self._service.models.names() if (version := self._service.models.latest(name))]
        labels = {version.model: await asyncio.to_thread(page.read_labels, version.folder) for version in versions}
        return web.Response(body=page.render(labels), content_type="text/html", charset="utf-8", headers=page.HEADERS)

    def _get(self, spec: model_pb2.ModelSpec, is_metadata: bool) -> web.Response:
        if not spec.name:
            raise invalid("Missing model name in request.")
        if not is_metadata:
            return _json(json_answers.status(self._service.models.status(spec)))
        request = get_model_metadata_pb2.GetModelMetadataRequest(model_spec=spec, metadata_field=[SIGNATURES])
        return _json(json_answers.metadata(self._service.metadata(request)))

    async def _post(
        self, request: web.BaseRequest, spec: model_pb2.ModelSpec, method: str, held: contextlib.ExitStack
    ) -> web.Response:
        with self._service.counted(spec.name, method, "REST"):
            take = held.enter_context(self._service.admission.request())
            try:
                body = await asyncio.wait_for(self._body(request, take), self._timeout)
            except asyncio.TimeoutError as error:
                message = "Timed out while reading the request's body"
                raise ServingError(Code.DEADLINE_EXCEEDED, message, http_status=408) from error
            call = {"predict": self._predict, "classify": self._classify, "regress": self._regress}[method]
            try:
                return _json(await asyncio.wait_for(call(spec, body), self._timeout))
            except asyncio.TimeoutError as error:
                message = f"Deadline exceeded: no answer within {self._timeout * 1000:.0f} ms"
                raise ServingError(Code.DEADLINE_EXCEEDED, message) from error

    async def _body(self, request: web.BaseRequest, take: Callable[[int], None]) -> bytes:
        chunks, size = [], request.content_length or 0
        self._check_size(size)
        size = 0
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
            raise invalid("The request's body cannot be decoded") from error
        return b"".join(chunks)

    def _check_size(self, size: int) -> None:
        if size > self._service.largest_bytes:
            message = f"The request's body is larger than {self._service.largest_bytes} bytes (--max_request_mb)"
            raise ServingError(Code.RESOURCE_EXHAUSTED, message, http_status=413)

    async def _predict(self, spec: model_pb2.ModelSpec, body: bytes) -> bytes:
        with self._service.models.find(spec) as version:
            read = await _parsed(body, lambda: _read_predict(json_requests.parse(body), version.servable.signatures))
            name, inputs, by_rows = read
            answer = await self._service.infer(
                self._runner, spec, lambda servable: inference.plan_predict(servable, name, inputs), version
            )
            values = sum(array.size for array in answer.result.values())
            if values > _LARGE_ANSWER:
                return await asyncio.to_thread(json_answers.predictions, answer.result, by_rows)
            return json_answers.predictions(answer.result, by_rows)

    async def _classify(self, spec: model_pb2.ModelSpec, body: bytes) -> bytes:
        name, examples = await _parsed(body, lambda: _read_examples(json_requests.parse(body)))
        answer = await self._service.infer(
            self._runner, spec, lambda servable: inference.plan_classify(servable, name, examples)
        )
        return json_answers.classifications(answer.result)

    async def _regress(self, spec: model_pb2.ModelSpec, body: bytes) -> bytes:
        name, examples = await _parsed(body, lambda: _read_examples(json_requests.parse(body)))
        answer = await self._service.infer(
            self._runner, spec, lambda servable: inference.plan_regress(servable, name, examples)
        )
        return json_answers.regressions(answer.result)


def _read_predict(document: dict[str, Any], signatures) -> tuple[str, dict, bool]:
    name = json_requests.signature_name(document)
    signature = signatures.get(name or inference.DEFAULT_SIGNATURE)
    if signature is None:
        raise invalid(f'Serving signature name: "{name or inference.DEFAULT_SIGNATURE}" not found in signature def')
    if not signature.inputs:
        raise invalid(f"Failed to get input map for signature: {name or 'DEFAULT'}")
    return name, *json_requests.predict_inputs(document, signature.inputs)


def _read_examples(document: dict[str, Any]) -> tuple[str, Message]:
    return json_requests.signature_name(document), json_requests.examples(document)


async def _parsed(body: bytes, read: Callable[[], tuple]) -> tuple:
    return await asyncio.to_thread(read) if len(body) > _LARGE_BODY else read()


def _target(request: web.BaseRequest) -> str:
    """Returns the path and the query as the client sent them. As in TF Serving, `_POST` and `_GET` match both."""
    sent = request.raw_path
    return sent if sent.startswith("/") else request.rel_url.raw_path_qs  # some proxies send a whole URL


def _spec(name: str | None, version: str | None, label: str | None) -> model_pb2.ModelSpec:
    """Returns the model, version or label that a URL names. The server never uses the name as a file path."""
    try:
        spec = model_pb2.ModelSpec(name=urllib.parse.unquote(name or "", errors="strict"))
        if label:
            spec.version_label = urllib.parse.unquote(label, errors="strict")
    except UnicodeDecodeError as error:
        raise invalid("Malformed request: the path is not UTF-8") from error
    if version:
        if len(version) > 19 or int(version) > _LARGEST_VERSION:
            raise invalid(f"Failed to convert version: {version[:100]} to numeric.")
        spec.version.value = int(version)
    return spec


def _abort(request: web.BaseRequest) -> None:
    """Closes the connection of a client that does not read the answer."""
    if request.transport is not None:
        request.transport.abort()


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
