"""Multi-head self-attention, and which tokens may see each other.

Paper: section 3 ("Model Architecture"); section 5.1 for attention in one direction.

Letters: B batch, S sequence length, Q rows that are read, H hidden size, A heads, D = H / A.

The softmax is computed in float32 whatever the compute dtype.
"""

from collections.abc import Sequence

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.modeling import fused
from bert_tf.modeling.layers import Dense, product

# Added to the attention scores of what must not be seen; its exponential is zero in float32 beside any real score.
_HIDDEN_SCORE = -10000.0


class Attention(keras.layers.Layer):
    """Multi-head self-attention, without the residual.

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

    def _heads(self, x: tf.Tensor) -> tf.Tensor:
        """Splits [B, S, H] into [B, A, S, D]."""
        batch, length = tf.shape(x)[0], tf.shape(x)[1]
        x = tf.reshape(x, [batch, length, self._config.num_attention_heads, self._config.head_size])
        return tf.transpose(x, [0, 2, 1, 3])

    def call(self, x, attention_bias, seed=None, site=0, read=None):
        """Attends.

        Args:
          x: float [B, S, H].
          attention_bias: float32, added to the scores: [B, 1, 1, S] or [B, 1, S, S].
          seed: int32 [2] when dropping, else None.
          site: number of the dropout.
          read: float [B, Q, H] in training: those of x whose contexts are wanted, with Q rows in [B, 1, S, S];
            None for all.

        Returns:
          The contexts of all heads, float [B, S, A, D] or [B, Q, A, D], before the output's affine map.
        """
        if seed is not None:
            return self._in_training(x, attention_bias, seed, site, read)
        query, key, value = (self._heads(layer(x)) for layer in (self.query, self.key, self.value))
        query *= tf.cast(self._config.head_size**-0.5, query.dtype)
        scores = tf.matmul(query, key, transpose_b=True)  # [B, A, S, S]
        probabilities = tf.nn.softmax(tf.cast(scores, tf.float32) + attention_bias)
        context = tf.matmul(tf.cast(probabilities, value.dtype), value)
        return tf.transpose(context, [0, 2, 1, 3])

    def _in_training(self, x, attention_bias, seed, site, read):
        asking = x if read is None else read
        # one large product where each is a call; a program of XLA's would join weights and gradients at a cost
        if fused.in_program():
            groups = [(asking, [self.query]), (x, [self.key]), (x, [self.value])]
        elif read is None:
            groups = [(x, [self.query, self.key, self.value])]
        else:
            groups = [(read, [self.query]), (x, [self.key, self.value])]
        projected = [self._projected(*group) for group in groups]
        rate = self._config.attention_probs_dropout_prob
        return fused.attention(projected, attention_bias, seed, tf.constant(site), rate=rate)

    def _projected(self, x: tf.Tensor, layers: Sequence[Dense]) -> tf.Tensor:
        """Affine maps of [B, S, H] side by side, [B, S, layers, A, D]."""
        parts = [len(layers), self._config.num_attention_heads, self._config.head_size]
        kernel = tf.concat([layer.kernel for layer in layers], axis=1)
        bias = tf.concat([layer.bias for layer in layers], axis=0)
        return product(x, tf.reshape(kernel, [x.shape[-1], *parts])) + tf.cast(tf.reshape(bias, parts), x.dtype)


def attention_bias(input_mask: tf.Tensor, directionality: str, sequence_ids: tf.Tensor | None = None) -> tf.Tensor:
    """What is added to the scores, so that padding, pieces on the wrong side and other examples are not seen.

    Args:
      input_mask: int32 [B, S].
      directionality: see `BertConfig`.
      sequence_ids: int32 [B, S], of packed rows.

    Returns:
      float32 [B, 1, 1, S], or [B, 1, S, S] for one direction and packed rows.
    """
    seen = tf.cast(input_mask, tf.float32)[:, tf.newaxis, tf.newaxis, :]  # [B, 1, 1, S]
    if sequence_ids is not None:
        own = sequence_ids[:, tf.newaxis, :, tf.newaxis] == sequence_ids[:, tf.newaxis, tf.newaxis, :]
        seen *= tf.cast(own, tf.float32)  # [B, 1, S, S]
    if directionality != "bidi":
        length = tf.shape(input_mask)[1]
        lower, upper = (-1, 0) if directionality == "ltr" else (0, -1)
        seen *= tf.linalg.band_part(tf.ones([length, length]), lower, upper)  # [B, 1, S, S]
    return (1.0 - seen) * _HIDDEN_SCORE
