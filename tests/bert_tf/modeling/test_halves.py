"""The encoder in halves against the encoder with plain operations: the outputs that a head may read."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.encoder import BertEncoder
from bert_tf.modeling.halves import HalvedOperations
from bert_tf.modeling.precision import policy, policy_name
from tests.bert_tf.reference import CONFIG, ONE_HEAD, randomize

ROWS, LENGTH = 5, 14
ODD = dataclasses.replace(CONFIG, num_attention_heads=3, intermediate_size=81, hidden_act="gelu_erf")
POSITIONS = tf.constant(np.random.default_rng(1).integers(0, LENGTH // 2, [ROWS, 3]), tf.int32)


def make_encoder(config, dtype="float32"):
    with policy(policy_name(dtype)):
        return randomize(BertEncoder(config), stddev=config.hidden_size**-0.5)


def batch(config, hidden=()):
    """Returns rows of different lengths, the longest without padding; `hidden` lists positions in gaps of the mask."""
    rng = np.random.default_rng(2)
    mask = np.arange(LENGTH) < np.array([LENGTH, LENGTH // 2, LENGTH - 1, LENGTH // 2 + 1, LENGTH])[:, None]
    mask[:, list(hidden)] = False
    ids = rng.integers(0, config.vocab_size, [ROWS, LENGTH])
    columns = {"input_ids": ids, "input_mask": mask, "segment_ids": ids % 2}
    return {name: tf.constant(value, tf.int32) for name, value in columns.items()}


def outputs(encoder, inputs, positions):
    found = encoder(inputs, positions=positions)
    layers = [found["embedding_output"], *found["encoder_outputs"]][: None if positions is None else -1]
    real = tf.cast(inputs["input_mask"], tf.float32)[..., tf.newaxis]
    sequence = tf.cast(found["sequence_output"], tf.float32)
    parts = [tf.cast(layer, tf.float32) * real for layer in layers]
    parts += [sequence * real if positions is None else sequence, tf.cast(found["pooled_output"], tf.float32)]
    return [part.numpy() for part in parts]


@pytest.mark.parametrize(
    ("config", "dtype", "positions", "hidden"),
    [
        (CONFIG, "float32", None, ()),
        (CONFIG, "float32", POSITIONS, (8,)),
        (ODD, "float32", None, (0, 3)),
        (ONE_HEAD, "float32", POSITIONS, ()),
        (CONFIG, "bfloat16", POSITIONS, ()),
        (dataclasses.replace(CONFIG, directionality="ltr"), "float32", None, ()),
        (dataclasses.replace(CONFIG, directionality="rtl"), "float32", POSITIONS, ()),
    ],
    ids=["all", "few", "odd_with_gaps", "one_head", "bfloat16", "left_to_right", "right_to_left"],
)
def test_halves_compute_what_plain_operations_compute(config, dtype, positions, hidden):
    encoder, inputs = make_encoder(config, dtype), batch(config, hidden)
    plain = outputs(encoder, inputs, positions)
    encoder.inference_operations = HalvedOperations(encoder)
    halves = outputs(encoder, inputs, positions)
    tolerance = 1e-5 if dtype == "float32" else 0.05
    for expected, found in zip(plain, halves, strict=True):
        assert np.abs(expected).max() > 0.1
        assert np.linalg.norm(found - expected) <= tolerance * np.linalg.norm(expected)


def test_the_halves_own_the_weights_of_the_blocks():
    encoder = make_encoder(CONFIG)
    count, size = sum(np.prod(variable.shape) for variable in encoder.variables), CONFIG.hidden_size
    encoder.inference_operations = halves = HalvedOperations(encoder)
    assert not [variable for block in encoder.blocks for variable in block.variables]
    shapes = [variable.shape.as_list() for variable in halves.variables]
    assert shapes.count([size, 3 * size // 2]) == 2 * (CONFIG.num_hidden_layers - 1)
    vectors = CONFIG.num_hidden_layers * (9 * size + CONFIG.intermediate_size) + 2 * size
    left = sum(np.prod(variable.shape) for variable in encoder.variables)
    assert left + sum(map(np.prod, shapes)) + vectors == count


def test_row_without_tokens_is_independent_of_others():
    """Servers put requests of different clients into one batch."""
    encoder, inputs = make_encoder(CONFIG), batch(CONFIG)
    encoder.inference_operations = HalvedOperations(encoder)
    empty = np.array(inputs["input_mask"])
    empty[3] = 0
    inputs["input_mask"] = tf.constant(empty)
    found = encoder(inputs)["sequence_output"][3]
    others = np.array(inputs["input_ids"])
    others[[0, 1, 2, 4]] = 5
    np.testing.assert_array_equal(encoder(inputs | {"input_ids": tf.constant(others)})["sequence_output"][3], found)


def test_a_batch_without_rows_has_outputs_without_rows():
    encoder = make_encoder(CONFIG)
    encoder.inference_operations = HalvedOperations(encoder)
    inputs = {name: value[:0] for name, value in batch(CONFIG).items()}
    found = encoder(inputs, positions=POSITIONS[:0])
    assert found["sequence_output"].shape == [0, 3, CONFIG.hidden_size]
    assert encoder(inputs)["sequence_output"].shape == [0, LENGTH, CONFIG.hidden_size]
