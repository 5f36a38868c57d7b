"""Limits the number of REST connections and gRPC calls, so that slow clients exclude nobody."""

import asyncio
import contextlib
import functools
import http
from collections.abc import Awaitable, Callable, Hashable

from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError

# Maximum number of bytes in the first line of a request, and in each header field.
_LARGEST_HEADER = 16 * 1024
# If a client still sends data after the answer, the server reads this data for the given time before it closes the
# connection. Otherwise the client might not get the answer.
_LINGERING_SECONDS = 1.0
UNKNOWN_ENCODING = "the Content-Encoding is not supported; send gzip, deflate, or no Content-Encoding"


class Places:
    """A limited number of places for connections or calls. A connection or call waits until its request is complete. If
    all places are taken, the one that has waited longest gives way to a new one. If none waits, the new one gives way.
    """

    def __init__(self, most: int):
        self._most = most
        self.ends: dict[Hashable, Callable[[], object]] = {}  # in the order in which the waits began
        self._complete: set[Hashable] = set()

    def take(self, one: Hashable, end: Callable[[], object]) -> None:
        self.ends[one] = end
        if len(self.ends) > self._most:  # ends the new one, if no other waits
            self.ends.pop(next(each for each in self.ends if each not in self._complete))()

    def arrived(self, one: Hashable) -> None:
        self._complete.add(one)

    def wait(self, one: Hashable) -> None:
        self._complete.discard(one)
        if one in self.ends:
            self.ends[one] = self.ends.pop(one)

    def leave(self, one: Hashable) -> None:
        self.ends.pop(one, None)
        self._complete.discard(one)


class _Handler(web.RequestHandler):
    """Answers in JSON to bytes that are not an HTTP request, and answers clients that have ended their sending half."""

    def eof_received(self) -> bool:
        """Keeps the connection until its last request is answered, if this request is complete."""
        if self._waiter is None or self._waiter.done():  # a request has begun
            with contextlib.suppress(HttpProcessingError):  # the rest of the request's body is missing
                self._parser.feed_eof()
                self.close()
                return True
        return False

    def handle_error(self, request, status=500, exc=None, message=None) -> web.Response:
        """See `RequestHandler.handle_error`."""
        if isinstance(exc, ContentEncodingError):  # an encoding for which this machine lacks a package
            status, message = 415, UNKNOWN_ENCODING
        text = " ".join((message or http.HTTPStatus(status).phrase).split())
        response = web.json_response({"error": text}, status=status)
        response.force_close()
        return response


class Connections(web.Server):
    """Handles connections. A connection waits from its start, or from its last answer, until a request is complete.
    `handle`: answers a request; it calls its second argument as soon as the whole request is there.
    `most`: maximum number of connections."""

    def __init__(self, handle: Callable[[web.BaseRequest, Callable], Awaitable[web.Response]], most: int):
        self._options = {
            "access_log": None, "max_line_size": _LARGEST_HEADER, "max_field_size": _LARGEST_HEADER,
            "lingering_time": _LINGERING_SECONDS,
        }  # fmt: skip
        super().__init__(self._handle, **self._options)
        self._answer = handle
        self._places = Places(most)

    def __call__(self) -> web.RequestHandler:
        return _Handler(self, loop=asyncio.get_running_loop(), **self._options)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._places.take(handler, transport.abort)  # ends at once, even if the client does not read

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._places.leave(handler)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request, functools.partial(self._places.arrived, request.protocol))
        finally:
            self._places.wait(request.protocol)
