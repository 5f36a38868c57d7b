"""The precision of an export. With bfloat16, matrices are stored and multiplied in bfloat16; all else is float32."""

import tensorflow as tf
import tf_keras as keras

from bert_tf.encoder import Embeddings
from bert_tf.modeling.dense import Dense

_MATRICES = {
    Dense: ("kernel",),
    Embeddings: ("word_embeddings", "position_embeddings", "segment_embeddings"),
}


def store_matrices(model: keras.Model, dtype: str) -> None:
    """Stores the matrices of a model in a dtype, so that requests convert no matrices. Vectors stay in float32.

    Args:
      model: a model that was built under the policy for the same dtype; see `bert_tf.modeling.precision.policy`.
      dtype: "bfloat16", or "float32" to leave the model unchanged.
    """
    if dtype == "float32":
        return
    for layer in model.submodules:
        for name in _MATRICES.get(type(layer), ()):
            value = tf.cast(tf.convert_to_tensor(getattr(layer, name)), dtype)
            delattr(layer, name)  # otherwise Keras would keep both variables
            setattr(layer, name, tf.Variable(value, trainable=False, name=name))
