"""Each fused operation against its formula in float64, forward and backward, compiled and as single operations."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import ACTIVATIONS
from bert_tf.modeling import compilation, fused
from bert_tf.modeling.dense import activation
from bert_tf.modeling.dropout import dropout, dropout_mask
from bert_tf.pretraining.objective import BertPretrainer, PretrainingObjective
from tests.bert_tf.reference import (
    CONFIG,
    loss_of,
    random_batch,
    random_pretrainer,
)

SEED, SITE = tf.constant([3, 4]), tf.constant(7)
ROWS, HIDDEN, HEADS, LENGTH = 24, 32, 4, 6
RATE = 0.25
EPSILON = 0.1  # so large that its effect is visible


def drop(x, rate=RATE):
    return x * tf.cast(dropout_mask(x.shape, rate, SEED, SITE), x.dtype) / (1 - rate) if rate else x


def norm(x, gamma, beta):
    mean = tf.reduce_mean(x, -1, keepdims=True)
    return (x - mean) / tf.sqrt(tf.reduce_mean((x - mean) ** 2, -1, keepdims=True) + EPSILON) * gamma + beta


def our_attention(x, bias, rate):
    """Computes attention from [N, 3 H] to [N, H]."""
    parts = tf.reshape(x, [-1, LENGTH, 3, HEADS, HIDDEN // HEADS])
    return tf.reshape(fused.attention([parts], tf.cast(bias, tf.float32), SEED, SITE, rate=rate), [-1, HIDDEN])


def attention(x, bias, rate):
    """Computes one head of one row at a time."""
    contexts = []
    bias = tf.broadcast_to(bias, [ROWS // LENGTH, HEADS, LENGTH, LENGTH])
    mask = dropout_mask([ROWS // LENGTH, HEADS, LENGTH, LENGTH], rate, SEED, SITE)
    size = HIDDEN // HEADS
    for row in range(ROWS // LENGTH):
        for head in range(HEADS):
            query, key, value = (
                x[row * LENGTH : (row + 1) * LENGTH, i * HIDDEN + head * size : i * HIDDEN + (head + 1) * size]
                for i in range(3)
            )
            probabilities = tf.nn.softmax(query @ tf.transpose(key) / size**0.5 + bias[row, head])
            probabilities *= tf.cast(mask[row, head], x.dtype) / (1 - rate)
            contexts.append(probabilities @ value)
    grouped = [tf.concat(contexts[i : i + HEADS], 1) for i in range(0, len(contexts), HEADS)]
    return tf.concat(grouped, 0)


LABELS = tf.constant(np.random.default_rng(2).integers(0, HIDDEN, ROWS), tf.int32)
# Operation, formula, shapes of the inputs.
OPERATIONS = {
    "residual_norm": (
        lambda *a: fused.residual_norm(*a, SEED, SITE, rate=RATE, epsilon=EPSILON),
        lambda x, residual, bias, gamma, beta: norm(residual + drop(x + bias), gamma, beta),
        [(ROWS, HIDDEN), (ROWS, HIDDEN), (HIDDEN,), (HIDDEN,), (HIDDEN,)],
    ),
    "residual_norm without dropout": (
        lambda *a: fused.residual_norm(*a, SEED, SITE, rate=0.0, epsilon=EPSILON),
        lambda x, residual, bias, gamma, beta: norm(residual + x + bias, gamma, beta),
        [(ROWS, HIDDEN), (ROWS, HIDDEN), (HIDDEN,), (HIDDEN,), (HIDDEN,)],
    ),
    "norm_dropout": (
        lambda *a: fused.norm_dropout(*a, SEED, SITE, rate=RATE, epsilon=EPSILON),
        lambda x, gamma, beta: drop(norm(x, gamma, beta)),
        [(4, LENGTH, HIDDEN), (HIDDEN,), (HIDDEN,)],
    ),
    "attention": (
        lambda *a: our_attention(*a, RATE),
        lambda *a: attention(*a, RATE),
        [(ROWS, 3 * HIDDEN), (ROWS // LENGTH, 1, 1, LENGTH)],
    ),
    "attention with a bias of each head": (
        lambda *a: our_attention(*a, RATE),
        lambda *a: attention(*a, RATE),
        [(ROWS, 3 * HIDDEN), (1, HEADS, LENGTH, LENGTH)],
    ),
    "attention without dropout": (
        lambda *a: our_attention(*a, 0.0),
        lambda *a: attention(*a, 0.0),
        [(ROWS, 3 * HIDDEN), (ROWS // LENGTH, 1, LENGTH, LENGTH)],
    ),
    "cross_entropy": (
        lambda *a: fused.cross_entropy(*a, LABELS)[0],
        lambda x, bias: -tf.gather(tf.nn.log_softmax(x + bias), LABELS, batch_dims=1),
        [(ROWS, HIDDEN), (HIDDEN,)],
    ),
} | {
    f"biased_activation {name}": (
        lambda *a, name=name: fused.biased_activation(*a, name=name),
        lambda x, bias, name=name: activation(name)(x + bias),
        [(ROWS, 4 * HIDDEN), (4 * HIDDEN,)],
    )
    for name in ACTIVATIONS
}  # fmt: skip


def value_and_gradients(function, inputs):
    """Returns all outputs as one vector, and the gradients of their weighted sum."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = tf.nest.flatten(function(*inputs))
        flat = tf.concat([tf.reshape(tf.cast(o, inputs[0].dtype), [-1]) for o in outputs], 0)
        weights = tf.constant(np.random.default_rng(1).standard_normal(flat.shape[0]), flat.dtype)
        total = tf.reduce_sum(flat * weights)
    return [flat, *tape.gradient(total, inputs)]


