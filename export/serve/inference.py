"""Finds the tensors of calls of Predict, for REST and for gRPC."""

from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from export.serve.errors import Code, ServingError, invalid
from export.serve.servable import Arrays, Servable

DEFAULT_SIGNATURE = "serving_default"


def find_signature(servable: Servable, name: str) -> meta_graph_pb2.SignatureDef:
    """Returns a signature; "" is the name of the default signature.

    Raises:
      ServingError: the signature does not exist.
    """
    signature = servable.signatures.get(name or DEFAULT_SIGNATURE)
    if signature is None or not signature.method_name:  # the initializer of a SavedModel has no method
        known = ", ".join(sorted(key for key, each in servable.signatures.items() if each.method_name))
        raise ServingError(
            Code.FAILED_PRECONDITION, f"no signature {name or DEFAULT_SIGNATURE}; the model has {known or 'none'}"
        )
    return signature


def plan_predict(
    servable: Servable, signature_name: str, inputs: Arrays, output_filter: Iterable[str] = ()
) -> tuple[Arrays, dict[str, str]]:
    """Finds the tensors of a Predict call.

    Args:
      signature_name: name of the signature; "" means the default signature.
      output_filter: names of the outputs to compute; empty means all outputs.

    Returns:
      The arrays to feed, by tensor name; and the names of the tensors to compute, by output name.

    Raises:
      ServingError: the signature does not exist, or the inputs or the filter do not fit the signature.
    """
    signature = find_signature(servable, signature_name)
    _check_inputs(signature, inputs)
    chosen = set(output_filter) or set(signature.outputs)
    if unknown := chosen - set(signature.outputs):
        raise invalid(f"no output {', '.join(sorted(unknown))}; the signature has {_names(signature.outputs)}")
    outputs = {name: signature.outputs[name].name for name in sorted(chosen)}
    return {signature.inputs[name].name: array for name, array in inputs.items()}, outputs


def _check_inputs(signature: meta_graph_pb2.SignatureDef, inputs: Arrays) -> None:
    """Checks the names, types and shapes of inputs, so that no invalid request reaches the graph or a batch."""
    if inputs.keys() != set(signature.inputs):
        raise invalid(f"the signature has the inputs {_names(signature.inputs)}, the request has {_names(inputs)}")
    for name, info in sorted(signature.inputs.items()):
        given, expected = tf.as_dtype(inputs[name].dtype), tf.as_dtype(info.dtype)
        if given != expected and {given, expected} != {tf.string, tf.as_dtype(np.object_)}:
            raise invalid(f"input {name} is {given.name}; it must be {expected.name}")
        shape = tf.TensorShape(info.tensor_shape)
        if not shape.is_compatible_with(inputs[name].shape):
            raise invalid(f"input {name} has the shape {list(inputs[name].shape)}, which does not fit {shape}")


def _names(named: Mapping) -> str:
    return ", ".join(sorted(named)) or "none"
