"""Layers that attention, blocks and heads are made of: affine maps, layer normalization, embeddings.

Paper: section 3, Figure 2.

Letters: B batch, S sequence length, H hidden size.

Weights are made in the constructors, so that a model has all of them before its first call.
"""

import math

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.modeling import fused


def activation(name: str):
    """The function that `hidden_act` names."""
    return fused.ACTIVATIONS[name]


def initializer(config: BertConfig) -> keras.initializers.Initializer:
    """Truncated normal; a new object for each weight, so that no two weights start alike."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def dropout_seed(training: bool, seed: tf.Tensor | None) -> tf.Tensor | None:
    """The seed to use: None where nothing is dropped, a fresh one where the caller gave none."""
    if not training:
        return None
    if seed is None:
        return tf.random.uniform([2], tf.int32.min, tf.int32.max, tf.int32)
    return seed


class Dense(keras.layers.Layer):
    """Affine map of the last axis: x W + b."""

    def __init__(self, inputs: int, outputs: int, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        self.kernel = self.add_weight(name="kernel", shape=[inputs, outputs], initializer=initializer(config))
        self.bias = self.add_weight(name="bias", shape=[outputs], initializer="zeros", experimental_autocast=False)

    def call(self, x):
        """Maps float [..., inputs] to float [..., outputs]."""
        return tf.nn.bias_add(tf.matmul(x, self.kernel), tf.cast(self.bias, x.dtype))

    def product(self, x):
        """The product alone, of float [B, S, inputs], for a chain that begins with the bias."""
        return product(x, tf.convert_to_tensor(self.kernel))


class LayerNorm(keras.layers.Layer):
    """Layer normalisation over the last axis, computed in float32."""

    def __init__(self, size: int, **kwargs):
        super().__init__(**kwargs)
        self.gamma = self.add_weight(name="gamma", shape=[size], initializer="ones", experimental_autocast=False)
        self.beta = self.add_weight(name="beta", shape=[size], initializer="zeros", experimental_autocast=False)

    def call(self, x):
        """Normalises float [..., size]; the result has the dtype of x."""
        return tf.cast(fused.normal(tf.cast(x, tf.float32), self.gamma, self.beta), x.dtype)


def rows(x: tf.Tensor) -> tf.Tensor:
    """[B, S, H] as [N, H]: a product of two matrices, whose gradient is one too, not one for each of the batch."""
    return tf.reshape(x, [-1, x.shape[-1]])


def product(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Contracts all dimensions of x behind the second with the first ones of a kernel.

    Args:
      x: float [B, S, ...].
      kernel: float [..., outputs]; these dimensions and x's are the same.
    """
    axes = x.shape.rank - 2
    if fused.in_program():  # which lays out what comes for what takes it, unless the dimensions are others by then
        inputs, outputs = "hij"[:axes], "xyz"[: kernel.shape.rank - axes]
        return tf.einsum(f"bs{inputs},{inputs}{outputs}->bs{outputs}", x, kernel)
    flat = math.prod(x.shape[2:])
    shape = tf.concat([tf.shape(x)[:2], kernel.shape[axes:]], 0)
    return tf.reshape(tf.matmul(tf.reshape(x, [-1, flat]), tf.reshape(kernel, [flat, -1])), shape)


class Embeddings(keras.layers.Layer):
    """Sum of word, position and segment embeddings, normalised.

    Paper: section 3, Figure 2.
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        self._config = config
        self.word_embeddings = self._table("word_embeddings", config.vocab_size)
        self.position_embeddings = self._table("position_embeddings", config.max_position_embeddings)
        self.segment_embeddings = self._table("segment_embeddings", config.type_vocab_size)
        self.layer_norm = LayerNorm(config.hidden_size)

    def _table(self, name: str, rows: int) -> tf.Variable:
        # the attribute has the weight's name, so that a checkpoint knows one path for it
        shape = [rows, self._config.hidden_size]
        return self.add_weight(name=name, shape=shape, initializer=initializer(self._config))

    def call(self, input_ids, segment_ids, position_ids=None, seed=None):
        """Embeds int32 [B, S] ids, segments and positions, which without `position_ids` count on: float [B, S, H]."""
        length = input_ids.shape[1] or tf.shape(input_ids)[1]
        x = tf.gather(self.word_embeddings, input_ids)  # [B, S, H]
        if position_ids is None:
            x += tf.convert_to_tensor(self.position_embeddings)[:length]
        else:
            x += tf.gather(self.position_embeddings, position_ids)
        x += tf.gather(self.segment_embeddings, segment_ids)
        if seed is None:
            return self.layer_norm(x)
        gamma, beta = tf.convert_to_tensor(self.layer_norm.gamma), tf.convert_to_tensor(self.layer_norm.beta)
        return fused.norm_dropout(x, gamma, beta, seed, tf.constant(0), rate=self._config.hidden_dropout_prob)
