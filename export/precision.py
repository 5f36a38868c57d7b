"""The precision of an export: what is stored and multiplied in bfloat16, and what stays in float32."""

import tensorflow as tf
import tf_keras as keras

from bert_tf.encoder import Embeddings
from bert_tf.modeling.dense import Dense

_MATRICES = {
    Dense: ("kernel",),
    Embeddings: ("word_embeddings", "position_embeddings", "segment_embeddings"),
}


def store_matrices(model: keras.Model, dtype: str) -> None:
    """Stores the matrices of a model in a dtype, so that no request converts them. Vectors stay in float32.

    Args:
      model: built under `bert_tf.modeling.precision.policy` of the same dtype.
      dtype: "float32", for which nothing changes, or "bfloat16".
    """
    if dtype == "float32":
        return
    for layer in model.submodules:
        for name in _MATRICES.get(type(layer), ()):
            value = tf.cast(tf.convert_to_tensor(getattr(layer, name)), dtype)
            delattr(layer, name)  # or Keras would keep both
            setattr(layer, name, tf.Variable(value, trainable=False, name=name))
