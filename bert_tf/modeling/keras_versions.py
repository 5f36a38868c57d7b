"""Tells Keras 3 from Keras 2, which this library uses (the package tf-keras)."""

import sys

import tensorflow as tf


def refuse_keras_3(inputs) -> None:
    """Refuses symbolic tensors of Keras 3, and calls inside of its layers, which would not train or save a layer here.
    `inputs`: a tensor, or any nest of tensors.
    Raises TypeError: an input belongs to Keras 3, or one of its layers is being called."""
    state = sys.modules.get("keras.src.backend.common.global_state")  # only Keras 3 has this module
    in_layer = state is not None and state.get_global_attribute("current_call_ctx") is not None
    if in_layer or any(type(each).__module__.startswith("keras.") for each in tf.nest.flatten(inputs)):
        raise TypeError(
            "this layer belongs to Keras 2, but the model to Keras 3; build the model with `import tf_keras as keras` "
            "instead of `import keras` or `tf.keras`"
        )
