"""The BERT encoder: embeddings, post-norm transformer blocks, and the pooler.

Paper: section 3 ("Model Architecture", "Input/Output Representations") and Figure 2; section 5.1 for
attention in one direction.

Letters: P positions that the caller selects, N examples in a packed row, Q positions that a layer computes.

`PlainOperations` defines the computations of the layers. Training uses `FusedOperations`, and exports use
`HalvedOperations`. Both are faster, and tests in `tests/bert_tf/modeling/` compare them with `PlainOperations`. To add
a kind of attention, change `PlainOperations` first, and train with `BertEncoder(config, fused=False)`. Before you
export, change `HalvedOperations` too.

Every dropout is stateless: its mask is a function of the call's seed and of the dropout's site. The site is the number
of the dropout in the network.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.modeling.dense import LayerNorm, Linear, initializer
from bert_tf.modeling.dropout import dropout, dropout_seed, static_or_dynamic_shape
from bert_tf.modeling.fused import FusedOperations
from bert_tf.modeling.keras_versions import refuse_keras_3
from bert_tf.modeling.precision import policy
from bert_tf.modeling.row_layout import PaddedRows

# This value is added to the attention scores of hidden positions, so that their probabilities are zero in float32.
_HIDDEN_SCORE = -10000.0
# The distance from which on all tokens have the same relative attention bias.
_FARTHEST = 128
# Maps names of inputs in other projects to our names. Inputs with such names are refused. Other unknown names are
# ignored, since a batch also contains labels.
_NAMES_ELSEWHERE = {
    "attention_mask": "input_mask",
    "token_type_ids": "segment_ids",
    "input_type_ids": "segment_ids",
    "input_word_ids": "input_ids",
    "padding_mask": "input_mask",
    "token_ids": "input_ids",
}


class PlainOperations(PaddedRows):
    """The computations of the layers as separate TensorFlow operations; TensorFlow derives the gradients.

    `bert_tf.modeling.fused.FusedOperations` has the same methods and results, and is faster in training. The methods
    take the layers that own the weights, and `x` in the compute dtype. For the dropout, the methods take its `rate`,
    its `seed` (int32 [2], or None without dropout) and its `site`.
    """

    def norm_dropout(self, x, norm: LayerNorm, rate: float, seed, site: int):
        """Computes dropout(LayerNorm(x)), float [..., H]."""
        return dropout(norm(x), rate, seed, site)

    def attention(self, layer: "SelfAttention", x, query_input, attention_bias, rate: float, seed, site: int):
        """Computes softmax(Q K^T / sqrt(D) + bias) V for each head; see `SelfAttention.call`."""

        def heads(x):  # [B, S, H] to [B, A, S, D]
            shape = static_or_dynamic_shape(x)
            return tf.transpose(tf.reshape(x, [shape[0], shape[1], layer.num_heads, layer.head_size]), [0, 2, 1, 3])

        query, key, value = heads(layer.query(query_input)), heads(layer.key(x)), heads(layer.value(x))
        query *= tf.cast(layer.head_size**-0.5, query.dtype)
        scores = tf.matmul(query, key, transpose_b=True)  # [B, A, S, S]
        # The softmax is always computed in float32.
        probabilities = tf.nn.softmax(tf.cast(scores, tf.float32) + attention_bias)
        probabilities = dropout(probabilities, rate, seed, site)
        context = tf.matmul(tf.cast(probabilities, value.dtype), value)
        return tf.transpose(context, [0, 2, 1, 3])

    def dense_activation(self, x, dense: Linear, hidden_act: str):
        """Computes activation(x W + b)."""
        return dense(x, hidden_act)

    def residual_norm(self, x, residual, dense: Linear, norm: LayerNorm, rate: float, seed, site: int):
        """Computes LayerNorm(residual + dropout(x W + b)); `x` has the shape [B, S, A, D] (contexts) or [B, S, 4H]."""
        if x.shape.rank == 4:
            x = tf.reshape(x, tf.shape(residual))
        return norm(residual + dropout(dense(x), rate, seed, site))


PLAIN, FUSED = PlainOperations(), FusedOperations()


class Embeddings(keras.layers.Layer):
    """The normalized sum of word, position and segment embeddings, with dropout.

    If `embedding_size` differs from the hidden size, an affine map follows. Without a second segment, all tokens have
    segment 0; without any segment, there are no segment embeddings.

    Paper: section 3, Figure 2.
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        self._config = config
        with tf.name_scope(self.name):
            self.word_embeddings = self._table("word_embeddings", config.vocab_size)
            self.position_embeddings = self._table("position_embeddings", config.max_position_embeddings)
            if config.type_vocab_size:
                self.segment_embeddings = self._table("segment_embeddings", config.type_vocab_size)
            self.layer_norm = LayerNorm(config.embedding_width, config.layer_norm_eps, name="layer_norm")
            if config.relative_position_buckets:
                self.relative_position_bias = self.add_weight(
                    name="relative_position_bias", initializer=initializer(config), experimental_autocast=False,
                    shape=[config.relative_position_buckets, config.num_attention_heads],
                )  # fmt: skip
            if config.embedding_size:
                self.projection = Linear(config.embedding_size, config.hidden_size, config, name="projection")

    def _table(self, name: str, rows: int) -> tf.Variable:
        # `__init__` assigns each table to an attribute with the table's name. With another name, a checkpoint would
        # have two paths for the table.
        shape = [rows, self._config.embedding_width]
        return self.add_weight(
            name=name, shape=shape, initializer=initializer(self._config), experimental_autocast=False
        )

    def _gather(self, table: tf.Variable, ids: tf.Tensor) -> tf.Tensor:
        # Convert the variable to a tensor first. A gather from the variable itself would make TensorFlow copy the table
        # at each later read and assignment. Keras builds a subclassed model with float ids when it loads the model.
        ids = ids if ids.dtype in (tf.int32, tf.int64) else tf.cast(ids, tf.int32)
        return tf.cast(tf.gather(tf.convert_to_tensor(table), ids), self.compute_dtype)

    def call(self, input_ids, segment_ids, position_ids=None, seed=None, operations=None):
        """Embeds a batch.

        Args:
          input_ids: int32 [B, S], or int32 [N] in the layout `JoinedRows`.
          segment_ids: int32 of the same shape.
          position_ids: int32 of the same shape; None for positions from 0 in each row [B, S].
          seed: int32 [2]; None without dropout.
          operations: see `PlainOperations`; None for plain operations.

        Returns:
          float [B, S, H] or [N, H].
        """
        x = self._gather(self.word_embeddings, input_ids)  # [B, S, H]
        if position_ids is None:
            length = input_ids.shape[1] or tf.shape(input_ids)[1]
            x += tf.cast(tf.convert_to_tensor(self.position_embeddings)[:length], x.dtype)
        else:
            x += self._gather(self.position_embeddings, position_ids)
        if self._config.type_vocab_size:
            one = self._config.type_vocab_size == 1
            x += self._gather(self.segment_embeddings, tf.zeros_like(segment_ids) if one else segment_ids)
        # This dropout has site 0, and the sites of the blocks start at 1.
        x = (operations or PLAIN).norm_dropout(x, self.layer_norm, self._config.hidden_dropout_prob, seed, site=0)
        return self.projection(x) if self._config.embedding_size else x

    def relative_bias(self, position_ids: tf.Tensor) -> tf.Tensor:
        """Returns the learned attention biases of all pairs of tokens.

        Args:
          position_ids: int32 [B, S], or [1, S] for equal positions in all rows.

        Returns:
          float32 [B, A, S, S] or [1, A, S, S].
        """
        buckets = tf.constant(distance_buckets(self._config))
        distances = position_ids[:, tf.newaxis, :] - position_ids[:, :, tf.newaxis]  # [B, S, S], to the key
        numbers = tf.gather(buckets, distances + self._config.max_position_embeddings - 1)
        return tf.transpose(tf.gather(tf.convert_to_tensor(self.relative_position_bias), numbers), [0, 3, 1, 2])


