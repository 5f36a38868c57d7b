"""The computations of served models that need no model."""

import types

import numpy as np
import tensorflow as tf

from export.kinds.choice import _chosen
from export.kinds.embeddings import ServedEmbeddings
from export.kinds.fill_mask import _filled


def test_padding_is_never_chosen():
    answers = _chosen(tf.constant([[-3.0, -2.0, 0.0], [0.0] * 3]), tf.constant([[True, True, False], [False] * 3]))
    assert answers["choice"].numpy().tolist() == [1, -1]
    odds = np.exp(-1.0)
    np.testing.assert_allclose(answers["probabilities"], [[odds / (1 + odds), 1 / (1 + odds), 0], [0] * 3], rtol=1e-6)


def test_fills_texts_with_different_numbers_of_masks():
    between = tf.strings.split(["a [MASK] b", "[MASK] [MASK] [MASK]"], "[MASK]")
    tokens = tf.constant([[["x"], [""], [""]], [["p"], ["q"], ["r"]]])
    found = _filled(between, tokens, tf.constant([1, 3])).numpy().astype(str).tolist()
    assert found == [[["a x b"], [""], [""]], [["p q r"]] * 3]


def test_the_vector_of_each_layer_has_length_1():
    description = types.SimpleNamespace(parameters={"pooling": "mean", "normalize": True, "dimensions": None})
    vectors = tf.constant([[[[3.0, 4.0], [0.0, 2.0]], [[3.0, 4.0], [0.0, 6.0]]]])  # [B, S, L, H]
    pooled = ServedEmbeddings._pool(types.SimpleNamespace(_description=description), vectors, tf.ones([1, 2], tf.int32))
    np.testing.assert_allclose(pooled, [[[0.6, 0.8], [0.0, 1.0]]], rtol=1e-6)
