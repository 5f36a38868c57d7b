"""The signatures of an export."""

from collections.abc import Callable, Mapping

import tensorflow as tf

from export.kinds.base import ServedModel

Signatures = dict[str, tf.types.experimental.ConcreteFunction]


def of(served: ServedModel) -> Signatures:
    """Returns the signatures of a served model by their names."""
    functions = {"serving_default": (served.answer, served.inputs()), **served.more_signatures()}
    return {name: _traced(function, inputs) for name, (function, inputs) in functions.items()}


def _traced(function: Callable, inputs: Mapping[str, tf.TensorSpec]) -> tf.types.experimental.ConcreteFunction:
    specs = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in inputs.items()}
    return tf.function(function).get_concrete_function(**specs)
