"""Heads on top of the encoder.

Paper: section 3.1 (masked LM, next sentence), section 3.2 and Figure 4 (classification), section 4.2 (spans), Figure 4
(d) and section 5.3 with Table 7 (labels of tokens).

Letters: N examples in a packed row, P predictions or tokens that are read, K layers that are read.
"""

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.modeling.bilstm import BiLstm
from bert_tf.modeling.compilation import inside_xla
from bert_tf.modeling.dense import LayerNorm, Linear, rows
from bert_tf.modeling.dropout import dropout, dropout_seed
from bert_tf.modeling.fused import cross_entropy

# The encoder's dropouts have the sites 0, 1, ... Heads start with this site, so that all masks differ.
_DROPOUT_SITE = 1 << 16
# The rows of Table 7: the layers, and how they are combined. Layer 0 is the embeddings; negative numbers count from the
# top; None means all layers. ELMo's sum includes the embeddings, and has a learned scale (M. Peters et al., "Deep
# contextualized word representations", 2018, equation 1).
FEATURES = {
    "embeddings": ((0,), "concat"),
    "second_to_last_hidden": ((-2,), "concat"),
    "last_hidden": ((-1,), "concat"),
    "weighted_sum_last_four": ((-4, -3, -2, -1), "sum"),
    "concat_last_four": ((-4, -3, -2, -1), "concat"),
    "weighted_sum_all": (None, "sum"),
    "elmo": (None, "scaled_sum"),
}
_LSTM_LAYERS = 2


class MaskedLanguageModelHead(keras.layers.Layer):
    """Scores every token of the vocabulary at the masked positions.
    Paper: section 3.1, Task 1. The output weights are the word embeddings."""

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        self._config = config
        self.transform = Linear(config.hidden_size, config.embedding_width, config)
        self.layer_norm = LayerNorm(config.embedding_width, config.layer_norm_eps)
        self.bias = self.add_weight(
            name="bias", shape=[config.vocab_size], initializer="zeros", experimental_autocast=False
        )

    def call(self, sequence_output, positions, word_embeddings):
        """Computes the scores of all tokens.
        `sequence_output`: float [B, S, H].
        `positions`: int32 [B, P]; None if `sequence_output` is [B, P, H] and contains only the masked positions.
        `word_embeddings`: float [V, E]; E is H except in ELECTRA.
        Returns logits without the bias, float [B P, V]; `logits` and `losses` add the bias."""
        x = sequence_output if positions is None else tf.gather(sequence_output, positions, batch_dims=1)  # [B, P, H]
        x = self.layer_norm(self.transform(x, self._config.hidden_act))
        return tf.matmul(rows(x), tf.cast(word_embeddings, x.dtype), transpose_b=True)

    def logits(self, scores):
        """Adds the bias; returns float32 of the shape of the scores."""
        return tf.cast(scores, tf.float32) + self.bias

    def losses(self, scores, labels):
        """Returns the losses, float32 [B P], and the most probable tokens, int32 [B P]; `labels` is int32 [B P]."""
        return cross_entropy(scores, tf.convert_to_tensor(self.bias), labels)


class NextSentenceHead(keras.layers.Layer):
    """Classifies whether text B follows text A (class 0) or is random (class 1).
    Paper: section 3.1, Task 2."""

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        self.dense = Linear(config.hidden_size, 2, config)

    def call(self, pooled_output):
        """Maps float [B, H] to logits, float32 [B, 2]; for packed rows, [B, N, H] to [B, N, 2]."""
        return tf.cast(self.dense(pooled_output), tf.float32)


def pool_tokens(x: tf.Tensor, input_mask: tf.Tensor, pooling: str) -> tf.Tensor:
    """Computes one vector for the tokens of each row, with [CLS] and [SEP] but without padding.
    `x`: float [B, S, ..., H].
    `input_mask`: int32 [B, S], 0 on padding.
    `pooling`: "cls", "mean" or "max".
    Returns float32 [B, ..., H]; the mean and the maximum of a row without tokens are 0."""
    if pooling == "cls":
        return tf.cast(x[:, 0], tf.float32)
    x32, mask = tf.cast(x, tf.float32), tf.cast(input_mask, tf.float32)
    for _ in x.shape[2:]:
        mask = tf.expand_dims(mask, -1)
    count = tf.reduce_sum(mask, axis=1)  # [B, ..., 1]
    if pooling == "mean":
        return tf.reduce_sum(x32 * mask, axis=1) / tf.maximum(count, 1.0)
    # The maximum of a row without tokens must be finite, because an infinite value with weight 0 gives NaN.
    return tf.where(count > 0, tf.reduce_max(tf.where(mask > 0, x32, x32.dtype.min), axis=1), 0.0)


