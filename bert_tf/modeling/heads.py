"""Heads on top of the encoder.

Paper: section 3.1 (masked LM, next sentence), section 3.2 and Figure 4 (classification).

Letters: B batch, S sequence length, N examples of a packed row, H hidden size, P predictions, V vocabulary size.
"""

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.modeling.dropout import dropout, dropout_seed
from bert_tf.modeling.fused import cross_entropy
from bert_tf.modeling.layers import Dense, LayerNorm, activation, rows

# The encoder numbers its dropouts from 0; heads begin here, so that no two masks are alike.
_DROPOUT_SITE = 1 << 16


class MaskedLanguageModelHead(keras.layers.Layer):
    """Scores every token of the vocabulary at the masked positions.

    Paper: section 3.1, Task 1. The output weights are the word embeddings.
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        self._config = config
        self.transform = Dense(config.hidden_size, config.hidden_size, config)
        self.layer_norm = LayerNorm(config.hidden_size)
        self.bias = self.add_weight(
            name="bias", shape=[config.vocab_size], initializer="zeros", experimental_autocast=False
        )

    def call(self, sequence_output, positions, word_embeddings):
        """Predicts.

        Args:
          sequence_output: float [B, S, H].
          positions: int32 [B, P]; None where `sequence_output` is [B, P, H], of these positions alone.
          word_embeddings: float [V, H].

        Returns:
          Logits without their bias, float [B P, V]; `logits` and `losses` add it.
        """
        x = sequence_output if positions is None else tf.gather(sequence_output, positions, batch_dims=1)  # [B, P, H]
        x = self.layer_norm(activation(self._config.hidden_act)(self.transform(x)))
        return tf.matmul(rows(x), tf.cast(word_embeddings, x.dtype), transpose_b=True)

    def logits(self, scores):
        """Adds the bias: float32 of the shape of the scores."""
        return tf.cast(scores, tf.float32) + self.bias

    def losses(self, scores, labels):
        """Computes the losses of int32 labels [B P], float32 [B P], and the likeliest tokens, int32 [B P]."""
        return cross_entropy(scores, tf.convert_to_tensor(self.bias), labels)


class NextSentenceHead(keras.layers.Layer):
    """Classifies whether text B follows text A (class 0) or is random (class 1).

    Paper: section 3.1, Task 2.
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        self.dense = Dense(config.hidden_size, 2, config)

    def call(self, pooled_output):
        """Maps float [B, H] to logits, float32 [B, 2]; for packed rows, [B, N, H] to [B, N, 2]."""
        return tf.cast(self.dense(pooled_output), tf.float32)


class ClassificationHead(keras.layers.Layer):
    """Dropout and an affine map of the pooled [CLS]; one output is a regression.

    Paper: section 3.2 and Figure 4 (a), (b); section 4.1.

    Attributes:
      reads: name of the encoder's output that the head takes.
    """

    reads = "pooled_output"

    def __init__(self, config: BertConfig, num_outputs: int, **kwargs):
        super().__init__(**kwargs)
        self._rate = config.hidden_dropout_prob
        self.dense = Dense(config.hidden_size, num_outputs, config)

    def call(self, pooled_output, training=False, seed=None):
        """Maps float [B, H] to logits, float32 [B, num_outputs]."""
        seed = dropout_seed(training, seed)
        pooled_output = dropout(pooled_output, self._rate, seed, tf.constant(_DROPOUT_SITE))
        return tf.cast(self.dense(pooled_output), tf.float32)
