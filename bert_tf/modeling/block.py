"""One transformer layer.

Paper: section 3 ("Model Architecture"); post-norm, as in the original.

Letters: B batch, S sequence length, Q positions that are read, H hidden size, A heads, D = H / A.
"""

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.modeling.attention import Attention
from bert_tf.modeling.dropout import dropout, fused_dropout
from bert_tf.modeling.fused import biased_activation, residual_norm
from bert_tf.modeling.layers import Dense, LayerNorm, activation


class Block(keras.layers.Layer):
    """One layer: attention and feed-forward, each followed by dropout, residual and layer normalization.

    Paper: section 3 ("Model Architecture"); post-norm, as in the original.
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        self._config = config
        self.attention = Attention(config)
        self.attention_norm = LayerNorm(config.hidden_size)
        self.intermediate = Dense(config.hidden_size, config.intermediate_size, config)
        self.output_dense = Dense(config.intermediate_size, config.hidden_size, config)
        self.output_norm = LayerNorm(config.hidden_size)

    def call(self, x, attention_bias, seed=None, site=0, positions=None, fused=False):
        """Computes the layer.

        Args:
          x: float [B, S, H].
          attention_bias: float32 [B, 1 or A, 1 or S, S], added to the attention scores.
          seed: int32 [2]; None without dropout.
          site: number of the first of the three dropouts.
          positions: int32 [B, Q]: the positions that are read; nothing else is computed. None reads all.
          fused: whether to use the fused operations.

        Returns:
          float [B, S, H] or [B, Q, H].
        """
        residual = x
        if positions is not None:
            residual = tf.gather(x, positions, batch_dims=1)  # [B, Q, H]
            if attention_bias.shape[2] != 1:
                attention_bias = tf.gather(attention_bias, positions, axis=2, batch_dims=1)
        attention, query_input = self.attention, None if positions is None else residual
        context = attention(x, attention_bias, seed=seed, site=site, query_input=query_input, fused=fused)
        x = self._add_and_norm(context, residual, attention.output_dense, self.attention_norm, seed, site + 1, fused)
        wide = self._intermediate(x, fused)  # [B, S, 4H]
        return self._add_and_norm(wide, x, self.output_dense, self.output_norm, seed, site + 2, fused)

    def _intermediate(self, x, fused):
        dense, name = self.intermediate, self._config.hidden_act
        if fused:
            return biased_activation(dense.product(x), tf.convert_to_tensor(dense.bias), name=name)
        return activation(name)(dense(x))

    def _add_and_norm(self, x, residual, dense, norm, seed, site, fused):
        """Computes LayerNorm(residual + dropout(x W + b)), where x is the contexts [B, S, A, D] or float [B, S, 4H]."""
        rate = self._config.hidden_dropout_prob
        if fused:
            weights = (tf.convert_to_tensor(weight) for weight in (dense.bias, norm.gamma, norm.beta))
            rate, seed = fused_dropout(rate, seed)
            return residual_norm(dense.product(x), residual, *weights, seed, tf.constant(site), rate=rate)
        if x.shape.rank == 4:
            x = tf.reshape(x, tf.shape(residual))
        return norm(residual + dropout(dense(x), rate, seed, site))
