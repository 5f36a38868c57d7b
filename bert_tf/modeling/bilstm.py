"""A bidirectional LSTM for rows with padding at the end, and a head that consists of this LSTM and a task's head.

Paper: section 5.3 (feature-based approach); section 5.1 and Table 5 ("+ BiLSTM"), where a randomly initialized BiLSTM
is added on top of a left-to-right model. Table 5 gives no size; here each direction has H units, as in section 5.3.
S. Hochreiter and J. Schmidhuber, "Long Short-Term Memory", 1997.

Letters: T steps, F features, U units of each direction.

The backward direction reads the tokens of each row in reverse order. The padding stays at the end of the row, so no
token follows padding.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.modeling.compilation import inside_xla
from bert_tf.modeling.dense import in_rows_of, rows


class BiLstm(keras.layers.Layer):
    """One layer of LSTMs in both directions. The weights are initialized as in Keras: the bias of the forget gates is
    1, so these gates start open.
    `inputs`: number of input features F.
    `units`: number of units U of each direction."""

    def __init__(self, inputs: int, units: int, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.forward, self.backward = _Weights(inputs, units), _Weights(inputs, units)

    def call(self, x, lengths):
        """Runs both directions.
        `x`: float [B, T, F].
        `lengths`: int32 [B], number of steps without padding.
        Returns float [B, T, 2 U] of the dtype of x; values at padding are finite but have no meaning."""

        def reverse(values):
            return tf.reverse_sequence(values, lengths, seq_axis=1)

        forward, backward = (
            _recur(weights.gates(steps), tf.cast(weights.recurrent_kernel, x.dtype))
            for weights, steps in ((self.forward, x), (self.backward, reverse(x)))
        )
        return tf.concat([forward, reverse(backward)], axis=-1)


class _Weights(keras.layers.Layer):
    """The weights of one direction; the gates are in the order input, forget, candidate, output."""

    def __init__(self, inputs: int, units: int, **kwargs):
        super().__init__(**kwargs)
        self.kernel = self.add_weight(name="kernel", shape=[inputs, 4 * units], initializer="glorot_uniform")
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel", shape=[units, 4 * units], initializer="orthogonal"
        )
        bias = tf.constant_initializer([0.0] * units + [1.0] * units + [0.0] * (2 * units))
        self.bias = self.add_weight(name="bias", shape=[4 * units], initializer=bias, experimental_autocast=False)

    def gates(self, x):
        """Computes what the input adds to the gates, for all steps in one product, float [B, T, 4 U]."""
        product = tf.matmul(rows(x), tf.cast(self.kernel, x.dtype))
        return in_rows_of(x, tf.nn.bias_add(product, tf.cast(self.bias, x.dtype)))


def _recur(gates: tf.Tensor, recurrent: tf.Tensor) -> tf.Tensor:
    """Computes the outputs of one direction at all steps, [B, T, U]."""
    steps, units = gates.shape[1] if gates.shape[1] is not None else tf.shape(gates)[1], recurrent.shape[0]
    by_step = tf.transpose(gates, [1, 0, 2])
    inputs = tf.TensorArray(gates.dtype, size=steps, element_shape=by_step.shape[1:]).unstack(by_step)
    zeros = tf.zeros([tf.shape(gates)[0], units])
    zeros.set_shape([gates.shape[0], units])

    def step(number, output, cell, outputs):
        z = tf.cast(inputs.read(number) + tf.matmul(output, recurrent), tf.float32)
        to_input, to_forget, candidate, to_output = tf.split(z, 4, axis=-1)
        cell = tf.sigmoid(to_forget) * cell + tf.sigmoid(to_input) * tf.tanh(candidate)
        output = tf.cast(tf.sigmoid(to_output) * tf.tanh(cell), gates.dtype)
        return number + 1, output, cell, tf.raw_ops.TensorListSetItem(input_handle=outputs, index=number, item=output)

    # LiteRT needs the shape of the elements at run time, but a `TensorArray` provides only the static shape.
    shape = tf.shape(zeros)
    outputs = tf.raw_ops.TensorListReserve(element_shape=shape, num_elements=steps, element_dtype=gates.dtype)
    start = (tf.constant(0), tf.cast(zeros, gates.dtype), zeros, outputs)
    *_, outputs = tf.while_loop(lambda number, *_: number < steps, step, start, maximum_iterations=steps)
    stacked = tf.raw_ops.TensorListStack(input_handle=outputs, element_shape=shape, element_dtype=gates.dtype)
    return tf.transpose(tf.ensure_shape(stacked, [gates.shape[1], *zeros.shape]), [1, 0, 2])


class BiLstmHead(keras.layers.Layer):
    """A new BiLSTM over the tokens of each row, and a task's head on top of the BiLSTM. The layer does not accept
    packed rows, so that no state passes from one sequence to another. A task's head that normally takes the pooled
    output gets the last state of each direction instead: the forward state at the last token, and the backward state at
    the first token. Both states depend on the whole row.
    `make_head`: function that returns the task's head for a configuration; the function gets a configuration with the
      hidden size 2 H.
    `reads`: name of the encoder's output that this layer takes.
    `columns`: names of the batch's columns that this layer also takes.
    Raises ValueError: the task's head reads neither the pooled output nor the sequence output."""

    reads = "sequence_output"

    def __init__(self, config: BertConfig, make_head: Callable[[BertConfig], keras.layers.Layer], **kwargs):
        super().__init__(**kwargs)
        self.lstm = BiLstm(config.hidden_size, config.hidden_size)
        self.head = make_head(dataclasses.replace(config, hidden_size=2 * config.hidden_size))
        if self.head.reads not in ("pooled_output", "sequence_output"):
            raise ValueError(f"a head that reads {self.head.reads} does not support a BiLSTM")
        self.columns = tuple({"input_mask": None, **dict.fromkeys(getattr(self.head, "columns", ()))})

    def call(self, x, input_mask, training=False, seed=None, **columns):
        """Computes the logits of the task's head.
        `x`: float [B, S, H].
        `input_mask`: int32 [B, S], 1 on tokens, then 0 on padding.
        `seed`: int32 [2] for the dropout masks.
        `**columns`: the other columns that the task's head takes."""
        lengths, options = tf.reduce_sum(input_mask, axis=1), {"training": training, "seed": seed, **columns}
        x = self._states(tf.cast(x, self.compute_dtype), lengths)
        if self.head.reads == "pooled_output":
            return self.head(_last_states(x, lengths), **options)
        if "input_mask" in getattr(self.head, "columns", ()):
            options["input_mask"] = input_mask
        return self.head(x, **options)

    def _states(self, x: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Maps float [B, S, H] to the BiLSTM's states, [B, S, 2 H]."""
        length = x.shape[1]
        if inside_xla() or length is None:
            return self.lstm(x, lengths)
        # Skip padding, because it takes as much time as tokens. XLA needs a static length, so it reads padding too.
        states = self.lstm(x[:, : tf.maximum(tf.reduce_max(lengths), 1)], lengths)
        states = tf.pad(states, [[0, 0], [0, length - tf.shape(states)[1]], [0, 0]])
        return tf.ensure_shape(states, [x.shape[0], length, 2 * self.lstm.units])


def _last_states(states: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns the last state of each direction, float [B, 2 H]; `states` has the states of all tokens, [B, S, 2 H]."""
    forward, backward = tf.split(states, 2, axis=-1)
    last = tf.gather(forward, tf.maximum(lengths - 1, 0), batch_dims=1)
    return tf.concat([last, backward[:, 0]], axis=-1)
