import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.model import FineTunedBert
from bert_tf.modeling.heads import pool_tokens
from bert_tf.tasks.classification.reading import LongTextRule
from tests.bert_tf.classification import make_task
from tests.small_configs import small_config

CONFIG = small_config(50, max_position_embeddings=16, initializer_range=0.2)
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]])


def formula(x: np.ndarray, mask: np.ndarray, pooling: str) -> np.ndarray:
    """Pools in float64, one row at a time. Like sentence-transformers, the mean covers all tokens of the mask."""
    of = {"cls": lambda row: row[0], "mean": lambda row: row.mean(axis=0), "max": lambda row: row.max(axis=0)}
    return np.array([of[pooling](row[seen == 1]) for row, seen in zip(x.astype(np.float64), mask, strict=True)])


@pytest.mark.parametrize("shape", [(3, 5, 8), (3, 5, 2, 8)])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
@pytest.mark.core
def test_pooling_follows_formula_and_ignores_padding(pooling, shape):
    x = np.random.default_rng(0).normal(-3, 1, shape).astype(np.float32)  # negative, so that padding would show
    pooled = pool_tokens(tf.constant(x), tf.constant(MASK, tf.int32), pooling)
    np.testing.assert_allclose(pooled, formula(x, MASK, pooling), rtol=1e-6)
    if pooling != "cls":
        assert not np.any(pool_tokens(tf.constant(x), tf.zeros([3, 5], tf.int32), pooling))


def test_the_mean_of_bfloat16_is_computed_in_float32():
    x = tf.constant(np.random.default_rng(0).normal(1, 0.01, (1, 512, 4)), tf.bfloat16)
    pooled = pool_tokens(x, tf.ones([1, 512], tf.int32), "mean")
    assert pooled.dtype == tf.float32
    np.testing.assert_allclose(pooled, tf.cast(x, tf.float32).numpy().astype(np.float64).mean(axis=1), rtol=1e-6)


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_a_classifier_maps_the_pooled_vector(pooling):
    task = dataclasses.replace(make_task(3), reading=LongTextRule(pooling=pooling))
    assert task.parameters["pooling"] == pooling
    model = FineTunedBert(CONFIG, task.head)
    inputs = {"input_ids": tf.constant(np.arange(15).reshape(3, 5) + 1), "input_mask": tf.constant(MASK, tf.int32)}
    outputs = model(inputs)
    pooled = outputs["pooled_output"].numpy()
    if pooling != "cls":
        pooled = formula(outputs["sequence_output"].numpy(), MASK, pooling)
    expected = pooled @ model.head.dense.kernel.numpy() + model.head.dense.bias.numpy()
    np.testing.assert_allclose(outputs["logits"], expected, atol=1e-5)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(inputs, training=True)["logits"] ** 2)
    assert all(
        g is not None for g in tape.gradient(loss, model.head.trainable_variables + model.encoder.blocks[0].weights)
    )
