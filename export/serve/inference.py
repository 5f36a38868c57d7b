"""Plans calls of PredictionService, for REST and for gRPC.

A plan contains the tensors to feed, the names of the tensors to fetch, and a function that makes the result. A plan can
run alone or in a batch with other plans.

Letters: B batch, C classes.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import classification_pb2, inference_pb2, input_pb2, regression_pb2

from export.serve.errors import Code, ServingError, invalid
from export.serve.servable import Arrays, Servable, check_inputs

DEFAULT_SIGNATURE = "serving_default"
PREDICT = "tensorflow/serving/predict"
CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"


@dataclasses.dataclass(frozen=True)
class Plan:
    """A call that is ready to run.

    Attributes:
      signature_name: name of the signature, never "".
      feeds: arrays by tensor name.
      fetches: names of the tensors to compute.
      finish: makes the result of the call from the fetched arrays.
    """

    signature_name: str
    feeds: Arrays
    fetches: tuple[str, ...]
    finish: Callable[[Arrays], Any]


def plan_predict(servable: Servable, signature_name: str, inputs: Arrays, output_filter: Iterable[str] = ()) -> Plan:
    """Plans a Predict call. The result maps output names to arrays.

    Raises:
      ServingError: the signature does not exist, or the inputs or the filter do not fit the signature.
    """
    name = signature_name or DEFAULT_SIGNATURE
    signature = servable.signatures.get(name)
    if signature is None:
        raise ServingError(Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
    if signature.method_name not in (PREDICT, CLASSIFY, REGRESS):
        raise ServingError(
            Code.INTERNAL,
            f"Expected prediction signature method_name to be one of {{{PREDICT}, {CLASSIFY}, {REGRESS}}}. "
            f"Was: {signature.method_name}",
        )
    check_inputs(signature, inputs)
    outputs = {alias: info.name for alias, info in signature.outputs.items()}
    if chosen := list(output_filter):
        outputs = {alias: outputs[alias] for alias in _checked_filter(chosen, outputs)}
    feeds = {signature.inputs[alias].name: array for alias, array in inputs.items()}
    return Plan(
        name,
        feeds,
        tuple(outputs.values()),
        lambda fetched: {alias: fetched[tensor] for alias, tensor in sorted(outputs.items())},
    )


def _checked_filter(chosen: list[str], outputs: Iterable[str]) -> list[str]:
    for index, alias in enumerate(chosen):
        if alias not in outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in the set "
                f"{{{','.join(sorted(outputs))}}}."
            )
        if alias in chosen[:index]:
            raise invalid(f"duplicate output tensor alias: {alias}")
    return chosen


def plan_classify(servable: Servable, signature_name: str, examples: input_pb2.Input) -> Plan:
    """Plans a Classify call. The result is a ClassificationResult.

    Raises:
      ServingError: the signature does not exist or has another method, or there are no examples.
    """
    name, signature = _signature(servable, signature_name, CLASSIFY, "classification")
    feeds, count = _example_feeds(signature, examples)
    fetches = _classification_outputs(signature)
    return Plan(name, feeds, tuple(fetches.values()), lambda arrays: _classifications(fetches, arrays, count))


def plan_regress(servable: Servable, signature_name: str, examples: input_pb2.Input) -> Plan:
    """Plans a Regress call. The result is a RegressionResult.

    Raises:
      ServingError: see `plan_classify`.
    """
    name, signature = _signature(servable, signature_name, REGRESS, "regression")
    feeds, count = _example_feeds(signature, examples)
    fetch = _regression_output(signature)
    return Plan(name, feeds, (fetch,), lambda arrays: _regressions(arrays[fetch], count))


def plan_multi_inference(servable: Servable, request: inference_pb2.MultiInferenceRequest) -> Plan:
    """Plans several classifications and regressions of the same examples in one run of the model.

    The result is a MultiInferenceResponse.

    Raises:
      ServingError: the tasks name different models, the same signature twice, or signatures with different input
        tensors; or a task is invalid (see `plan_classify`).
    """
    names = [task.model_spec.signature_name or DEFAULT_SIGNATURE for task in request.tasks]
    parts: list[tuple[inference_pb2.InferenceTask, Plan]] = []
    for index, task in enumerate(request.tasks):
        _check_task(request, index, names, servable)
        plan = plan_classify if task.method_name == CLASSIFY else plan_regress
        parts.append((task, plan(servable, names[index], request.input)))
        if parts[0][1].feeds.keys() != parts[-1][1].feeds.keys():
            raise invalid("Input tensor must be the same for all Signatures.")
    if not parts:
        raise invalid("Inference request has no tasks")

    def finish(arrays: Arrays) -> inference_pb2.MultiInferenceResponse:
        response = inference_pb2.MultiInferenceResponse()
        for task, part in parts:
            added = response.results.add()
            added.model_spec.signature_name = part.signature_name
            result = added.classification_result if task.method_name == CLASSIFY else added.regression_result
            result.CopyFrom(part.finish(arrays))
        return response

    fetches = tuple(sorted({name for _, part in parts for name in part.fetches}))
    return Plan(parts[0][1].signature_name, parts[0][1].feeds, fetches, finish)


def _check_task(request: inference_pb2.MultiInferenceRequest, index: int, names: list[str], servable: Servable) -> None:
    task = request.tasks[index]
    if not task.model_spec.name:
        raise invalid("Found ModelSpec with an empty model name.")
    if task.model_spec.name != request.tasks[0].model_spec.name:
        raise invalid("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
    if names[index] in names[:index]:
        raise invalid(f"Duplicate evaluation of signature: {names[index]}")
    if names[index] not in servable.signatures:
        raise invalid(f"Requested signature not found in model graph: {names[index]}")
    if task.method_name not in (CLASSIFY, REGRESS):
        raise ServingError(Code.UNIMPLEMENTED, f"Unsupported signature method_name: {task.method_name}")


def _signature(
    servable: Servable, signature_name: str, method: str, kind: str
) -> tuple[str, meta_graph_pb2.SignatureDef]:
    name = signature_name or DEFAULT_SIGNATURE
    signature = servable.signatures.get(name)
    if signature is None:
        raise invalid(f"No signature was found with the name: {name}")
    if signature.method_name != method:
        raise invalid(f"Expected {kind} signature method_name to be {method}. Was: {signature.method_name}")
    return name, signature


def _example_feeds(signature: meta_graph_pb2.SignatureDef, examples: input_pb2.Input) -> tuple[Arrays, int]:
    """Returns the serialized examples as the value of the signature's only input, and the number of examples."""
    if len(signature.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    if "inputs" not in signature.inputs:
        raise ServingError(Code.FAILED_PRECONDITION, f"No inputs found in SignatureDef: {','.join(signature.inputs)}")
    context, listed = b"", examples.example_list.examples
    if examples.WhichOneof("kind") == "example_list_with_context":
        listed = examples.example_list_with_context.examples
        # Protobuf merges concatenated messages. A feature of the example replaces the same feature of the context.
        context = examples.example_list_with_context.context.SerializeToString()
    if not listed:
        raise invalid("Input is empty.")
    array = np.empty(len(listed), np.object_)
    array[:] = [context + example.SerializeToString() for example in listed]
    return {signature.inputs["inputs"].name: array}, len(listed)


def _classification_outputs(signature: meta_graph_pb2.SignatureDef) -> dict[str, str]:
    if len(signature.outputs) not in (1, 2):
        raise invalid(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    outputs = {alias: signature.outputs[alias].name for alias in ("classes", "scores") if alias in signature.outputs}
    if not outputs:
        raise ServingError(
            Code.FAILED_PRECONDITION,
            'Expected classification signature outputs to contain at least one of "classes" or "scores". '
            "Signature has: " + ",".join(sorted(signature.outputs)),
        )
    return outputs


def _regression_output(signature: meta_graph_pb2.SignatureDef) -> str:
    if len(signature.outputs) != 1:
        raise invalid("Expected one output Tensor.")
    if "outputs" not in signature.outputs:
        raise ServingError(
            Code.FAILED_PRECONDITION, f"No regression outputs found in SignatureDef: {','.join(signature.outputs)}"
        )
    return signature.outputs["outputs"].name


def _classifications(fetches: dict[str, str], arrays: Arrays, count: int) -> classification_pb2.ClassificationResult:
    """Makes the result from `classes` string [B, C], `scores` float32 [B, C], or both."""
    given = {alias: arrays[tensor] for alias, tensor in fetches.items()}
    for alias, dtype in (("classes", np.object_), ("scores", np.float32)):
        if alias in given:
            _check_scores(alias, given[alias], dtype, count)
    shapes = {array.shape for array in given.values()}
    if len(shapes) > 1:
        raise invalid(
            f"Tensors class and score should match in dim_size(1). Got {given['classes'].shape[1]} vs. "
            f"{given['scores'].shape[1]}"
        )
    result = classification_pb2.ClassificationResult()
    for row in range(count):
        row_classes = result.classifications.add().classes
        for column in range(next(iter(shapes))[1]):
            row_classes.add(
                label=_text(given["classes"][row, column]) if "classes" in given else "",
                score=float(given["scores"][row, column]) if "scores" in given else 0.0,
            )
    return result


def _check_scores(alias: str, array: np.ndarray, dtype: type, count: int) -> None:
    if array.ndim != 2:
        raise invalid(f"Expected Tensor shape: [batch_size num_classes] but got {list(array.shape)}")
    if array.dtype != dtype:
        expected = "DT_STRING" if dtype is np.object_ else "DT_FLOAT"
        raise invalid(f"Expected {alias} Tensor of {expected}. Got: {tf.as_dtype(array.dtype).name}")
    if len(array) != count:
        raise invalid(f"Expected {alias} output batch size of {count}. Got: {len(array)}")


def _regressions(array: np.ndarray, count: int) -> regression_pb2.RegressionResult:
    """Makes the result from float32 [B] or [B, 1]."""
    if array.shape[1:] not in ((), (1,)) or not array.ndim:
        raise invalid(
            f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got {list(array.shape)}"
        )
    if len(array) != count:
        raise invalid(f"Expected output batch size to be {count}. Got: {len(array)}")
    if array.dtype != np.float32:
        raise invalid(f"Expected output Tensor of DT_FLOAT. Got: {tf.as_dtype(array.dtype).name}")
    result = regression_pb2.RegressionResult()
    for value in array.ravel().tolist():
        result.regressions.add(value=value)
    return result


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
