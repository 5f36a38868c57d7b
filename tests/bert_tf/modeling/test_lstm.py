"""The bidirectional LSTM has the same outputs and gradients as Keras's, and never reads padding."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from bert_tf.modeling.bilstm import BiLstm
from bert_tf.modeling.heads import FEATURES, layers_of
from bert_tf.tasks.tagging.settings import FEATURE_LAYERS


def test_outputs_and_gradients_are_those_of_keras():
    ours = BiLstm(5, 7)
    theirs = keras.layers.Bidirectional(keras.layers.LSTM(7, return_sequences=True))
    x = tf.random.normal([3, 6, 5])
    lengths = tf.constant([6, 1, 4])
    mask = tf.sequence_mask(lengths, 6)
    theirs(x, mask=mask)
    weights = [w for d in (ours.forward, ours.backward) for w in (d.kernel, d.recurrent_kernel, d.bias)]
    theirs.set_weights(weights)
    results = []
    for call, variables in (
        (lambda: ours(x, lengths), weights),
        (lambda: theirs(x, mask=mask), theirs.trainable_variables),
    ):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = call() * tf.cast(mask, tf.float32)[:, :, tf.newaxis]
            loss = tf.reduce_sum(tf.square(outputs))
        results.append([outputs, *tape.gradient(loss, [x, *variables])])
    for mine, reference in zip(*results, strict=True):
        np.testing.assert_allclose(mine, reference, atol=2e-6)


def test_forget_gates_start_open_and_cells_are_float32():
    lstm, low = BiLstm(4, 3), BiLstm(4, 3, dtype=keras.mixed_precision.Policy("mixed_bfloat16"))
    np.testing.assert_array_equal(lstm.forward.bias, [0.0] * 3 + [1.0] * 3 + [0.0] * 6)
    low.set_weights(lstm.get_weights())
    x, lengths = tf.random.normal([2, 50, 4]), tf.constant([50, 50])
    found = low(x, lengths)
    assert found.dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(found, tf.float32), lstm(x, lengths), atol=0.03)


def test_the_layers_of_table_7():
    assert tuple(FEATURES) == FEATURE_LAYERS
    expected = [(0,), (11,), (12,), (9, 10, 11, 12), (9, 10, 11, 12), tuple(range(1, 13)),
                tuple(range(13))]  # fmt: skip
    assert [layers_of(name, 12) for name in FEATURES] == expected
    assert layers_of("weighted_sum_all", 2) == (1, 2) and layers_of("second_to_last_hidden", 2) == (1,)
    for name, layers in (("concat_last_four", 3), ("weighted_sum_last_four", 1), ("second_to_last_hidden", 1)):
        with pytest.raises(ValueError, match=rf"{name} reads . hidden layers from the top, but .* has {layers}"):
            layers_of(name, layers)
