"""What the encoder reads: the sum of three embeddings.

Paper: section 3 ("Input/Output Representations"), Figure 2.

Letters: B batch, S sequence length, H hidden size.
"""

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.modeling.dropout import dropout, fused_dropout
from bert_tf.modeling.fused import norm_dropout
from bert_tf.modeling.layers import LayerNorm, initializer

# The blocks number their dropouts from 1.
_DROPOUT_SITE = 0


class Embeddings(keras.layers.Layer):
    """Sum of word, position and segment embeddings, normalized.

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
        # The attribute that holds the weight has the same name, so a checkpoint has one path for it.
        shape = [rows, self._config.hidden_size]
        return self.add_weight(
            name=name, shape=shape, initializer=initializer(self._config), experimental_autocast=False
        )

    def _gather(self, table: tf.Variable, ids: tf.Tensor) -> tf.Tensor:
        # A gather from the variable itself would make TensorFlow copy the table at each later read and assignment.
        return tf.cast(tf.gather(tf.convert_to_tensor(table), ids), self.compute_dtype)

    def call(self, input_ids, segment_ids, position_ids=None, seed=None, fused=False):
        """Embeds a batch.

        Args:
          input_ids: int32 [B, S].
          segment_ids: int32 [B, S].
          position_ids: int32 [B, S]; None counts from 0 in each row.
          seed: int32 [2]; None without dropout.
          fused: whether to use the fused operations.

        Returns:
          float [B, S, H].
        """
        length = input_ids.shape[1] or tf.shape(input_ids)[1]
        x = self._gather(self.word_embeddings, input_ids)  # [B, S, H]
        if position_ids is None:
            x += tf.cast(tf.convert_to_tensor(self.position_embeddings)[:length], x.dtype)
        else:
            x += self._gather(self.position_embeddings, position_ids)
        x += self._gather(self.segment_embeddings, segment_ids)
        rate, site = self._config.hidden_dropout_prob, tf.constant(_DROPOUT_SITE)
        if fused:
            gamma, beta = tf.convert_to_tensor(self.layer_norm.gamma), tf.convert_to_tensor(self.layer_norm.beta)
            rate, seed = fused_dropout(rate, seed)
            return norm_dropout(x, gamma, beta, seed, site, rate=rate)
        return dropout(self.layer_norm(x), rate, seed, site)
