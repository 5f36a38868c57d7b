"""The signatures of an export."""

import tensorflow as tf

from export.kinds.base import ServedModel

Signatures = dict[str, tf.types.experimental.ConcreteFunction]


def of(served: ServedModel) -> Signatures:
    """Returns the signatures of a served model by their names."""
    specs = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in served.inputs().items()}
    return {"serving_default": tf.function(served.answer).get_concrete_function(**specs)}