@pytest.mark.parametrize("large", [1, 1 << 62], ids=["compiled", "op_by_op"])
@pytest.mark.parametrize(("dtype", "bound"), [(tf.float32, 1e-5), (tf.bfloat16, 2**-7)], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_and_gradients_equal_formula(name, dtype, bound, large, monkeypatch):
    operation, formula, shapes = OPERATIONS[name]
    monkeypatch.setattr(compilation, "_LARGE", large)
    rng = np.random.default_rng(0)
    values = [tf.cast(tf.constant(rng.standard_normal(shape)), dtype) for shape in shapes]
    # vectors, which are weights, stay in float32
    inputs = [value if len(value.shape) > 1 else tf.cast(value, tf.float32) for value in values]
    got = value_and_gradients(tf.function(operation, autograph=False), inputs)
    expected = value_and_gradients(formula, [tf.cast(value, tf.float64) for value in values])
    for index, (a, b) in enumerate(zip(got, expected, strict=True)):
        error = np.linalg.norm(tf.cast(a, tf.float64) - b) / np.linalg.norm(b)
        assert error <= bound, f"{index}: {error:.1e}"


def test_a_mask_drops_its_share_and_keeps_the_mean():
    shape = [1000, 1000]
    for rate in (0.1, 0.5, 0.01):
        mask = dropout_mask(shape, rate, SEED, SITE).numpy()
        assert abs((~mask).mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / mask.size)
        # also for rows and columns: chi-squared with 1,000 degrees of freedom has a standard deviation of 45
        for axis in (0, 1):
            counts = (~mask).sum(axis)
            assert abs(np.sum((counts - 1000 * rate) ** 2) / (1000 * rate * (1 - rate)) - 1000) < 5 * 45
    x = dropout(tf.ones(shape), 0.1, SEED, SITE).numpy()
    assert set(np.unique(x)) == {0.0, np.float32(1 / 0.9)}


def test_dropout_masks_are_independent():
    def mask(seed=(3, 4), site=7):
        return dropout_mask([1 << 20], 0.5, tf.constant(seed), tf.constant(site)).numpy() * 2.0 - 1.0

    base = mask()
    bound = 5 / np.sqrt(base.size)
    for shift in (*range(1, 20), 32, 64, 128, 512, 768, 3072, 1 << 16):
        assert abs(np.mean(base[shift:] * base[:-shift])) < 1.1 * bound, shift
    others = [mask(site=s) for s in (0, 1, 6, 8, 1 << 16)]
    others += [mask(seed=s) for s in ((3, 5), (4, 4), (4, 3), (-3, 4), (3, 1 << 30), (0, 0))]
    for index, other in enumerate(others):
        for shift in (0, 1, 7):
            assert abs(np.mean(base[shift:] * other[: base.size - shift])) < bound, (index, shift)
    words = base.reshape(-1, 8)
    counts = np.bincount(((words > 0) @ (1 << np.arange(8))).astype(int), minlength=256)
    # 256 patterns of eight adjacent bits: chi-squared with 255 degrees of freedom, standard deviation 22.6
    assert abs(np.sum((counts - counts.mean()) ** 2) / counts.mean() - 255) < 5 * 22.6


@pytest.mark.slow
def test_recomputation_gives_the_same_gradients(monkeypatch):
    monkeypatch.setattr(compilation, "_LARGE", 1)
    config = dataclasses.replace(CONFIG, num_hidden_layers=2)
    batch = random_batch(config, batch=5, length=20, predictions=4)
    weights = random_pretrainer(config, stddev=config.hidden_size**-0.5).get_weights()
    results, products = [], []
    for recompute in (False, True):
        model = BertPretrainer(config, recompute_activations=recompute)
        model.set_weights(weights)

        @tf.function
        @tf.autograph.experimental.do_not_convert
        def step(model=model):
            with tf.GradientTape() as tape:
                loss = loss_of(PretrainingObjective(model), batch, training=True, seed=tf.constant([1, 2]))
            return [loss, *map(tf.convert_to_tensor, tape.gradient(loss, model.trainable_variables))]

        results.append(step())
        operations = step.get_concrete_function().graph.get_operations()
        products.append(sum(op.type in ("MatMul", "BatchMatMulV2") for op in operations))
    for index, (plain, recomputed) in enumerate(zip(*results, strict=True)):
        error = np.linalg.norm(plain - recomputed) / max(np.linalg.norm(plain), 1e-2)  # a key's bias has gradient zero
        assert error <= 1e-5, f"{index}: {error:.1e}"
    # all products of a layer's forward pass again; in the last layer, queries are separate from keys and values
    assert products[1] - products[0] == 6 * config.num_hidden_layers + 1


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False])
def test_barriers_stand_only_in_compiled_programs(whole, monkeypatch):
    monkeypatch.setattr(compilation, "_LARGE", 1)
    x, weights = tf.ones([ROWS, HIDDEN]), tf.ones([HIDDEN])

    @tf.function(jit_compile=whole)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fused.residual_norm(x, x, weights, weights, weights, SEED, SITE, rate=RATE, epsilon=EPSILON)
        return tape.gradient(y, x)

    graph = step.get_concrete_function(x).graph.as_graph_def()
    nodes = [node.op for part in (graph.node, *(f.node_def for f in graph.library.function)) for node in part]
    assert ("XlaOptimizationBarrier" in nodes) == whole