def distance_buckets(config: BertConfig) -> np.ndarray:
    """Numbers the ranges of distances between two tokens that share a learned attention bias.

    Half of the ranges are for each direction. Of these, half are single distances, and the others grow exponentially up
    to a distance of 128 (C. Raffel et al., "Exploring the Limits of Transfer Learning", 2020, section 2.1).

    Returns:
      int32 [2 P - 1], the number of each distance from 1 - P to P - 1, where P is `max_position_embeddings`.
    """
    half = config.relative_position_buckets // 2
    exact, most = half // 2, config.max_position_embeddings
    near, far = np.arange(exact), np.arange(exact, most, dtype=np.float32)
    growth = np.log(far / exact) / math.log(_FARTHEST / exact) * (half - exact)
    numbers = np.concatenate([near, np.minimum(exact + growth.astype(np.int32), half - 1)])[:most].astype(np.int32)
    return np.concatenate([numbers[:0:-1], numbers + np.where(np.arange(most) > 0, half, 0)]).astype(np.int32)


class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention up to the context vectors.

    `Block` applies `output_dense` with the dropout, the residual connection and the layer normalization.

    Paper: section 3 ("Model Architecture").
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        hidden, self._rate = config.hidden_size, config.attention_probs_dropout_prob
        self.num_heads, self.head_size = config.num_attention_heads, config.head_size
        with tf.name_scope(self.name):
            self.query = Linear(hidden, hidden, config, name="query")
            self.key = Linear(hidden, hidden, config, name="key")
            self.value = Linear(hidden, hidden, config, name="value")
            self.output_dense = Linear(hidden, hidden, config, name="output_dense")

    def call(self, x, attention_bias, seed=None, site=0, query_input=None, operations=None):
        """Computes the context vectors.

        Args:
          x: float [B, S, H].
          attention_bias: float32, added to the scores; any shape that broadcasts to [B, A, S, S].
          seed: int32 [2]; None without dropout.
          site: site of the dropout on the attention probabilities.
          query_input: float [B, Q, H], the vectors at the positions to compute; the bias must then broadcast to
            [B, A, Q, S]. None for all positions.
          operations: see `PlainOperations`; None for plain operations.

        Returns:
          The context vectors of all heads, float [B, S, A, D] or [B, Q, A, D].
        """
        query_input = x if query_input is None else query_input
        return (operations or PLAIN).attention(self, x, query_input, attention_bias, self._rate, seed, site)


