"""The parts of attention, blocks and heads: affine maps, activations, layer normalization.

Paper: section 3 ("Model Architecture").

Letters: B batch size, S sequence length, N = B S rows of a matrix, H hidden size.

The constructors create the weights, so a model has all weights before its first call.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig

LAYER_NORM_EPSILON = 1e-12

_ACTIVATIONS = {
    "gelu": lambda x: tf.nn.gelu(x, approximate=True),
    "gelu_erf": lambda x: tf.nn.gelu(x, approximate=False),
    "relu": tf.nn.relu,
    "tanh": tf.nn.tanh,
    "linear": tf.identity,
}


def activation(name: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the activation function for a value of `hidden_act`."""
    return _ACTIVATIONS[name]


def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """Normalizes float32 [..., H] over the last axis; gamma and beta are float32 [H]."""
    mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * gamma + beta


@contextlib.contextmanager
def created_as_zeros() -> Iterator[None]:
    """Creates all weights as zeros, for a model that a checkpoint will fill; drawing random weights takes longer."""

    def zeros(next_creator, **options):
        if options.get("shape") is not None:
            options["initial_value"] = functools.partial(tf.zeros, options["shape"], options["dtype"])
        return next_creator(**options)

    with tf.variable_creator_scope(zeros):
        yield


def initializer(config: BertConfig) -> keras.initializers.Initializer:
    """Returns a truncated normal initializer.

    Each weight needs its own initializer, because one initializer gives equal values to weights of the same shape.
    """
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


class Dense(keras.layers.Layer):
    """Affine map of the last axis: x W + b."""

    def __init__(self, inputs: int, outputs: int, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        self.kernel = self.add_weight(name="kernel", shape=[inputs, outputs], initializer=initializer(config))
        self.bias = self.add_weight(name="bias", shape=[outputs], initializer="zeros", experimental_autocast=False)

    def call(self, x):
        """Maps float [..., inputs] to float [..., outputs]."""
        return tf.nn.bias_add(tf.matmul(x, self.kernel), tf.cast(self.bias, x.dtype))


class LayerNorm(keras.layers.Layer):
    """Layer normalization over the last axis, computed in float32."""

    def __init__(self, size: int, **kwargs):
        super().__init__(**kwargs)
        self.gamma = self.add_weight(name="gamma", shape=[size], initializer="ones", experimental_autocast=False)
        self.beta = self.add_weight(name="beta", shape=[size], initializer="zeros", experimental_autocast=False)

    def call(self, x):
        """Normalizes float [..., size]; the result has the dtype of x."""
        return tf.cast(layer_norm(tf.cast(x, tf.float32), self.gamma, self.beta), x.dtype)


def rows(x: tf.Tensor) -> tf.Tensor:
    """Reshapes [B, S, H] to [N, H], so that a layer computes one large matrix product instead of B small products."""
    return tf.reshape(x, [-1, x.shape[-1]])
