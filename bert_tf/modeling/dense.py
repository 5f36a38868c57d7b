"""The parts of attention, blocks and heads: affine maps, activations, layer normalization.

Paper: section 3 ("Model Architecture").

Letters: N = B S rows of a matrix.

The constructors create the weights, so a model has all weights before its first call.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig

_FUNCTIONS = {
    "gelu": lambda x: tf.nn.gelu(x, approximate=True),
    "gelu_erf": lambda x: tf.nn.gelu(x, approximate=False),
    "relu": tf.nn.relu,
    "tanh": tf.nn.tanh,
    "linear": tf.identity,
}


def activation(name: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the activation function for a value of `hidden_act`."""
    return _FUNCTIONS[name]


def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Normalizes float32 [..., H] over the last axis; gamma and beta are float32 [H]."""
    centered = x - tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centered), -1, keepdims=True)
    return centered * tf.math.rsqrt(variance + epsilon) * gamma + beta


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
    """Returns a truncated normal initializer. Each weight needs its own initializer, because one initializer gives
    equal values to weights of the same shape."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


class Linear(keras.layers.Layer):
    """Affine map of the last axis: x W + b."""

    def __init__(self, inputs: int, outputs: int, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        with tf.name_scope(self.name):  # .h5 files need unique names
            self.kernel = self.add_weight(name="kernel", shape=[inputs, outputs], initializer=initializer(config))
            self.bias = self.add_weight(name="bias", shape=[outputs], initializer="zeros", experimental_autocast=False)

    def call(self, x, hidden_act: str = "linear"):
        """Maps float [..., inputs] to float [..., outputs], and applies the activation function `hidden_act`. On a CPU,
        TensorFlow computes the product, the bias and the activation in one operation, but only if x is a matrix. So all
        rows are one matrix here, and the result gets the shape of x at the end."""
        y = activation(hidden_act)(tf.nn.bias_add(tf.matmul(rows(x), self.kernel), tf.cast(self.bias, x.dtype)))
        return in_rows_of(x, y)


class LayerNorm(keras.layers.Layer):
    """Layer normalization over the last axis, computed in float32."""

    def __init__(self, size: int, epsilon: float = 1e-12, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        with tf.name_scope(self.name):
            self.gamma = self.add_weight(name="gamma", shape=[size], initializer="ones", experimental_autocast=False)
            self.beta = self.add_weight(name="beta", shape=[size], initializer="zeros", experimental_autocast=False)

    def call(self, x):
        """Normalizes float [..., size]; the result has the dtype of x."""
        return tf.cast(layer_norm(tf.cast(x, tf.float32), self.gamma, self.beta, self.epsilon), x.dtype)


def rows(x: tf.Tensor) -> tf.Tensor:
    """Reshapes [..., H] to [N, H], so that a layer computes one large matrix product instead of B small products."""
    return x if x.shape.rank == 2 else tf.reshape(x, [-1, x.shape[-1]])


def in_rows_of(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Reshapes y from [N, outputs] to [..., outputs], where x is [..., H] and has N rows."""
    if x.shape.rank == y.shape.rank:
        return y
    static = x.shape[:-1].concatenate(y.shape[-1:])
    shape = static if static.is_fully_defined() else tf.concat([tf.shape(x)[:-1], y.shape[-1:]], 0)
    y = tf.reshape(y, shape)
    y.set_shape(static)
    return y
