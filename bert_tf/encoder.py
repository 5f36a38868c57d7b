"""The BERT encoder: embeddings, post-norm transformer blocks, pooler.

Paper: section 3 ("Model Architecture", "Input/Output Representations") and Figure 2; section 5.1 for
attention in one direction.

Letters: L layers, H hidden size; B batch, S sequence length, P positions that are read, N examples of a packed row.

Every dropout is stateless: its mask is a function of the call's seed and of the dropout's site in the network.
"""

import dataclasses
import functools
from collections.abc import Mapping

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.modeling.attention import attention_bias
from bert_tf.modeling.block import Block
from bert_tf.modeling.dropout import dropout_seed
from bert_tf.modeling.embeddings import Embeddings
from bert_tf.modeling.layers import Dense
from bert_tf.modeling.precision import policy

# What other projects call our inputs. An unknown name is ignored, since a batch also holds labels.
_NAMES_ELSEWHERE = {
    "attention_mask": "input_mask",
    "token_type_ids": "segment_ids",
    "input_type_ids": "segment_ids",
    "input_word_ids": "input_ids",
}


@keras.utils.register_keras_serializable("bert_tf")
class BertEncoder(keras.Model):
    """The transformer encoder, bidirectional unless the configuration says otherwise.

    Paper: section 3; section 5.1 for one direction.

    Args:
      config: shape and regularization.
      recompute_activations: whether training stores the input of each layer alone and computes the layer again, with
        the same dropout masks, for its gradient: a third more computation for a fraction of the memory.
      fused: whether training uses the fused operations of `bert_tf.modeling.fused`. Without them it uses plain ones,
        which compute the same with the same dropout masks, slower.

    Attributes:
      fused: as given; a function that is traced already keeps what it had.
      fused_inference: the same for inference. It is false at first, so that a served graph needs no compiler.
    """

    def __init__(self, config: BertConfig, recompute_activations: bool = False, fused: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.fused, self.fused_inference = fused, False
        self._recompute = recompute_activations
        self.embeddings = Embeddings(config)
        self.blocks = [Block(config) for _ in range(config.num_hidden_layers)]
        self.pooler = Dense(config.hidden_size, config.hidden_size, config)

    def call(self, inputs, training=False, seed=None, positions=None):
        """Encodes a batch.

        Args:
          inputs: dict of `input_ids`, `input_mask` (1 on tokens, 0 on padding), `segment_ids`, each
            int32 [B, S]. Without `input_mask` nothing is padding, without `segment_ids` all is segment 0.
            Packed rows, which hold several examples each (`packed_rows`), add `position_ids` [B, S]; `sequence_ids`
            [B, S], equal on tokens that see each other; `cls_positions` [B, N], where the examples begin.
          training: whether to apply dropout.
          seed: int32 [2] for the dropout masks; None draws one.
          positions: int32 [B, P]: where the last layer is read, so that it is computed there alone. None reads all.

        Returns:
          dict of `sequence_output` [B, S, H] (with `positions` [B, P, H]), `pooled_output` [B, H] (with
          `cls_positions` [B, N, H]), `embedding_output` [B, S, H], `encoder_outputs` (list of L, each [B, S, H],
          the last with `positions` [B, 1 + P, H] or [B, N + P, H]).

        Raises:
          ValueError: S is beyond `max_position_embeddings`; `input_ids` is missing or not of rank 2; or an input has
            another project's name.
        """
        _check_names_and_rank(inputs)
        input_ids = inputs["input_ids"]
        length = input_ids.shape[1]
        if length is not None and length > self.config.max_position_embeddings:
            raise ValueError(
                f"input_ids has {length} columns, max_position_embeddings is {self.config.max_position_embeddings}"
            )
        input_mask = inputs.get("input_mask", tf.ones_like(input_ids))
        segment_ids = inputs.get("segment_ids", tf.zeros_like(input_ids))
        seed, fused = dropout_seed(training, seed), self.fused if training else self.fused_inference
        bias = attention_bias(input_mask, self.config.directionality, inputs.get("sequence_ids"))
        position_ids = inputs.get("position_ids")
        x = embedding_output = self.embeddings(input_ids, segment_ids, position_ids, seed=seed, fused=fused)
        pooled = self._pooled_positions(input_mask, inputs)  # [B, 1], packed [B, N]
        read = None if positions is None else tf.concat([pooled, positions], axis=1)
        encoder_outputs = []
        for index, block in enumerate(self.blocks):
            last = index == len(self.blocks) - 1
            options = {"seed": seed, "site": 1 + 3 * index, "positions": read if last else None, "fused": fused}
            layer = functools.partial(block, **options)
            x = (tf.recompute_grad(layer) if self._recompute and training else layer)(x, bias)
            encoder_outputs.append(x)
        examples = pooled.shape[1]
        first = tf.gather(x, pooled, batch_dims=1) if positions is None else x[:, :examples]
        return {
            "sequence_output": x if positions is None else x[:, examples:],
            "pooled_output": tf.nn.tanh(self.pooler(first if "cls_positions" in inputs else first[:, 0])),
            "embedding_output": embedding_output,
            "encoder_outputs": encoder_outputs,
        }

    def get_config(self) -> dict:
        """Returns the constructor's arguments as JSON, so that a Keras model with this encoder can be saved."""
        options = {"recompute_activations": self._recompute, "fused": self.fused, "dtype": self.dtype_policy.name}
        frozen = [index for index, layer in enumerate(self._all_layers()) if not layer.trainable]
        return {"config": dataclasses.asdict(self.config), "name": self.name, "frozen": frozen, **options}

    def _all_layers(self) -> list[keras.layers.Layer]:
        """Returns the encoder and all layers in it, always in the same order, without metrics of `compile`."""
        parts = (self.embeddings, *self.blocks, self.pooler)
        inner = [part for top in parts for part in (top, *top.submodules)]
        return [self, *(part for part in inner if isinstance(part, keras.layers.Layer))]

    def build_from_config(self, config: dict) -> None:
        """Does nothing: the constructor has created the weights, and Keras would build with floats as token ids."""

    @classmethod
    def from_config(cls, config: dict, custom_objects=None) -> "BertEncoder":
        """Builds the encoder that `get_config` describes, with new weights, as precise and as frozen as it was."""
        config = dict(config)
        frozen = config.pop("frozen")
        with policy(config["dtype"]):
            encoder = cls(**config | {"config": BertConfig(**config["config"])})
        layers = encoder._all_layers()
        for index in frozen:
            layers[index].trainable = False
        return encoder

    def _pooled_positions(self, input_mask: tf.Tensor, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Finds the position that has seen its whole row or example: the first one, or left to right the last token.

        Returns:
          int32 [B, 1]; for packed rows [B, N].
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
            return tf.zeros_like(input_mask[:, 0], tf.int32)[:, tf.newaxis]  # one column, also where S is dynamic
        return tf.maximum(tf.reduce_sum(tf.cast(input_mask, tf.int32), axis=1, keepdims=True) - 1, 0)


def _check_names_and_rank(inputs: Mapping[str, tf.Tensor]) -> None:
    """Refuses inputs that would be ignored under their name, such as a mask, or that are not a batch of rows."""
    for theirs, ours in _NAMES_ELSEWHERE.items():
        if theirs in inputs:
            raise ValueError(f"the input {theirs!r} is named {ours!r} here")
    if "input_ids" not in inputs:
        raise ValueError(f"input_ids is missing; the inputs are {', '.join(inputs) or 'empty'}")
    input_ids = inputs["input_ids"]
    if isinstance(input_ids, tf.RaggedTensor):
        raise ValueError("input_ids is ragged; pad it with .to_tensor(), and give an input_mask that is 0 on padding")
    if input_ids.shape.rank != 2:
        raise ValueError(f"input_ids has the shape {input_ids.shape}; it must be [batch, sequence]")
