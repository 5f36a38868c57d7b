"""The gRPC interface: PredictionService, ModelService, and the health service."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
from absl import logging
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)  # fmt: skip

from export.serve import inference, rpc_limits, tensors
from export.serve.errors import Code, ServingError, from_exception, invalid
from export.serve.models import check_reload_paths
from export.serve.running import Runner
from export.serve.service import Answer, Service
from export.serve.settings import ServeSettings

_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


def make_server(
    service: Service, runner: Runner, reload_roots: Sequence[str], settings: ServeSettings
) -> grpc.aio.Server:
    """Returns a server with PredictionService and ModelService, but without a port.

    Args:
      service: answers calls.
      runner: runs models for gRPC.
      reload_roots: folders from which HandleReloadConfigRequest may add models.
      settings: the flags.
    """
    server = rpc_limits.make_server(settings)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_PredictionService(service, runner), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(_ModelService(service, reload_roots), server)
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
        return await self._counted(request, request.model_spec, "predict", self._predict)

    @_answered
    async def Classify(
        self, request: classification_pb2.ClassificationRequest
    ) -> classification_pb2.ClassificationResponse:
        call = functools.partial(self._of_examples, inference.plan_classify, classification_pb2.ClassificationResponse)
        return await self._counted(request, request.model_spec, "classify", call)

    @_answered
    async def Regress(self, request: regression_pb2.RegressionRequest) -> regression_pb2.RegressionResponse:
        call = functools.partial(self._of_examples, inference.plan_regress, regression_pb2.RegressionResponse)
        return await self._counted(request, request.model_spec, "regress", call)

    @_answered
    async def MultiInference(
        self, request: inference_pb2.MultiInferenceRequest
    ) -> inference_pb2.MultiInferenceResponse:
        spec = request.tasks[0].model_spec if request.tasks else model_pb2.ModelSpec()
        return await self._counted(request, spec, "multi_inference", self._multi_inference)

    @_answered
    async def GetModelMetadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        return self._service.metadata(request)

    async def _counted(
        self, request: Message, spec: model_pb2.ModelSpec, api: str, call: Callable[[Message], Awaitable[Message]]
    ) -> Message:
        with self._service.counted(spec.name, api, "gRPC"), self._service.admission.request() as take:
            take(request.ByteSize())
            return await call(request)

    async def _predict(self, request: predict_pb2.PredictRequest) -> predict_pb2.PredictResponse:
        def plan(servable):
            inputs = {
                name: tensors.from_proto(name, tensor, self._service.largest_bytes)
                for name, tensor in request.inputs.items()
            }
            return inference.plan_predict(servable, request.model_spec.signature_name, inputs, request.output_filter)

        answer = await self._service.infer(self._runner, request.model_spec, plan)
        response = predict_pb2.PredictResponse()
        for name, array in answer.result.items():
            response.outputs[name].CopyFrom(tensors.to_proto(array))
        _fill_spec(response.model_spec, request.model_spec.name, answer)
        return response

    async def _of_examples(self, plan: Callable, make_response: Callable, request: Message) -> Message:
        """Answers Classify or Regress."""
        answer = await self._service.infer(
            self._runner,
            request.model_spec,
            lambda servable: plan(servable, request.model_spec.signature_name, request.input),
        )
        response = make_response(result=answer.result)
        _fill_spec(response.model_spec, request.model_spec.name, answer)
        return response

    async def _multi_inference(
        self, request: inference_pb2.MultiInferenceRequest
    ) -> inference_pb2.MultiInferenceResponse:
        spec = request.tasks[0].model_spec if request.tasks else model_pb2.ModelSpec()
        answer = await self._service.infer(
            self._runner, spec, lambda servable: inference.plan_multi_inference(servable, request)
        )
        for result in answer.result.results:
            result.model_spec.name = spec.name
            result.model_spec.version.value = answer.version
        return answer.result


def _fill_spec(spec: model_pb2.ModelSpec, name: str, answer: Answer) -> None:
    spec.name = name
    spec.version.value = answer.version
    spec.signature_name = answer.signature_name


class _ModelService(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, service: Service, reload_roots: Sequence[str]):
        self._service = service
        self._reload_roots = reload_roots

    @_answered
    async def GetModelStatus(
        self, request: get_model_status_pb2.GetModelStatusRequest
    ) -> get_model_status_pb2.GetModelStatusResponse:
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        return self._service.models.status(request.model_spec)

    @_answered
    async def HandleReloadConfigRequest(
        self, request: model_management_pb2.ReloadConfigRequest
    ) -> model_management_pb2.ReloadConfigResponse:
        if not request.config.HasField("model_config_list"):
            raise invalid(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. Only ModelConfigList is currently "
                "supported"
            )
        check_reload_paths(request.config, self._reload_roots)
        await self._service.models.apply(request.config)
        response = model_management_pb2.ReloadConfigResponse()
        response.status.error_code = Code.OK
        return response
