"""Our model and its pooled vectors, in float32 and in bfloat16, against the formulas in float64."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import variables_by_path
from bert_tf.config import ACTIVATIONS, BertConfig
from bert_tf.finetuning.model import FineTunedBert
from bert_tf.modeling.dense import LayerNorm
from bert_tf.modeling.heads import pool_tokens
from bert_tf.modeling.precision import policy
from bert_tf.tasks.classification.reading import LongTextRule
from tests.bert_tf.classification import make_task
from tests.bert_tf.formulas import Formulas
from tests.bert_tf.reference import CONFIG, assert_outputs_equal, outputs_and_gradients, random_batch, random_pretrainer
from tests.small_configs import small_config


def weights(model) -> dict[str, np.ndarray]:
    return {path: variable.numpy() for path, variable in variables_by_path(model).items()}


def compare(config: BertConfig, seed: int, stddev: float) -> None:
    batch = random_batch(config, batch=5, length=20, predictions=4, seed=seed)
    model = random_pretrainer(config, seed, stddev)
    assert_outputs_equal(outputs_and_gradients(model, batch)[0], Formulas(config, weights(model)).outputs(batch))


@pytest.mark.quick_cases("2-0.3")
@pytest.mark.parametrize(("seed", "stddev"), enumerate([0.02, 0.15, 0.3]))
@pytest.mark.core
def test_outputs_and_loss_follow_the_formulas(seed, stddev):
    compare(CONFIG, seed, stddev)


@pytest.mark.quick_cases("gelu", "gelu_erf")
@pytest.mark.parametrize("hidden_act", ACTIVATIONS)
@pytest.mark.core
def test_every_activation_follows_its_formula(hidden_act):
    compare(dataclasses.replace(CONFIG, hidden_act=hidden_act), seed=1, stddev=0.15)


@pytest.mark.core
def test_left_to_right_attention_follows_the_formulas():
    compare(dataclasses.replace(CONFIG, directionality="ltr"), seed=1, stddev=0.15)


@pytest.mark.core
def test_right_to_left_attention_follows_the_formulas():
    """Compares only tokens: right to left, a padded position sees no position, and its output is never read."""
    config = dataclasses.replace(CONFIG, directionality="rtl")
    batch = random_batch(config, batch=5, length=20, predictions=4)
    model = random_pretrainer(config, stddev=0.15)
    tokens = batch["input_mask"].numpy().astype(bool)
    assert not tokens.all()

    def at_pieces(outputs):
        layers = [np.asarray(layer)[tokens] for layer in outputs["encoder_outputs"]]
        return outputs | {"sequence_output": np.asarray(outputs["sequence_output"])[tokens], "encoder_outputs": layers}

    expected = Formulas(config, weights(model)).outputs(batch)
    assert_outputs_equal(at_pieces(outputs_and_gradients(model, batch)[0]), at_pieces(expected))


@pytest.fixture
def bfloat16():
    with policy("mixed_bfloat16"):
        yield


@pytest.mark.quick_cases("0")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.core
def test_bfloat16_stays_within_its_precision(bfloat16, seed):
    """Eight bits: a rounding errs by up to 2^-8 of a value.

    A layer rounds about ten tensors in sequence; three layers and the heads round about 36. Squares of independent
    errors add up, so the total error is at most six times 2^-8, or 2.3 percent.
    """
    model = random_pretrainer(CONFIG, seed, stddev=0.15)
    batch = random_batch(CONFIG, batch=5, length=20, predictions=4, seed=seed)
    ours, expected = outputs_and_gradients(model, batch)[0], Formulas(CONFIG, weights(model)).outputs(batch)
    assert ours["sequence_output"].dtype == tf.bfloat16 and ours["masked_lm_logits"].dtype == tf.float32
    for name in expected.keys() - {"encoder_outputs"}:
        error = tf.cast(ours[name], tf.float64) - expected[name]
        assert np.linalg.norm(error) <= 6 * 2**-8 * np.linalg.norm(expected[name]), name


def test_softmax_and_layer_norm_stay_in_float32(bfloat16):
    model = random_pretrainer(CONFIG)
    batch = random_batch(CONFIG, batch=2, length=20, predictions=4)
    graph = tf.function(lambda: model(batch)).get_concrete_function().graph
    dtypes = {}
    for operation in graph.get_operations():
        if operation.type in ("Softmax", "Rsqrt", "MatMul", "BatchMatMulV2"):
            dtypes.setdefault(operation.type, []).append(operation.outputs[0].dtype)
    layers = CONFIG.num_hidden_layers
    assert dtypes["Softmax"] == [tf.float32] * layers
    # two per layer, and one each in the embeddings and the masked-LM head
    assert dtypes["Rsqrt"] == [tf.float32] * (2 * layers + 2)
    products = dtypes["MatMul"] + dtypes["BatchMatMulV2"]
    assert len(products) >= 8 * layers and set(products) == {tf.bfloat16}


def test_layer_norm_of_bfloat16_errs_by_one_rounding(bfloat16):
    """Values far from zero, for which a mean or a variance in eight bits would be useless."""
    x = tf.constant(10 + np.random.default_rng(0).standard_normal([64, 48]), tf.bfloat16)
    exact = np.asarray(tf.cast(x, tf.float64))
    expected = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(exact.var(-1, keepdims=True) + 1e-12)
    got = LayerNorm(48)(x)
    assert got.dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(got, tf.float64), expected, rtol=1.01 * 2**-8, atol=1e-5)


SMALL = small_config(50, max_position_embeddings=16, initializer_range=0.2)
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
    model = FineTunedBert(SMALL, task.head)
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
