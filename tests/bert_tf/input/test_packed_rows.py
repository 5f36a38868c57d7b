"""Packing keeps all examples, and a packed row has the same loss and gradients as its examples in separate rows."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import variables_by_path
from bert_tf.input.packed_rows import RowShape, pack_rows, shape_for, widths
from bert_tf.input.pipeline import every_token_predicted
from bert_tf.pretraining.objective import PretrainingObjective
from tests.bert_tf.reference import means_of, random_pretrainer
from tests.small_configs import small_config

CLS, SEP = 1, 2
CONFIG = small_config(50, 32, 2, 4, dropout=0.0, max_position_embeddings=24, intermediate_size=48)


def random_examples(rng, count, length=24, most=4, pairs=True, masked=True) -> dict[str, np.ndarray]:
    """Returns examples of every length from 3 tokens on."""
    lengths = rng.integers(3, length + 1, count)
    real = np.arange(length) < lengths[:, None]
    ids = np.where(real, rng.integers(3, 50, real.shape), 0).astype(np.int32)
    ids[:, 0] = CLS
    ids[np.arange(count), lengths - 1] = SEP
    half = rng.integers(1, lengths)
    examples = {
        "input_ids": ids,
        "input_mask": real.astype(np.int32),
        "segment_ids": ((np.arange(length) >= half[:, None]) & real & pairs).astype(np.int32),
    }
    if masked:
        wanted = np.minimum(rng.integers(1, most + 1, count), lengths - 2)
        weights = (np.arange(most) < wanted[:, None]).astype(np.float32)
        places = np.stack([np.sort(np.resize(rng.permutation(np.arange(1, n - 1)), most)) for n in lengths])
        examples["masked_lm_positions"] = (places * weights).astype(np.int32)
        examples["masked_lm_ids"] = (rng.integers(3, 50, places.shape) * weights).astype(np.int32)
        examples["masked_lm_weights"] = weights
    if pairs:
        examples["next_sentence_labels"] = rng.integers(0, 2, count).astype(np.int32)
    return examples


def unpacked(packed, row, number) -> dict:
    """Returns one example, cut out of a packed row."""
    own = packed["sequence_ids"][row] == number + 1
    start = np.flatnonzero(own)[0]
    predicted = packed["masked_lm_weights"][row] > 0
    predicted &= own[packed["masked_lm_positions"][row]]
    return {
        **{name: packed[name][row][own].tolist() for name in ("input_ids", "segment_ids", "position_ids")},
        "cls": packed["cls_positions"][row, number] - start,
        "masked": [
            (packed["masked_lm_positions"][row] - start)[predicted].tolist(),
            packed["masked_lm_ids"][row][predicted].tolist(),
        ],
        "label": (packed["next_sentence_labels"][row, number], packed["next_sentence_weights"][row, number]),
    }


def example(examples, index) -> dict:
    tokens, predictions = examples["input_mask"][index].sum(), int(examples["masked_lm_weights"][index].sum())
    return {
        **{name: examples[name][index, :tokens].tolist() for name in ("input_ids", "segment_ids")},
        "position_ids": list(range(tokens)),
        "cls": 0,
        "masked": [examples[name][index, :predictions].tolist() for name in ("masked_lm_positions", "masked_lm_ids")],
        "label": (examples["next_sentence_labels"][index], 1.0),
    }


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.core
def test_packed_examples_are_found_once_and_whole(seed):
    rng = np.random.default_rng(seed)
    examples = random_examples(rng, int(rng.integers(1, 80)))
    shape = RowShape(int(rng.integers(1, 6)), int(rng.integers(4, 12)))
    packed = pack_rows(examples, shape, rng)
    rows = len(packed["input_ids"])
    assert {name: (value.shape, value.dtype) for name, value in packed.items()} == {
        name: ((rows, *width), np.float32 if name.endswith("weights") else np.int32)
        for name, width in widths(dict.fromkeys(examples, ()), 24, shape).items()
    }
    np.testing.assert_array_equal(packed["input_mask"], packed["sequence_ids"] > 0)
    found = np.argwhere(packed["next_sentence_weights"] > 0)
    missing = [example(examples, index) for index in range(len(examples["input_ids"]))]
    for row, number in found:
        missing.remove(unpacked(packed, row, number))
    assert not missing
    assert packed["next_sentence_weights"].sum() == len(found)
    assert packed["masked_lm_weights"].sum() == examples["masked_lm_weights"].sum(), "and nothing is added"
    assert packed["input_mask"].sum() == examples["input_mask"].sum()


def test_row_shape_fits_nearly_all_sampled_rows():
    lengths, predictions = np.array([20, 2, 2] * 50), np.array([3, 1, 1] * 50)
    assert shape_for(lengths, predictions, 24, 3) == RowShape(3, 5)
    assert shape_for(lengths, predictions, 24, 9) == RowShape(3, 9), "an example may have 9"
    odd = np.concatenate([[24] * 5000, [6] * 4]), np.concatenate([[4] * 5000, [2] * 4])
    assert shape_for(*odd, 24, 4) == RowShape(1, 4), "and not what one row of 5,001 does"


@pytest.mark.quick_cases("pairs-bidi", "one segment-ltr", "every token-rtl")
@pytest.mark.parametrize("directionality", ["bidi", "ltr", "rtl"])
@pytest.mark.parametrize("kind", ["pairs", "one segment", "every token"])
@pytest.mark.core
def test_packed_losses_equal_those_of_the_examples(kind, directionality):
    rng = np.random.default_rng(1)
    one_by_one = random_examples(rng, 40, pairs=kind == "pairs", masked=kind != "every token")
    packed = pack_rows(one_by_one, RowShape(8, 16), rng)
    assert len(packed["input_ids"]) < 30, "rows are shared"
    objective = PretrainingObjective(
        random_pretrainer(dataclasses.replace(CONFIG, directionality=directionality)), kind == "pairs"
    )

    def measured(columns):
        batch = {name: tf.constant(value) for name, value in columns.items()}
        if kind == "every token":
            way = "rtl" if directionality == "rtl" else "ltr"
            batch |= every_token_predicted(batch, way)
        variables = variables_by_path(objective.model)
        with tf.GradientTape() as tape:
            means = means_of(objective, batch, training=True, seed=tf.constant([0, 0]))
            loss = tf.add_n([value for name, value in means.items() if name.endswith("_loss")])
        gradients = tape.gradient(loss, variables)
        return {name: float(value) for name, value in means.items()}, {
            path: tf.convert_to_tensor(g).numpy() for path, g in gradients.items() if g is not None
        }

    results, gradients = measured(packed)
    expected_figures, expected = measured(one_by_one)
    assert results.keys() == expected_figures.keys() and gradients.keys() == expected.keys()
    for name, value in expected_figures.items():
        np.testing.assert_allclose(results[name], value, rtol=1e-5, err_msg=name)
    largest = max(np.abs(value).max() for value in expected.values())
    assert largest > 1e-2
    for name, value in expected.items():
        np.testing.assert_allclose(gradients[name], value, atol=1e-5 * largest, err_msg=name)
