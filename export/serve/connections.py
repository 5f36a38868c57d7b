"""Limits the number and the idle time of the REST interface's connections."""

import asyncio
import functools
import http
import math
from collections.abc import Awaitable, Callable

from aiohttp import web

# Maximum number of bytes in the first line of a request, and in each header field.
_LARGEST_HEADER = 16 * 1024
# If a client still sends data after the answer, the server reads this data for the given time before it closes the
# connection. Otherwise the client might not get the answer.
_LINGERING_SECONDS = 1.0
# Turns off aiohttp's own limit of the idle time, because this limit has no effect on clients that do not read.
_NO_LIMIT = 10.0**9
# Key of a request's entry: the function to call as soon as the whole request is there.
ARRIVED = "arrived"


class _Handler(web.RequestHandler):
    """Answers in JSON to bytes that are not an HTTP request."""

    def handle_error(self, request, status=500, exc=None, message=None) -> web.Response:
        """See `RequestHandler.handle_error`."""
        text = " ".join((message or http.HTTPStatus(status).phrase).split())
        response = web.json_response({"error": text}, status=status)
        response.force_close()
        return response


class Connections(web.Server):
    """Handles connections, and closes connections that wait too long for a request.

    A connection waits from its start, or from its last answer, until a request is complete; for the request's header,
    it waits a limited time. If a new connection exceeds the limit, the server closes the connection that has waited
    longest. If no connection waits, the server closes the new connection.

    Args:
      most: maximum number of connections.
    """

    def __init__(
        self, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], most: int, idle_seconds: float
    ):
        self._options = {
            "access_log": None, "max_line_size": _LARGEST_HEADER, "max_field_size": _LARGEST_HEADER,
            "keepalive_timeout": _NO_LIMIT, "lingering_time": _LINGERING_SECONDS,
        }  # fmt: skip
        super().__init__(self._handle, **self._options)
        self._answer = handle
        self._most = most
        self._idle_seconds = idle_seconds
        self._open: dict[web.RequestHandler, asyncio.Transport] = {}
        self._waiting: dict[web.RequestHandler, float] = {}  # start times of the waits; the longest wait comes first
        self._close_idle()

    def __call__(self) -> web.RequestHandler:
        return _Handler(self, loop=asyncio.get_running_loop(), **self._options)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._open) >= self._most:
            longest = next(iter(self._waiting), None)
            if longest is None:
                transport.abort()
                return
            self._abort(longest)
        self._open[handler] = transport
        self._wait(handler)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._open.pop(handler, None)
        self._waiting.pop(handler, None)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._waiting[request.protocol] = math.inf  # it keeps its place; `Rest` limits the time for the body
        request[ARRIVED] = functools.partial(self._waiting.pop, request.protocol, None)
        try:
            return await self._answer(request)
        finally:
            if request.protocol in self._open:
                self._wait(request.protocol)

    def _wait(self, handler: web.RequestHandler) -> None:
        self._waiting.pop(handler, None)  # it becomes the last
        self._waiting[handler] = asyncio.get_running_loop().time()

    def _abort(self, handler: web.RequestHandler) -> None:
        """Closes a connection at once, even if the client does not read."""
        del self._waiting[handler]
        self._open.pop(handler).abort()

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        latest = loop.time() - self._idle_seconds
        for handler in [handler for handler, since in self._waiting.items() if since < latest]:
            self._abort(handler)
        loop.call_later(min(1.0, self._idle_seconds / 4), self._close_idle)
