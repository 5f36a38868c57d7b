"""A BiLSTM between the encoder and the head of a task.

Paper: section 5.1 and Table 5 ("+ BiLSTM"), which adds a randomly initialized BiLSTM on top of a left-to-right model.
The paper names no size; here each direction has H units, as in section 5.3.

Letters: B batch, S sequence length, H hidden size.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.modeling.lstm import BiLstm


class BiLstmHead(keras.layers.Layer):
    """A new BiLSTM over the tokens of each row, and a task's head on top of it.

    It reads rows, not packed rows, so that no state passes from one sequence to another. A head of the pooled output
    takes the last state of each direction: at the last token forward, at the first token backward. Both have read the
    whole row.

    Args:
      config: shape and regularization of the encoder.
      make_head: returns the task's head for a configuration; it gets one of hidden size 2 H.

    Attributes:
      reads: name of the encoder's output that it takes.
      reads_mask: that it also takes `input_mask`.
      head: the task's head.

    Raises:
      ValueError: the task's head reads neither the pooled output nor the sequence output.
    """

    reads = "sequence_output"
    reads_mask = True

    def __init__(self, config: BertConfig, make_head: Callable[[BertConfig], keras.layers.Layer], **kwargs):
        super().__init__(**kwargs)
        self.lstm = BiLstm(config.hidden_size, config.hidden_size)
        self.head = make_head(dataclasses.replace(config, hidden_size=2 * config.hidden_size))
        if self.head.reads not in ("pooled_output", "sequence_output"):
            raise ValueError(f"a head that reads {self.head.reads} cannot stand on a BiLSTM")

    def call(self, x, input_mask, training=False, seed=None):
        """Computes the logits of the task's head.

        Args:
          x: float [B, S, H].
          input_mask: int32 [B, S], 1 on tokens, then 0 on padding.
          training: whether to apply dropout.
          seed: int32 [2] for the dropout masks.
        """
        lengths, options = tf.reduce_sum(input_mask, axis=1), {"training": training, "seed": seed}
        x = self._states(tf.cast(x, self.compute_dtype), lengths)
        if self.head.reads == "pooled_output":
            return self.head(_last_states(x, lengths), **options)
        if getattr(self.head, "reads_mask", False):
            options["input_mask"] = input_mask
        return self.head(x, **options)

    def _states(self, x: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Runs the BiLSTM: float [B, S, H] to [B, S, 2 H]; padding has any finite value."""
        length = x.shape[1]
        if isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy) or length is None:
            return self.lstm(x, lengths)
        # A loop over padding takes as long as one over tokens; only a TPU needs a static length.
        states = self.lstm(x[:, : tf.maximum(tf.reduce_max(lengths), 1)], lengths)
        states = tf.pad(states, [[0, 0], [0, length - tf.shape(states)[1]], [0, 0]])
        return tf.ensure_shape(states, [x.shape[0], length, 2 * self.lstm.units])


def _last_states(states: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns the last state of each direction, float [B, 2 H], of states [B, S, 2 H]."""
    forward, backward = tf.split(states, 2, axis=-1)
    last = tf.gather(forward, tf.maximum(lengths - 1, 0), batch_dims=1)
    return tf.concat([last, backward[:, 0]], axis=-1)
