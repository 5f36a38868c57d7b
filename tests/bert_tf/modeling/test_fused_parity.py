"""The fused operations against the plain operations with the same dropout masks: outputs, gradients of all inputs."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import encoder as encoder_module
from bert_tf.checkpoints import variables_by_path
from bert_tf.encoder import BertEncoder, Block
from bert_tf.modeling import compilation
from bert_tf.modeling.fused import FusedOperations
from bert_tf.modeling.precision import policy, policy_name
from tests.bert_tf.reference import CONFIG, randomize

ROWS, LENGTH, HEADS = 5, 20, CONFIG.num_attention_heads
SEED = tf.constant([3, 4])
# The last layer, which may compute few positions, and one layer below.
DROPPING = dataclasses.replace(
    CONFIG, num_hidden_layers=2, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3
)  # fmt: skip
POSITIONS = tf.constant(np.random.default_rng(1).integers(0, LENGTH, [ROWS, 4]), tf.int32)
BOUNDS = {"float32": 2e-5, "bfloat16": 0.05}


@pytest.fixture(params=BOUNDS)
def bound(request):
    with policy(policy_name(request.param)):
        yield BOUNDS[request.param]


def random_tensor(*shape, seed=0) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float32)


def value_and_gradients(function, inputs: dict) -> dict[str, np.ndarray]:
    """Returns outputs by name, and the gradients of their weighted sum by the names of the inputs."""

    # training does not use AutoGraph either
    @tf.autograph.experimental.do_not_convert
    def run():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = function()
            total = tf.add_n(
                [
                    tf.reduce_sum(tf.cast(output, tf.float32) * random_tensor(*output.shape, seed=index))
                    for index, output in enumerate(outputs.values())
                ]
            )
        gradients = tape.gradient(total, inputs)
        return outputs, {name: tf.convert_to_tensor(gradient) for name, gradient in gradients.items()}

    outputs, gradients = tf.function(run, autograph=False)()  # AutoGraph would take half of the tracing time
    return {name: tf.cast(value, tf.float64).numpy() for name, value in (outputs | gradients).items()}


def assert_close(got: dict, expected: dict, bound: float) -> None:
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        if name.endswith("attention/key/bias"):  # zero except for rounding: it adds a constant to a row's scores
            assert np.abs(got[name]).max() < 100 * bound, name
            continue
        assert np.abs(value).max() > 0, name
        error = np.linalg.norm(got[name] - value) / np.linalg.norm(value)
        assert error <= bound, f"{name}: {error:.1e}"


@pytest.mark.quick_cases("few_positions")
@pytest.mark.parametrize(
    ("bound", "positions", "shape"),
    [
        ("float32", None, (ROWS, 1, 1, LENGTH)),
        pytest.param("float32", None, (1, HEADS, LENGTH, LENGTH), marks=pytest.mark.slow),
        ("float32", POSITIONS, (ROWS, HEADS, LENGTH, LENGTH)),
    ],
    ids=["bias_of_columns", "bias_of_heads", "few_positions"], indirect=["bound"],
)  # fmt: skip
@pytest.mark.core
def test_a_block_is_the_same_and_trains_the_same(positions, shape, bound, monkeypatch):
    block, x, bias = randomize(Block(DROPPING)), random_tensor(ROWS, LENGTH, 48), random_tensor(*shape)
    x = tf.cast(x, block.compute_dtype)
    inputs = variables_by_path(block) | {"x": x, "bias": bias}

    def output(operations):
        y = block(x, bias, seed=SEED, site=1, positions=positions, operations=operations)
        assert y.shape == [ROWS, LENGTH if positions is None else 4, 48] and y.dtype == x.dtype
        return {"output": y}

    plain = value_and_gradients(lambda: output(None), inputs)
    for size in (1, 1 << 62):  # compiled, and as single operations
        monkeypatch.setattr(compilation, "_LARGE", size)
        assert_close(value_and_gradients(lambda: output(FusedOperations()), inputs), plain, bound)
    without = tf.cast(block(x, bias, positions=positions), tf.float64)
    assert np.linalg.norm(plain["output"] - without) > 0.1 * np.linalg.norm(plain["output"]), "dropout"


def batch(packed: bool) -> dict[str, tf.Tensor]:
    """Returns rows with padding, or packed rows of two examples of different lengths with padding."""
    rng = np.random.default_rng(0)
    column, ends = np.arange(LENGTH)[None], rng.integers(12, LENGTH + 1, [ROWS, 1])
    first = rng.integers(4, 9, [ROWS, 1]) if packed else ends
    columns = {
        "input_ids": rng.integers(0, CONFIG.vocab_size, [ROWS, LENGTH]),
        "input_mask": column < ends,
        "segment_ids": (column >= ends // 2) & (column < ends),
    }
    if packed:
        columns["sequence_ids"] = np.where(column < first, 1, 2) * (column < ends)
        columns["position_ids"] = np.where(column < first, column, column - first)
        columns["cls_positions"] = np.concatenate([np.zeros_like(first), first], 1)
    return {name: tf.constant(value, tf.int32) for name, value in columns.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bound", "packed", "positions", "direction"),
    [("float32", True, None, "ltr"), pytest.param("bfloat16", False, POSITIONS, "rtl", marks=pytest.mark.slow)],
    ids=["packed_rows_left_to_right", "rows_right_to_left_few_positions_in_bfloat16"],
    indirect=["bound"],
)
def test_an_encoder_is_the_same_and_trains_the_same(packed, positions, direction, bound):
    model = randomize(BertEncoder(dataclasses.replace(DROPPING, directionality=direction)))
    inputs = batch(packed)

    def outputs(fused):
        model.fused = fused
        outputs = model(inputs, training=True, seed=SEED, positions=positions)
        if positions is None:  # outputs at padded positions are never read, and may differ
            outputs["sequence_output"] *= tf.cast(inputs["input_mask"], model.compute_dtype)[..., tf.newaxis]
        return {name: outputs[name] for name in ("sequence_output", "pooled_output", "embedding_output")}

    fused, plain = (
        value_and_gradients(lambda use=use: outputs(use), variables_by_path(model)) for use in (True, False)
    )
    assert_close(fused, plain, 2 * bound)


@pytest.mark.parametrize(("bound", "positions"), [("float32", None), ("bfloat16", POSITIONS)], indirect=["bound"])
@pytest.mark.core
def test_an_encoder_infers_the_same(positions, bound, monkeypatch):
    model = randomize(BertEncoder(DROPPING))

    @tf.function(autograph=False)
    def outputs(fused):
        model.inference_operations = encoder_module.FUSED if fused else encoder_module.PLAIN
        outputs = model(batch(True), positions=positions)
        real = tf.cast(batch(True)["input_mask"], outputs["sequence_output"].dtype)[..., tf.newaxis]
        hidden = outputs["sequence_output"]
        return {
            "sequence": tf.cast(hidden * real if positions is None else hidden, tf.float64),
            "pooled": tf.cast(outputs["pooled_output"], tf.float64),
        }

    plain = {name: value.numpy() for name, value in outputs(False).items()}
    monkeypatch.setattr(compilation, "_LARGE", 1)
    assert_close({name: value.numpy() for name, value in outputs(True).items()}, plain, 2 * bound)
