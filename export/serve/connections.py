"""The connections of the REST interface: their number and the time that they may idle are bounded."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

# Limit of bytes for lines and fields of a header.
_LARGEST_HEADER = 16 * 1024
# Seconds of reading what a client still sends after its answer, so that the client can read the answer.
_LINGERING_SECONDS = 1.0
# aiohttp's own limit does not count clients that do not read.
_NO_LIMIT = 10.0**9


class Connections(web.Server):
    """Makes a protocol for each connection, and closes those that wait for a request for too long.

    A connection waits from its beginning, or from its last answer, until a request's header is complete. So slow
    headers count as waiting. If there are too many connections, the one that has waited longest is closed for a new
    one, or the new one if none waits.

    Args:
      handle: answers a request, and sends the answer.
      most: number of connections.
      idle_seconds: that a connection may wait.
    """

    def __init__(
        self, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], most: int, idle_seconds: float
    ):
        super().__init__(
            self._handle, access_log=None, max_line_size=_LARGEST_HEADER, max_field_size=_LARGEST_HEADER,
            keepalive_timeout=_NO_LIMIT, lingering_time=_LINGERING_SECONDS,
        )  # fmt: skip
        self._answer = handle
        self._most = most
        self._idle_seconds = idle_seconds
        self._open: dict[web.RequestHandler, asyncio.Transport] = {}
        self._waiting: dict[web.RequestHandler, float] = {}  # since when; who has waited longest comes first
        self._close_idle()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Counts a connection."""
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
        """Forgets a connection."""
        super().connection_lost(handler, exc)
        self._open.pop(handler, None)
        self._waiting.pop(handler, None)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._waiting.pop(request.protocol, None)
        try:
            return await self._answer(request)
        finally:
            if request.protocol in self._open:
                self._wait(request.protocol)

    def _wait(self, handler: web.RequestHandler) -> None:
        self._waiting[handler] = asyncio.get_running_loop().time()

    def _abort(self, handler: web.RequestHandler) -> None:
        """Closes a connection even if its client does not read what was sent."""
        del self._waiting[handler]
        self._open.pop(handler).abort()

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        latest = loop.time() - self._idle_seconds
        for handler in [handler for handler, since in self._waiting.items() if since < latest]:
            self._abort(handler)
        loop.call_later(min(1.0, self._idle_seconds / 4), self._close_idle)