class ClassificationHead(keras.layers.Layer):
    """Dropout and an affine map of one vector per row; a single output means regression.
    Paper: section 3.2 and Figure 4 (a), (b); section 4.1.
    `num_outputs`: number of classes; 1 for a regression.
    `pooling`: the vector of a row; "cls" is the pooled output, as in the paper; for "mean" and "max" see `pool_tokens`.
    `adds_orders`: whether two consecutive rows are the two orders of one pair of texts. Both rows then have the logits
      of the sum of their vectors, as in GPT's similarity tasks.
    `reads`: name of the encoder's output that the head takes.
    `columns`: names of the batch's columns that the head also takes."""

    def __init__(self, config: BertConfig, num_outputs: int, pooling: str = "cls", adds_orders: bool = False, **kwargs):
        super().__init__(**kwargs)
        self._rate, self._pooling = config.head_dropout_prob, pooling
        self.reads = "pooled_output" if pooling == "cls" else "sequence_output"
        self.columns = ("input_mask",) * (pooling != "cls") + ("order_ids",) * adds_orders
        self.dense = Linear(config.hidden_size, num_outputs, config)

    def call(self, x, input_mask=None, order_ids=None, training=False, seed=None):
        """Maps the encoder's output, float [B, H] or [B, S, H], to logits, float32 [B, num_outputs]. With pooling
        "mean" or "max", `input_mask` is int32 [B, S]. With `adds_orders`, `order_ids` is int32 [B]: 0 for the first row
        of a pair, 1 for the second."""
        if input_mask is not None:
            x = tf.cast(pool_tokens(x, input_mask, self._pooling), x.dtype)
        if order_ids is not None:
            # A padding row is a copy of a first row, and may have no second row.
            other = tf.range(tf.shape(x)[0]) + 1 - 2 * order_ids
            x += tf.gather(x, tf.minimum(other, tf.shape(x)[0] - 1))
        x = dropout(x, self._rate, dropout_seed(training, seed), tf.constant(_DROPOUT_SITE))
        return tf.cast(self.dense(x), tf.float32)


class SpanHead(keras.layers.Layer):
    """Scores each token as the start and as the end of an answer, without dropout, as in google-research/bert.
    Paper: section 3.2, Figure 4 (c); section 4.2.
    `reads`: name of the encoder's output that the head takes.
    `is_per_token`: True, because the head maps each token independently."""

    reads = "sequence_output"
    is_per_token = True
    checkpoint_name = "span_head"

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        self.dense = Linear(config.hidden_size, 2, config)

    def call(self, x, training=False, seed=None):
        """Maps float [B, S, H] to logits, float32 [B, S, 2]: start and end."""
        del training, seed
        return tf.cast(self.dense(x), tf.float32)


class TaggingHead(keras.layers.Layer):
    """Dropout and an affine map of each token.
    Paper: Figure 4 (d).
    `reads`: name of the encoder's output that the head takes.
    `is_per_token`: True, because the head maps each token independently.
    `checkpoint_name`: name of the head in checkpoints. By this name, other formats recognize a token classifier."""

    reads = "sequence_output"
    is_per_token = True
    checkpoint_name = "token_head"

    def __init__(self, config: BertConfig, num_labels: int, **kwargs):
        super().__init__(**kwargs)
        self._rate = config.head_dropout_prob
        self.dense = Linear(config.hidden_size, num_labels, config)

    def call(self, x, training=False, seed=None):
        """Maps float [B, S, H] to logits, float32 [B, S, C]."""
        x = dropout(x, self._rate, dropout_seed(training, seed), _DROPOUT_SITE)
        return tf.cast(self.dense(x), tf.float32)