def attention_bias(input_mask: tf.Tensor, directionality: str, sequence_ids: tf.Tensor | None = None) -> tf.Tensor:
    """Computes the score bias that hides padding, tokens in the wrong direction, and other examples in a packed row.

    Args:
      input_mask: int32 [B, S].
      directionality: see `BertConfig`.
      sequence_ids: int32 [B, S] for packed rows; None otherwise.

    Returns:
      float32 [B, 1, 1, S]; for attention in one direction and for packed rows [B, 1, S, S].
    """
    # LiteRT's converter does not support tf.newaxis for two axes at once.
    seen = tf.expand_dims(tf.expand_dims(tf.cast(input_mask, tf.float32), 1), 1)  # [B, 1, 1, S]
    if sequence_ids is not None:
        same = sequence_ids[:, tf.newaxis, :, tf.newaxis] == sequence_ids[:, tf.newaxis, tf.newaxis, :]
        seen *= tf.cast(same, tf.float32)  # [B, 1, S, S]
    if directionality != "bidi":
        length = tf.shape(input_mask)[1]
        lower, upper = (-1, 0) if directionality == "ltr" else (0, -1)
        seen *= tf.linalg.band_part(tf.ones([length, length]), lower, upper)  # [B, 1, S, S]
    return (1.0 - seen) * _HIDDEN_SCORE


