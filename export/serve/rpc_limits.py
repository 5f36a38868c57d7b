"""The limits of the gRPC interface for messages, requests, connections and slow clients."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc

from export.serve.settings import ServeSettings

# Space for the parts of a message that are not tensors.
_OVERHEAD_BYTES = 1 << 20
# Maximum age of a connection. This limit ends connections that no other limit ends, for example if a client does not
# read its responses. A client that reads does not notice this limit, because its next request opens a new connection.
_OLDEST_CONNECTION_SECONDS = 3600
_PING_ANSWER_SECONDS = 20


def make_server(settings: ServeSettings) -> grpc.aio.Server:
    """Returns a server without services or ports. `--grpc_channel_arguments` overrides limits that other flags set."""
    idle_ms = int(settings.idle_timeout_seconds * 1000)
    options = {
        "grpc.max_receive_message_length": (settings.max_request_mb << 20) + _OVERHEAD_BYTES,
        "grpc.max_send_message_length": -1,
        "grpc.so_reuseport": 0,  # a second server on the same port is an error
        "grpc.max_allowed_incoming_connections": settings.max_connections,
        "grpc.server_handshake_timeout_ms": idle_ms,
        "grpc.max_connection_idle_ms": idle_ms,
        "grpc.max_connection_age_ms": _OLDEST_CONNECTION_SECONDS * 1000,
        "grpc.max_connection_age_grace_ms": idle_ms,
        "grpc.keepalive_time_ms": idle_ms,  # pings detect clients whose machine has failed
        "grpc.keepalive_timeout_ms": _PING_ANSWER_SECONDS * 1000,
    }
    return grpc.aio.server(
        options=list((options | settings.channel_arguments).items()),
        maximum_concurrent_rpcs=2 * settings.max_requests_in_flight,  # a second limit: `Admission` has a lower one
        interceptors=[_MessageTimeout(settings.idle_timeout_seconds)],
    )


class _MessageTimeout(grpc.aio.ServerInterceptor):
    """Ends a request if its message does not arrive in time. Without this class, gRPC would wait forever."""

    def __init__(self, seconds: float):
        self._seconds = seconds

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming or handler.response_streaming:
            return handler

        # Read the request as a stream of one message, because the server can then wait for the message with a timeout.
        # The client sees no difference.
        async def answer(messages, context):
            try:
                request = await asyncio.wait_for(anext(messages), self._seconds)
            except (asyncio.TimeoutError, StopAsyncIteration):
                code = grpc.StatusCode.DEADLINE_EXCEEDED
                await context.abort(code, "The request did not arrive completely in time")
            return await handler.unary_unary(request, context)

        return grpc.stream_unary_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)
