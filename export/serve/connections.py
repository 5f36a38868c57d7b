"""Limits the number of the REST interface's connections."""

import asyncio
import functools
import http
from collections.abc import Awaitable, Callable

from aiohttp import web

# Maximum number of bytes in the first line of a request, and in each header field.
_LARGEST_HEADER = 16 * 1024
# If a client still sends data after the answer, the server reads this data for the given time before it closes the
# connection. Otherwise the client might not get the answer.
_LINGERING_SECONDS = 1.0


class _Handler(web.RequestHandler):
    """Answers in JSON to bytes that are not an HTTP request."""

    def handle_error(self, request, status=500, exc=None, message=None) -> web.Response:
        """See `RequestHandler.handle_error`."""
        text = " ".join((message or http.HTTPStatus(status).phrase).split())
        response = web.json_response({"error": text}, status=status)
        response.force_close()
        return response


class Connections(web.Server):
    """Handles connections.

    A connection waits from its start, or from its last answer, until a request is complete. If a new connection exceeds
    the limit, the server closes the connection that has waited longest, so that slow clients exclude nobody. If no
    connection waits, the server closes the new connection.

    Args:
      handle: answers a request; it calls its second argument as soon as the whole request is there.
      most: maximum number of connections.
    """

    def __init__(self, handle: Callable[[web.BaseRequest, Callable], Awaitable[web.Response]], most: int):
        self._options = {
            "access_log": None, "max_line_size": _LARGEST_HEADER, "max_field_size": _LARGEST_HEADER,
            "lingering_time": _LINGERING_SECONDS,
        }  # fmt: skip
        super().__init__(self._handle, **self._options)
        self._answer = handle
        self._most = most
        self._open: dict[web.RequestHandler, asyncio.Transport] = {}
        self._waiting: dict[web.RequestHandler, None] = {}  # the longest wait comes first

    def __call__(self) -> web.RequestHandler:
        return _Handler(self, loop=asyncio.get_running_loop(), **self._options)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._open) >= self._most:
            longest = next(iter(self._waiting), None)
            if longest is None:
                transport.abort()
                return
            self._waiting.pop(longest)
            self._open.pop(longest).abort()  # at once, even if the client does not read
        self._open[handler] = transport
        self._waiting[handler] = None

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._open.pop(handler, None)
        self._waiting.pop(handler, None)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request, functools.partial(self._waiting.pop, request.protocol, None))
        finally:
            if request.protocol in self._open:
                self._waiting.pop(request.protocol, None)  # it becomes the last
                self._waiting[request.protocol] = None