class Block(keras.layers.Layer):
    """One layer: attention and feed-forward, each followed by dropout, residual connection and layer normalization.

    Paper: section 3 ("Model Architecture"); post-norm, as in google-research/bert.
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        self._config = config
        hidden, wide = config.hidden_size, config.intermediate_size
        with tf.name_scope(self.name):
            self.attention = SelfAttention(config, name="attention")
            self.attention_norm = LayerNorm(hidden, config.layer_norm_eps, name="attention_norm")
            self.intermediate = Linear(hidden, wide, config, name="intermediate")
            self.output_dense = Linear(wide, hidden, config, name="output_dense")
            self.output_norm = LayerNorm(hidden, config.layer_norm_eps, name="output_norm")

    def call(self, x, attention_bias, seed=None, site=0, positions=None, operations=None):
        """Computes the layer.

        Args:
          x: float [B, S, H], or the layout of the operations.
          attention_bias: float32 [B, 1 or A, 1 or S, S], added to the attention scores.
          seed: int32 [2]; None without dropout.
          site: site of the first of the three dropouts; the others have the next two sites.
          positions: int32 [B, Q], the positions to compute; None for all positions.
          operations: see `PlainOperations`; None for plain operations.

        Returns:
          float [B, S, H] or [B, Q, H].
        """
        residual, operations = x, operations or PLAIN
        if positions is not None:
            residual = operations.gathered(x, positions)  # [B, Q, H]
            if attention_bias.shape[2] != 1:
                attention_bias = tf.gather(attention_bias, positions, axis=2, batch_dims=1)
        rate, query_input = self._config.hidden_dropout_prob, None if positions is None else residual
        context = self.attention(
            x, attention_bias, seed=seed, site=site, query_input=query_input, operations=operations
        )  # [B, S, A, D]
        dense, norm = self.attention.output_dense, self.attention_norm
        x = operations.residual_norm(context, residual, dense, norm, rate, seed, site + 1)
        wide = operations.dense_activation(x, self.intermediate, self._config.hidden_act)  # [B, S, 4H]
        return operations.residual_norm(wide, x, self.output_dense, self.output_norm, rate, seed, site + 2)


@keras.utils.register_keras_serializable("bert_tf")
class BertEncoder(keras.Model):
    """The transformer encoder, which is bidirectional unless the configuration says otherwise.

    Paper: section 3; section 5.1 for one direction.

    Args:
      config: configuration of the encoder.
      recompute_activations: whether training stores only the input of each layer. The backward pass then computes each
        layer again with the same dropout masks. This needs a third more computation, but only a fraction of the memory.
      fused: whether training uses the fused operations of `bert_tf.modeling.fused`. Plain operations give the same
        results with the same dropout masks, but are slower.

    Attributes:
      embeddings: the layer that embeds tokens, positions and segments.
      blocks: list of the L transformer layers.
      pooler: the dense layer of the pooled output.
      fused: see the argument. A change has no effect on functions that are already traced.
      inference_operations: the operations for inference: `PLAIN`, `FUSED`, or `HalvedOperations`. On a CPU, the default
        is `PLAIN`: there, TensorFlow itself fuses products, biases and activations, and nothing has to be compiled.
    """

    def __init__(self, config: BertConfig, recompute_activations: bool = False, fused: bool = True, **kwargs):
        super().__init__(**kwargs)
        if self.dtype_policy.variable_dtype != "float32":
            remedy = "the weights must be float32; set the policy mixed_float16, mixed_bfloat16 or float32"
            raise ValueError(f"the Keras policy is {self.dtype_policy.name}, but {remedy}")
        if len(config.encoders) > 1:
            raise ValueError(f"directionality={config.directionality} means two encoders; call make_encoder")
        self.config = config
        self.fused = fused
        self.inference_operations = FUSED if tf.config.get_visible_devices("GPU") else PLAIN
        self._recompute = recompute_activations
        with tf.name_scope(self.name), policy(self.dtype_policy.name):
            self.embeddings = Embeddings(config, name="embeddings")
            self.blocks = [Block(config, name=f"block_{number}") for number in range(config.num_hidden_layers)]
            self.pooler = Linear(config.hidden_size, config.hidden_size, config, name="pooler")

    @property
    def encoders(self) -> list["BertEncoder"]:
        """The encoders of which this encoder consists: only itself; see `EncoderPair`."""
        return [self]

    def call(self, inputs, training=False, seed=None, positions=None):
        """Encodes a batch.

        Args:
          inputs: dict of `input_ids`, `input_mask` (1 on tokens, 0 on padding) and `segment_ids`, each int32 [B, S].
            Without `input_mask`, all positions are tokens; without `segment_ids`, all tokens are in segment 0.
            A packed row contains several examples (see `packed_rows`). Packed rows need three more int32 inputs:
            `position_ids` [B, S] gives the position of each token in its example. `sequence_ids` [B, S] gives the
            number of the token's example in the row, counted from 1. `cls_positions` [B, N] gives the positions at
            which the examples begin.
          training: whether to apply dropout.
          seed: int32 [2], seed of the dropout masks; None to draw a random seed.
          positions: int32 [B, P], positions at which to compute the last layer, in addition to the positions of the
            pooled output; None for all positions.

        Returns:
          A dict of float tensors:

          - `sequence_output`: the output of the last layer, [B, S, H], or [B, P, H] if `positions` is given.
          - `pooled_output`: [B, H], or [B, N, H] for packed rows.
          - `embedding_output`: [B, S, H].
          - `encoder_outputs`: a list of the outputs of the L layers, each [B, S, H]. If `positions` is given, the last
            output also contains the positions of the pooled output: [B, 1 + P, H], or [B, N + P, H] for packed rows.

        Raises:
          ValueError: S exceeds `max_position_embeddings`; `input_ids` is missing, or its rank is not 2; or an input has
            a name from another project.
        """
        _check_names_and_rank(inputs)
        input_ids = inputs["input_ids"]
        length = input_ids.shape[1]
        if length is not None and length > self.config.max_position_embeddings:
            raise ValueError(
                f"input_ids has {length} columns, but max_position_embeddings is {self.config.max_position_embeddings}"
            )
        input_mask = inputs.get("input_mask", tf.ones_like(input_ids))
        segment_ids = inputs.get("segment_ids", tf.zeros_like(input_ids))
        seed = dropout_seed(training, seed)
        operations = (FUSED if self.fused else PLAIN) if training else self.inference_operations
        operations = operations.of_rows(input_mask)
        bias = attention_bias(input_mask, self.config.directionality, inputs.get("sequence_ids"))
        if self.config.relative_position_buckets:
            positions_in_rows = tf.range(tf.shape(input_ids)[1])[tf.newaxis]
            bias += self.embeddings.relative_bias(inputs.get("position_ids", positions_in_rows))  # [B, A, S, S]
        if self.config.extract_token_id is not None:
            is_read = self._is_end(inputs.get("sequence_ids", input_mask))
            input_ids = tf.where(is_read, self.config.extract_token_id, input_ids)
        columns = operations.joined(input_ids, segment_ids, inputs.get("position_ids"))
        x = embedding_output = self.embeddings(*columns, seed=seed, operations=operations)
        pooled = self._pooled_positions(input_mask, inputs)  # [B, 1], packed [B, N]
        read = None if positions is None else tf.concat([pooled, tf.cast(positions, tf.int32)], axis=1)
        encoder_outputs = []
        for index, block in enumerate(self.blocks):
            last = index == len(self.blocks) - 1
            options = {"seed": seed, "site": 1 + 3 * index, "positions": read if last else None}
            layer = functools.partial(block, operations=operations, **options)
            x = (tf.recompute_grad(layer) if self._recompute and training else layer)(x, bias)
            encoder_outputs.append(x)
        examples = pooled.shape[1]
        first = operations.gathered(x, pooled) if positions is None else x[:, :examples]
        first = first if "cls_positions" in inputs else first[:, 0]
        has_pooler = self.config.extract_token_id is None
        pooled_output = self.pooler(first, self.config.pooler_activation) if has_pooler else first
        return {
            "sequence_output": operations.padded(x) if positions is None else x[:, examples:],
            "pooled_output": pooled_output,
            "embedding_output": operations.padded(embedding_output),
            "encoder_outputs": [operations.padded(output) for output in encoder_outputs],
        }

    def __repr__(self) -> str:
        config, weights = self.config, sum(variable.shape.num_elements() for variable in self.variables)
        return (
            f"{type(self).__name__}({config.family}, {config.num_hidden_layers} layers, hidden size "
            f"{config.hidden_size}, {config.num_attention_heads} heads: {weights:,} weights)"
        )

    def get_config(self) -> dict:
        """Returns the constructor's arguments and the frozen layers, so that Keras can save this encoder."""
        options = {"recompute_activations": self._recompute, "fused": self.fused, "dtype": self.dtype_policy.name}
        frozen = [index for index, layer in enumerate(self._all_layers()) if not layer.trainable]
        return {"config": dataclasses.asdict(self.config), "name": self.name, "frozen": frozen, **options}

    def _all_layers(self) -> list[keras.layers.Layer]:
        """Returns the encoder and all its layers in a fixed order, without the metrics that `compile` adds."""
        parts = (self.embeddings, *self.blocks, self.pooler)
        inner = [part for top in parts for part in (top, *top.submodules)]
        return [self, *(part for part in inner if isinstance(part, keras.layers.Layer))]

    def build_from_config(self, config: dict) -> None:
        """Does nothing: the constructor has created the weights, and Keras's method would call the model on floats."""

    @classmethod
    def from_config(cls, config: dict, custom_objects=None) -> "BertEncoder":
        """Builds the encoder that `get_config` describes, with new weights and the same dtypes and frozen layers."""
        config = dict(config)
        frozen = config.pop("frozen")
        encoder = cls(**config | {"config": BertConfig(**config["config"])})
        layers = encoder._all_layers()
        for index in frozen:
            layers[index].trainable = False
        return encoder

    def _pooled_positions(self, input_mask: tf.Tensor, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Finds the position of the pooled token, which must attend to all tokens of the row or example.

        The pooled token is the first token, or the last token if the direction is left to right.
        """
        left_to_right = self.config.directionality == "ltr"
        if "cls_positions" in inputs:
            positions = inputs["cls_positions"]  # [B, N]
            if left_to_right:
                numbers = tf.range(1, positions.shape[1] + 1)
                same = inputs["sequence_ids"][:, tf.newaxis, :] == numbers[:, tf.newaxis]  # [B, N, S]
                positions += tf.maximum(tf.reduce_sum(tf.cast(same, tf.int32), axis=2) - 1, 0)
            return positions
        if not left_to_right:
            return tf.zeros_like(input_mask[:, 0], tf.int32)[:, tf.newaxis]  # one column, even if S is dynamic
        return tf.maximum(tf.reduce_sum(tf.cast(input_mask, tf.int32), axis=1, keepdims=True) - 1, 0)

    def _is_end(self, sequence_ids: tf.Tensor) -> tf.Tensor:
        """Returns whether each token is the pooled token of its row or example, bool [B, S]; the ids are 0 on padding.

        This is the last token if the direction is left to right, else the first token.
        """
        sequence_ids = tf.cast(sequence_ids, tf.int32)  # a mask may be bool
        neighbors = tf.pad(sequence_ids, [[0, 0], [1, 1]])
        neighbors = neighbors[:, 2:] if self.config.directionality == "ltr" else neighbors[:, :-2]
        return (sequence_ids > 0) & (sequence_ids != neighbors)


def _check_names_and_rank(inputs: Mapping[str, tf.Tensor]) -> None:
    """Checks the names of the inputs and the rank of `input_ids`."""
    if not isinstance(inputs, Mapping):
        raise ValueError(
            f"the inputs are {type(inputs).__name__}; give a dict of input_ids, input_mask and segment_ids"
        )
    refuse_keras_3(dict(inputs))
    for theirs, ours in _NAMES_ELSEWHERE.items():
        if theirs in inputs:
            raise ValueError(f"unknown input {theirs!r}; bert_tf names it {ours!r}")
    if "input_ids" not in inputs:
        raise ValueError(f"input_ids is missing; the inputs are {', '.join(inputs) or 'empty'}")
    input_ids = inputs["input_ids"]
    if isinstance(input_ids, tf.RaggedTensor):
        raise ValueError("input_ids is ragged; pad it with .to_tensor(), and add an input_mask that is 0 on padding")
    if input_ids.shape.rank != 2:
        raise ValueError(f"input_ids has the shape {input_ids.shape}; it must be [batch, sequence]")
