"""Tells tensors of Keras 3 from those of Keras 2, which this library uses (the package tf-keras)."""

import tensorflow as tf


def refuse_keras_3(inputs) -> None:
    """Refuses symbolic tensors of Keras 3, with which a layer of Keras 2 would fail with an unclear message.

    Args:
      inputs: a tensor, or any nest of tensors.

    Raises:
      TypeError: an input belongs to Keras 3.
    """
    if any(type(each).__module__.startswith("keras.") for each in tf.nest.flatten(inputs)):
        raise TypeError(
            "this layer belongs to Keras 2, but its input to Keras 3; build the model with `import tf_keras as keras` "
            "instead of `import keras`"
        )