def layers_of(features: str, num_hidden_layers: int) -> tuple[int, ...]:
    """Returns the layer numbers of a row of Table 7; number 0 means the embeddings, and L the last layer.
    `features`: a name in `FEATURES`.
    `num_hidden_layers`: number of layers L.
    Raises ValueError: the encoder lacks one of the layers."""
    layers, combination = FEATURES[features]
    if layers is None:
        return tuple(range(0 if combination == "scaled_sum" else 1, num_hidden_layers + 1))
    numbers = tuple(layer if layer >= 0 else num_hidden_layers + 1 + layer for layer in layers)
    if min(numbers) < 1 and layers != (0,):
        raise ValueError(f"{features} reads {-min(layers)} hidden layers from the top, but the encoder has "
                         f"{num_hidden_layers}")  # fmt: skip
    return numbers


class FeatureTaggingHead(keras.layers.Layer):
    """A two-layer BiLSTM on activations of a frozen encoder, followed by an affine map.
    Paper: section 5.3. In a sum of layers, the weights of the layers are the softmax of learned numbers.
    `num_labels`: number of labels C.
    `features`: a name in `FEATURES`.
    `lstm_size`: number of units of each direction.
    `reads`: "activations"; see `FineTunedBert`.
    `layers`: the layers whose activations the head takes."""

    reads = "activations"

    def __init__(self, config: BertConfig, num_labels: int, features: str, lstm_size: int, **kwargs):
        super().__init__(**kwargs)
        self._rate = config.head_dropout_prob
        self.layers = layers_of(features, config.num_hidden_layers)
        count, self.layer_weights, self.scale = len(self.layers), None, None
        if FEATURES[features][1] != "concat":
            self.layer_weights = self.add_weight(
                name="layer_weights", shape=[count], initializer="zeros", experimental_autocast=False
            )
        if FEATURES[features][1] == "scaled_sum":
            self.scale = self.add_weight(name="scale", shape=[], initializer="ones", experimental_autocast=False)
        inputs = config.hidden_size * (1 if self.layer_weights is not None else count)
        sizes = [inputs, *[2 * lstm_size] * (_LSTM_LAYERS - 1)]
        self.lstms = [BiLstm(size, lstm_size) for size in sizes]
        self.dense = Linear(2 * lstm_size, num_labels, config)

    def call(self, x, read_mask, training=False, seed=None):
        """Computes the logits of each token's labels.
        `x`: float [B, P, K, H], activations of the tokens in `read_mask`; P is at most S.
        `read_mask`: int32 [B, S], 1 on tokens, then 0 on padding.
        `seed`: int32 [2] for the dropout masks.
        Returns logits, float32 [B, S, C]; values at padding are finite but have no meaning."""
        seed, static = dropout_seed(training, seed), read_mask.shape[1]
        length = tf.shape(read_mask)[1] if static is None else static
        lengths = tf.reduce_sum(read_mask, axis=1)
        x = self._combined(tf.cast(x, self.compute_dtype))
        if not inside_xla():
            # Skip padding, because it takes as much time as tokens. XLA needs a static length, so it reads padding too.
            x = x[:, : tf.maximum(tf.reduce_max(lengths), 1)]
        for number, lstm in enumerate(self.lstms):
            x = lstm(dropout(x, self._rate, seed, _DROPOUT_SITE + number), lengths)
        x = dropout(x, self._rate, seed, _DROPOUT_SITE + len(self.lstms))
        logits = tf.cast(self.dense(x), tf.float32)
        logits = tf.pad(logits, [[0, 0], [0, length - tf.shape(logits)[1]], [0, 0]])
        return tf.ensure_shape(logits, [None, static, logits.shape[2]])

    def _combined(self, x):
        """Concatenates the layers to float [B, P, K H], or sums them to float [B, P, H]."""
        if self.layer_weights is not None:
            weights = tf.nn.softmax(self.layer_weights) * (1.0 if self.scale is None else self.scale)
            return tf.einsum("bskh,k->bsh", x, tf.cast(weights, x.dtype))
        # Not -1 for the number of rows: a batch may have neither rows nor positions.
        rows, length = (static or tf.shape(x)[axis] for axis, static in enumerate(x.shape[:2]))
        return tf.reshape(x, [rows, length, x.shape[2] * x.shape[3]])
