"""Heads that label each token: on the fine-tuned encoder, or a BiLSTM on activations of a frozen one.

Paper: section 3.2, Figure 4 (d); section 5.3 and Table 7.

Letters: B batch, S sequence length, P tokens that are read, H hidden size, L layers, K layers that are read, C labels.
"""

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.modeling.dropout import dropout, dropout_seed
from bert_tf.modeling.layers import Dense
from bert_tf.modeling.lstm import BiLstm

# The encoder numbers its dropouts from 0; heads begin here, so that no two masks are alike.
_DROPOUT_SITE = 1 << 16
# The rows of Table 7: the layers, 0 being the embeddings and negative numbers counting from the top, and how they are
# combined.
FEATURES = {
    "embeddings": ((0,), "concat"),
    "second_to_last_hidden": ((-2,), "concat"),
    "last_hidden": ((-1,), "concat"),
    "weighted_sum_last_four": ((-4, -3, -2, -1), "sum"),
    "concat_last_four": ((-4, -3, -2, -1), "concat"),
    "weighted_sum_all": (None, "sum"),
}
_LSTM_LAYERS = 2


def layers_of(features: str, num_hidden_layers: int) -> tuple[int, ...]:
    """Returns the layers that features read, from 0 for the embeddings to L.

    Args:
      features: a name in `FEATURES`.
      num_hidden_layers: L.

    Raises:
      ValueError: the encoder lacks one of the layers.
    """
    layers, _ = FEATURES[features]
    if layers is None:
        return tuple(range(1, num_hidden_layers + 1))
    found = tuple(layer if layer >= 0 else num_hidden_layers + 1 + layer for layer in layers)
    if min(found) < 1 and layers != (0,):
        raise ValueError(f"{features} reads {-min(layers)} hidden layers from the top, the encoder has "
                         f"{num_hidden_layers}")  # fmt: skip
    return found


class TaggingHead(keras.layers.Layer):
    """Dropout and an affine map of each token.

    Paper: Figure 4 (d).

    Attributes:
      reads: name of the encoder's output that the head takes.
      is_per_token: that it maps each token by itself.
      checkpoint_name: its name in checkpoints, so that other formats know it as a token classifier.
    """

    reads = "sequence_output"
    is_per_token = True
    checkpoint_name = "token_head"

    def __init__(self, config: BertConfig, num_labels: int, **kwargs):
        super().__init__(**kwargs)
        self._rate = config.hidden_dropout_prob
        self.dense = Dense(config.hidden_size, num_labels, config)

    def call(self, x, training=False, seed=None):
        """Maps float [B, S, H] to logits, float32 [B, S, C]."""
        x = dropout(x, self._rate, dropout_seed(training, seed), _DROPOUT_SITE)
        return tf.cast(self.dense(x), tf.float32)


class FeatureTaggingHead(keras.layers.Layer):
    """A two-layer BiLSTM on activations of a frozen encoder, and an affine map.

    Paper: section 5.3. The weights of a sum of layers are learned; their softmax adds up to 1.

    Args:
      config: shape and regularization.
      num_labels: C.
      features: a name in `FEATURES`.
      lstm_size: units of each direction.

    Attributes:
      reads: "activations", see `FineTunedBert`.
      layers: the layers whose activations it takes.
    """

    reads = "activations"

    def __init__(self, config: BertConfig, num_labels: int, features: str, lstm_size: int, **kwargs):
        super().__init__(**kwargs)
        self._rate = config.hidden_dropout_prob
        self.layers = layers_of(features, config.num_hidden_layers)
        count, self.layer_weights = len(self.layers), None
        if FEATURES[features][1] == "sum":
            self.layer_weights = self.add_weight(
                name="layer_weights", shape=[count], initializer="zeros", experimental_autocast=False
            )
        inputs = config.hidden_size * (1 if self.layer_weights is not None else count)
        sizes = [inputs, *[2 * lstm_size] * (_LSTM_LAYERS - 1)]
        self.lstms = [BiLstm(size, lstm_size) for size in sizes]
        self.dense = Dense(2 * lstm_size, num_labels, config)

    def call(self, x, read_mask, training=False, seed=None):
        """Labels tokens.

        Args:
          x: float [B, P, K, H], activations of the tokens that are read; P is at most S.
          read_mask: int32 [B, S], 1 on tokens, then 0 on padding.
          training: whether to apply dropout.
          seed: int32 [2] for the dropout masks.

        Returns:
          Logits, float32 [B, S, C]; padding has any finite value.
        """
        seed, static = dropout_seed(training, seed), read_mask.shape[1]
        length = tf.shape(read_mask)[1] if static is None else static
        lengths = tf.reduce_sum(read_mask, axis=1)
        x = self._combined(tf.cast(x, self.compute_dtype))
        if not isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy):
            # A loop over padding takes as long as one over tokens. A TPU needs a static length.
            x = x[:, : tf.maximum(tf.reduce_max(lengths), 1)]
        for number, lstm in enumerate(self.lstms):
            x = lstm(dropout(x, self._rate, seed, _DROPOUT_SITE + number), lengths)
        x = dropout(x, self._rate, seed, _DROPOUT_SITE + len(self.lstms))
        logits = tf.cast(self.dense(x), tf.float32)
        logits = tf.pad(logits, [[0, 0], [0, length - tf.shape(logits)[1]], [0, 0]])
        return tf.ensure_shape(logits, [None, static, logits.shape[2]])

    def _combined(self, x):
        """Combines the layers: float [B, S, K H], or for a sum [B, S, H]."""
        if self.layer_weights is not None:
            return tf.einsum("bskh,k->bsh", x, tf.cast(tf.nn.softmax(self.layer_weights), x.dtype))
        length = tf.shape(x)[1] if x.shape[1] is None else x.shape[1]
        return tf.reshape(x, [-1, length, x.shape[2] * x.shape[3]])
