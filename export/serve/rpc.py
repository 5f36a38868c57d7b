"""The gRPC interface: PredictionService, ModelService, and the health service."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from export import warmup
from export.serve import tensors
from export.serve.batching import Alone, Batcher
from export.serve.connections import Places
from export.serve.errors import Code, ServingError, answer_to, invalid
from export.serve.service import Service
from export.serve.settings import ServeSettings

# Space for the parts of a message that are not tensors.
_OVERHEAD_BYTES = 1 << 20
# Time after which a connection without a request closes, and a request without a complete message ends.
_IDLE_SECONDS = 75
# Maximum age of a connection. This limit ends connections that no other limit ends, for example if a client does not
# read its responses. A client that reads does not notice this limit, because its next request opens a new connection.
_OLDEST_CONNECTION_SECONDS = 3600
_PING_ANSWER_SECONDS = 20
_MOST_PENDING = 1 << 17
_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


def make_server(service: Service, runner: Alone | Batcher, settings: ServeSettings) -> grpc.aio.Server:
    """Returns a server with PredictionService and ModelService, but without a port.
    `settings`: the flags. `--grpc_channel_arguments` overrides limits that other flags set."""
    idle_ms = _IDLE_SECONDS * 1000
    options = {
        "grpc.max_receive_message_length": (settings.max_request_mb << 20) + _OVERHEAD_BYTES,
        "grpc.max_send_message_length": -1,
        "grpc.so_reuseport": 0,  # a second server on the same port is an error
        "grpc.max_allowed_incoming_connections": settings.max_connections,
        # Beyond these numbers, gRPC would cancel requests at random; `_Messages` refuses them with UNAVAILABLE.
        "grpc.server.max_pending_requests": _MOST_PENDING,
        "grpc.server.max_pending_requests_hard_limit": _MOST_PENDING,
        "grpc.server_handshake_timeout_ms": idle_ms,
        "grpc.max_connection_idle_ms": idle_ms,
        "grpc.max_connection_age_ms": _OLDEST_CONNECTION_SECONDS * 1000,
        "grpc.max_connection_age_grace_ms": idle_ms,
        "grpc.keepalive_time_ms": idle_ms,  # pings detect clients whose machine has failed
        "grpc.keepalive_timeout_ms": _PING_ANSWER_SECONDS * 1000,
    }
    server = grpc.aio.server(
        options=list((options | settings.channel_arguments).items()),
        interceptors=[_Messages(Places(2 * settings.max_requests_in_flight))],
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_PredictionService(service, runner), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(_ModelService(service), server)
    return server


class _Messages(grpc.aio.ServerInterceptor):
    """Reads the message of each request: in limited time, for a limited number of requests, and without a traceback.
    gRPC itself would wait for ever, cancel further requests, and log each message that it cannot decode.
    `places`: for requests, including those whose message is arriving. `Admission` has a lower limit for requests with a
      message."""

    def __init__(self, places: Places):
        self._places = places

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
            reading = asyncio.ensure_future(_only(messages))
            try:
                self._places.take(reading, reading.cancel)
                message = await asyncio.wait_for(reading, _IDLE_SECONDS)
                self._places.arrived(reading)
                return await handler.unary_unary(handler.request_deserializer(message), context)
            except asyncio.CancelledError:
                if reading in self._places.ends:  # the client has cancelled the request
                    raise
                return _refuse(context, ServingError(Code.UNAVAILABLE, "the server is busy; try again later"))
            except (asyncio.TimeoutError, StopAsyncIteration):
                text = "The request did not arrive completely in time"
                return _refuse(context, ServingError(Code.DEADLINE_EXCEEDED, text))
            except DecodeError:
                return _refuse(context, invalid("The request is not a message of this method"))
            finally:
                self._places.leave(reading)

        return grpc.stream_unary_rpc_method_handler(answer, None, handler.response_serializer)


def _refuse(context: grpc.aio.ServicerContext, error: ServingError) -> None:
    """Sets the status of a request. `context.abort` would keep the request in a reference cycle."""
    context.set_code(_STATUS_CODES[error.code])
    context.set_details(error.message)


async def _only(messages: AsyncIterator[bytes]) -> bytes:
    """Returns the message of a stream; reads to the stream's end, because gRPC keeps the message until then."""
    message = await anext(messages)
    await anext(messages, None)
    return message


async def add_health(server: grpc.aio.Server) -> health.aio.HealthServicer:
    """Adds gRPC's health service, for the server as a whole and for each service."""
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for name in ("tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    return servicer


def _answered(call: Callable[[Any, Message], Awaitable[Message]]) -> Callable:
    """Converts a method to an RPC handler. An exception in the method becomes the status of the RPC."""

    async def answer(self, request: Message, context: grpc.aio.ServicerContext) -> Message | None:
        try:
            return await call(self, request, context)
        except Exception as error:
            return _refuse(context, answer_to(error, "a gRPC request"))

    return answer


class _PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, service: Service, runner: Alone | Batcher):
        self._service = service
        self._runner = runner

    @_answered
    async def Predict(
        self, request: predict_pb2.PredictRequest, context: grpc.aio.ServicerContext
    ) -> predict_pb2.PredictResponse:
        service, spec, seconds = self._service, request.model_spec, context.time_remaining() or math.inf
        with service.counted(spec.name, "gRPC"), service.admission.request(), service.admission.body() as take:
            take(request.ByteSize())
            with service.models.version_of(spec) as version:
                inputs = {
                    name: tensors.from_proto(name, tensor, service.largest_bytes)
                    for name, tensor in request.inputs.items()
                }
                outputs = await service.infer(
                    self._runner, version, spec.signature_name, inputs, seconds, request.output_filter
                )
                response = predict_pb2.PredictResponse()
                for name, array in outputs.items():
                    response.outputs[name].CopyFrom(tensors.to_proto(array))
                response.model_spec.name = spec.name
                response.model_spec.version.value = version.number
                response.model_spec.signature_name = spec.signature_name or warmup.DEFAULT_SIGNATURE
                return response

    @_answered
    async def GetModelMetadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest, context: grpc.aio.ServicerContext
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        return self._service.metadata(request)

    @_answered
    async def Classify(self, request: Message, context: grpc.aio.ServicerContext) -> Message:
        raise ServingError(Code.UNIMPLEMENTED, "only Predict is answered; call Predict with signature_name=examples")

    Regress = MultiInference = Classify


class _ModelService(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, service: Service):
        self._service = service

    @_answered
    async def GetModelStatus(
        self, request: get_model_status_pb2.GetModelStatusRequest, context: grpc.aio.ServicerContext
    ) -> get_model_status_pb2.GetModelStatusResponse:
        return self._service.models.status(request.model_spec)
