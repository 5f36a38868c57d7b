"""The weights of an export: their layout and their precision.

With bfloat16, matrices are stored and multiplied in bfloat16; all else is float32.
"""

import tensorflow as tf
import tf_keras as keras

from bert_tf.encoder import PLAIN, Embeddings
from bert_tf.modeling.dense import Linear
from bert_tf.modeling.halves import HalvedOperations

_MATRICES = {Linear: ("kernel",), Embeddings: ("word_embeddings", "position_embeddings", "segment_embeddings")}


def prepare(model: keras.Model, dtype: str, halved: bool = True) -> None:
    """Gives a trained model the weights of its export. With halves or bfloat16, the model can then only infer.
    `model`: a model with the attribute `encoder` that was built under the policy for the same dtype; see
      `bert_tf.modeling.precision.policy`.
    `dtype`: "float32" or "bfloat16". With bfloat16, the matrices are stored in bfloat16, so that requests convert no
      matrices.
    `halved`: whether the encoder computes each layer in two halves; see `HalvedOperations`."""
    # An export must not need a compiler.
    for encoder in model.encoder.encoders:
        encoder.inference_operations = HalvedOperations(encoder) if halved else PLAIN
    if dtype == "float32":
        return
    for layer in model.submodules:
        for name in _MATRICES.get(type(layer), ()):
            if not hasattr(layer, name):  # the halves have the weight
                continue
            value = tf.cast(tf.convert_to_tensor(getattr(layer, name)), dtype)
            delattr(layer, name)  # otherwise Keras would keep both variables
            setattr(layer, name, tf.Variable(value, trainable=False, name=name))


def variables_of(model: keras.Model) -> list[tf.Variable]:
    """Returns all weights of a model, including the weights of its halves."""
    operations = [encoder.inference_operations for encoder in model.encoder.encoders]
    return [*model.variables, *(weight for each in operations for weight in getattr(each, "variables", ()))]
