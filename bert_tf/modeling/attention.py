"""Multi-head self-attention, and which tokens see each other.

Paper: section 3 ("Model Architecture"); section 5.1 for attention in one direction.

Letters: B batch, S sequence length, Q positions that are read, H hidden size, A heads, D = H / A.

`Attention._contexts` is the definition: plain operations, whose gradients TensorFlow derives. The fused operations
compute the same faster, and `tests/bert_tf/modeling/test_fused_parity.py` holds them to it. So a new kind of attention
begins here, with `BertEncoder(config, fused=False)`.

The softmax is computed in float32 whatever the compute dtype.
"""

from collections.abc import Sequence

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.modeling.compilation import inside_xla
from bert_tf.modeling.dropout import dropout, fused_dropout, static_or_dynamic_shape
from bert_tf.modeling.fused import attention as fused_attention
from bert_tf.modeling.layers import Dense, product

# Added to the attention scores of what must not be seen; its exponential is zero in float32 beside any real score.
_HIDDEN_SCORE = -10000.0


class Attention(keras.layers.Layer):
    """Multi-head self-attention up to the contexts.

    `Block` applies `output_dense`, together with the dropout, the residual and the layer normalization.

    Paper: section 3 ("Model Architecture").
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        self._config = config
        hidden = config.hidden_size
        self.query = Dense(hidden, hidden, config)
        self.key = Dense(hidden, hidden, config)
        self.value = Dense(hidden, hidden, config)
        self.output_dense = Dense(hidden, hidden, config)

    def call(self, x, attention_bias, seed=None, site=0, query_input=None, fused=False):
        """Computes the contexts.

        Args:
          x: float [B, S, H].
          attention_bias: float32, added to the scores; any shape that broadcasts to [B, A, S, S].
          seed: int32 [2]; None without dropout.
          site: number of the dropout of the probabilities.
          query_input: float [B, Q, H]: the positions whose contexts are wanted. The bias then has Q in place of its
            first S. None is x.
          fused: whether to use the fused operations.

        Returns:
          The contexts of all heads, float [B, S, A, D] or [B, Q, A, D].
        """
        contexts = self._fused_contexts if fused else self._contexts
        return contexts(x, x if query_input is None else query_input, attention_bias, seed, site)

    def _contexts(self, x, query_input, attention_bias, seed, site):
        query = self._split_heads(self.query(query_input))
        key, value = self._split_heads(self.key(x)), self._split_heads(self.value(x))
        query *= tf.cast(self._config.head_size**-0.5, query.dtype)
        scores = tf.matmul(query, key, transpose_b=True)  # [B, A, S, S]
        probabilities = tf.nn.softmax(tf.cast(scores, tf.float32) + attention_bias)
        probabilities = dropout(probabilities, self._config.attention_probs_dropout_prob, seed, site)
        context = tf.matmul(tf.cast(probabilities, value.dtype), value)
        return tf.transpose(context, [0, 2, 1, 3])

    def _split_heads(self, x: tf.Tensor) -> tf.Tensor:
        """Splits [B, S, H] into [B, A, S, D]."""
        shape = static_or_dynamic_shape(x)
        batch, length = shape[0], shape[1]
        x = tf.reshape(x, [batch, length, self._config.num_attention_heads, self._config.head_size])
        return tf.transpose(x, [0, 2, 1, 3])

    def _fused_contexts(self, x, query_input, attention_bias, seed, site):
        # One large product is faster where TensorFlow runs it; XLA would pay for joining weights and gradients.
        if inside_xla():
            groups = [(query_input, [self.query]), (x, [self.key]), (x, [self.value])]
        elif query_input is x:
            groups = [(x, [self.query, self.key, self.value])]
        else:
            groups = [(query_input, [self.query]), (x, [self.key, self.value])]
        projected = [self._project(*group) for group in groups]
        rate, seed = fused_dropout(self._config.attention_probs_dropout_prob, seed)
        return fused_attention(projected, attention_bias, seed, tf.constant(site), rate=rate)

    def _project(self, x: tf.Tensor, layers: Sequence[Dense]) -> tf.Tensor:
        """Applies several affine maps to [B, S, H]: [B, S, layers, A, D]."""
        parts = [len(layers), self._config.num_attention_heads, self._config.head_size]
        kernel = tf.concat([layer.kernel for layer in layers], axis=1)
        bias = tf.concat([layer.bias for layer in layers], axis=0)
        return product(x, tf.reshape(kernel, [x.shape[-1], *parts])) + tf.cast(tf.reshape(bias, parts), x.dtype)


def attention_bias(input_mask: tf.Tensor, directionality: str, sequence_ids: tf.Tensor | None = None) -> tf.Tensor:
    """Computes the bias of the scores that hides padding, tokens on the wrong side and other examples of a row.

    Args:
      input_mask: int32 [B, S].
      directionality: see `BertConfig`.
      sequence_ids: int32 [B, S], of packed rows.

    Returns:
      float32 [B, 1, 1, S], or [B, 1, S, S] for one direction and packed rows.
    """
    # Not by tf.newaxis: TensorFlow's converter for small devices has no slice that adds two axes.
    seen = tf.expand_dims(tf.expand_dims(tf.cast(input_mask, tf.float32), 1), 1)  # [B, 1, 1, S]
    if sequence_ids is not None:
        same = sequence_ids[:, tf.newaxis, :, tf.newaxis] == sequence_ids[:, tf.newaxis, tf.newaxis, :]
        seen *= tf.cast(same, tf.float32)  # [B, 1, S, S]
    if directionality != "bidi":
        length = tf.shape(input_mask)[1]
        lower, upper = (-1, 0) if directionality == "ltr" else (0, -1)
        seen *= tf.linalg.band_part(tf.ones([length, length]), lower, upper)  # [B, 1, S, S]
    return (1.0 - seen) * _HIDDEN_SCORE
