"""The BERT encoder: embeddings, post-norm transformer blocks, pooler.

Paper: section 3 ("Model Architecture", "Input/Output Representations") and Figure 2; section 5.1 for
attention in one direction.

Letters: L layers, H hidden size, A heads, D = H / A; B batch, S sequence length.

Weights are made in the constructors, so that a model has all of them before its first call.
Softmax and layer normalisation are computed in float32 whatever the compute dtype. Every dropout
is stateless: its mask is a function of the seed passed to the call and of the place in the network.
"""

import functools
import math
from collections.abc import Mapping, Sequence

import tensorflow as tf
import tf_keras as keras

from bert_tf import fused
from bert_tf.config import BertConfig

# Added to the attention scores of what must not be seen; its exponential is zero in float32 beside any real score.
_HIDDEN_SCORE = -10000.0


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


class BertEncoder(keras.Model):
    """The transformer encoder, bidirectional unless the configuration says otherwise.

    Paper: section 3; section 5.1 for one direction.

    Args:
      config: shape and regularisation.
      recompute_activations: keep of each layer its input alone in training, and compute the layer again, with the
        same dropout masks, for its gradient: a third more computation for a fraction of the memory.
    """

    def __init__(self, config: BertConfig, recompute_activations: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self._recompute = recompute_activations
        self.embeddings = Embeddings(config)
        self.blocks = [Block(config) for _ in range(config.num_hidden_layers)]
        self.pooler = Dense(config.hidden_size, config.hidden_size, config)

    def call(self, inputs, training=False, seed=None, positions=None):
        """Encodes a batch.

        Args:
          inputs: dict of `input_ids`, `input_mask` (1 on pieces, 0 on padding), `segment_ids`, each
            int32 [B, S]. Without `input_mask` nothing is padding, without `segment_ids` all is segment 0.
            Rows that several examples share have more (`packed_rows`): `position_ids` [B, S]; `sequence_ids` [B, S],
            equal on pieces that see each other; `cls_positions` [B, N], where the examples begin.
          training: whether to drop.
          seed: int32 [2] for the dropout masks; None draws one.
          positions: int32 [B, P], in training: where the last layer is read, so that it is computed there alone.

        Returns:
          dict of `sequence_output` [B, S, H] (with `positions` [B, P, H]), `pooled_output` [B, H] (with
          `cls_positions` [B, N, H]), `embedding_output` [B, S, H], `encoder_outputs` (list of L, each [B, S, H],
          the last with `positions` [B, 1 + P, H] or [B, N + P, H]).

        Raises:
          ValueError: S is beyond `max_position_embeddings`.
        """
        input_ids = inputs["input_ids"]
        length = input_ids.shape[1]
        if length is not None and length > self.config.max_position_embeddings:
            raise ValueError(
                f"input_ids has {length} columns, max_position_embeddings is {self.config.max_position_embeddings}"
            )
        input_mask = inputs.get("input_mask", tf.ones_like(input_ids))
        segment_ids = inputs.get("segment_ids", tf.zeros_like(input_ids))
        seed = dropout_seed(training, seed)
        attention_bias = _attention_bias(input_mask, self.config.directionality, inputs.get("sequence_ids"))
        x = embedding_output = self.embeddings(input_ids, segment_ids, inputs.get("position_ids"), seed=seed)
        pooled = self._pooled_positions(input_mask, inputs)  # [B, 1], packed [B, N]
        read = None if positions is None else tf.concat([pooled, positions], axis=1)
        encoder_outputs = []
        for index, block in enumerate(self.blocks):
            layer = functools.partial(block, attention_bias=attention_bias, seed=seed, site=1 + 3 * index)
            if index == len(self.blocks) - 1:
                layer = functools.partial(layer, positions=read)
            x = (tf.recompute_grad(layer) if self._recompute and training else layer)(x)
            encoder_outputs.append(x)
        examples = pooled.shape[1]
        first = tf.gather(x, pooled, batch_dims=1) if positions is None else x[:, :examples]
        return {
            "sequence_output": x if positions is None else x[:, examples:],
            "pooled_output": tf.nn.tanh(self.pooler(first if "cls_positions" in inputs else first[:, 0])),
            "embedding_output": embedding_output,
            "encoder_outputs": encoder_outputs,
        }

    def _pooled_positions(self, input_mask: tf.Tensor, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """What has seen its whole row or example: its first position, or left to right its last piece.

        Returns:
          int32 [B, 1]; of packed rows [B, N].
        """
        looks_on = self.config.directionality == "ltr"
        if "cls_positions" in inputs:
            place = inputs["cls_positions"]  # [B, N]
            if looks_on:
                numbers = tf.range(1, place.shape[1] + 1)
                own = inputs["sequence_ids"][:, tf.newaxis, :] == numbers[:, tf.newaxis]  # [B, N, S]
                place += tf.maximum(tf.reduce_sum(tf.cast(own, tf.int32), axis=2) - 1, 0)
            return place
        if not looks_on:
            return tf.zeros_like(input_mask[:, :1])
        return tf.maximum(tf.reduce_sum(input_mask, axis=1, keepdims=True) - 1, 0)


def _attention_bias(input_mask: tf.Tensor, directionality: str, sequence_ids: tf.Tensor | None = None) -> tf.Tensor:
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
