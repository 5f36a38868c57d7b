"""One transformer layer.

Paper: section 3 ("Model Architecture"); post-norm, as in the original.

Letters: B batch, S sequence length, Q rows that are read, H hidden size, A heads, D = H / A.
"""

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.modeling import fused
from bert_tf.modeling.attention import Attention
from bert_tf.modeling.layers import Dense, LayerNorm, activation, product


class Block(keras.layers.Layer):
    """One layer: attention and feed-forward, each followed by dropout, residual and normalisation.

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

    def call(self, x, attention_bias, seed=None, site=0, positions=None):
        """Maps float [B, S, H] to float [B, S, H]; takes the dropout numbers site to site + 2.

        With `positions`, int32 [B, Q], in training, the result is [B, Q, H], and nothing is computed for others.
        """
        read = None
        if positions is not None:
            read = tf.gather(x, positions, batch_dims=1)
            if attention_bias.shape[2] != 1:
                attention_bias = tf.gather(attention_bias, positions[:, tf.newaxis], axis=2, batch_dims=2)
        context = self.attention(x, attention_bias, seed=seed, site=site, read=read)
        if seed is not None:
            return self._in_one_pass_a_chain(x if read is None else read, context, seed, site)
        x = self.attention_norm(x + self.attention.output_dense(tf.reshape(context, tf.shape(x))))
        wide = activation(self._config.hidden_act)(self.intermediate(x))  # [B, S, 4H]
        return self.output_norm(x + self.output_dense(wide))

    def _in_one_pass_a_chain(self, x, context, seed, site):
        """The block from the context on, with dropout."""
        dense = self.attention.output_dense
        attended = product(context, tf.reshape(dense.kernel, [*context.shape[2:], x.shape[-1]]))
        x = self._residual_norm(attended, x, dense, self.attention_norm, seed, site + 1)
        bias = tf.convert_to_tensor(self.intermediate.bias)
        wide = fused.biased_activation(self.intermediate.product(x), bias, name=self._config.hidden_act)  # [B, S, 4H]
        narrow = self.output_dense.product(wide)
        return self._residual_norm(narrow, x, self.output_dense, self.output_norm, seed, site + 2)

    def _residual_norm(self, x, residual, dense, norm, seed, site):
        weights = (tf.convert_to_tensor(weight) for weight in (dense.bias, norm.gamma, norm.beta))
        rate = self._config.hidden_dropout_prob
        return fused.residual_norm(x, residual, *weights, seed, tf.constant(site), rate=rate)
