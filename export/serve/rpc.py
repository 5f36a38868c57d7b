"""The gRPC interface: PredictionService, ModelService, and the health service."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from absl import logging
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from export.serve import rpc_limits, tensors
from export.serve.errors import Code, ServingError, from_exception
from export.serve.running import Runner
from export.serve.service import Service
from export.serve.settings import ServeSettings

_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


def make_server(service: Service, runner: Runner, settings: ServeSettings) -> grpc.aio.Server:
    """Returns a server with PredictionService and ModelService, but without a port.

    Args:
      service: answers calls.
      runner: runs models for gRPC.
      settings: the flags.
    """
    server = rpc_limits.make_server(settings)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_PredictionService(service, runner), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(_ModelService(service), server)
    return server


class Health:
    """gRPC's health service, for the server as a whole and for each service."""

    _NAMES = ("", "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService")

    def __init__(self, server: grpc.aio.Server):
        self._servicer = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def set_serving(self, serving: bool) -> None:
        """Reports whether the server accepts requests."""
        status = health_pb2.HealthCheckResponse
        for name in self._NAMES:
            await self._servicer.set(name, status.SERVING if serving else status.NOT_SERVING)


def _answered(call: Callable[[Any, Message], Awaitable[Message]]) -> Callable:
    """Converts a method to an RPC handler. An exception in the method becomes the status of the RPC."""

    async def answer(self, request: Message, context: grpc.aio.ServicerContext) -> Message:
        try:
            return await call(self, request)
        except Exception as error:
            known = from_exception(error)
            if known.code in (Code.INTERNAL, Code.UNKNOWN) and not isinstance(error, ServingError):
                logging.exception("a gRPC request failed")
            await context.abort(_STATUS_CODES[known.code], known.message)

    return answer


class _PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, service: Service, runner: Runner):
        self._service = service
        self._runner = runner

    @_answered
    async def Predict(self, request: predict_pb2.PredictRequest) -> predict_pb2.PredictResponse:
        service, spec = self._service, request.model_spec
        with service.counted(spec.name, "gRPC"), service.admission.request() as take:
            take(request.ByteSize())
            with service.models.find(spec) as version:
                inputs = {
                    name: tensors.from_proto(name, tensor, service.largest_bytes)
                    for name, tensor in request.inputs.items()
                }
                answer = await service.infer(self._runner, version, spec.signature_name, inputs, request.output_filter)
                response = predict_pb2.PredictResponse()
                for name, array in answer.outputs.items():
                    response.outputs[name].CopyFrom(tensors.to_proto(array))
                response.model_spec.name = spec.name
                response.model_spec.version.value = answer.version
                response.model_spec.signature_name = answer.signature_name
                return response

    @_answered
    async def GetModelMetadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        return self._service.metadata(request)


class _ModelService(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, service: Service):
        self._service = service

    @_answered
    async def GetModelStatus(
        self, request: get_model_status_pb2.GetModelStatusRequest
    ) -> get_model_status_pb2.GetModelStatusResponse:
        return self._service.models.status(request.model_spec)
