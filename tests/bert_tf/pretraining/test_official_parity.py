"""Our model against tf-models-official's with the same weights, in float32: outputs, loss, gradients.

A bound on float32 needs weights for which the result is well conditioned: initial weights, or weights that keep
activations at unit scale (standard deviation 1 / sqrt(H)). With far larger weights, all positions of a row become
similar, so that the gradients of queries and keys are mostly rounding errors. Both implementations are then as far from
each other as from float64.
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import variables_by_path
from bert_tf.config import BertConfig
from bert_tf.pretraining.objective import PretrainingObjective
from tests.bert_tf.reference import (
    CONFIG,
    DEEP,
    LONG,
    ONE_HEAD,
    assert_gradients_equal,
    assert_outputs_equal,
    loss_of,
    means_of,
    official_outputs_and_gradients,
    official_pretrainer,
    outputs_and_gradients,
    random_batch,
    random_pretrainer,
)


def pair(config: BertConfig, seed: int = 0, stddev: float | None = None) -> tuple:
    """Our model and theirs, by default with weights that keep activations at unit scale."""
    model = random_pretrainer(config, seed, stddev or config.hidden_size**-0.5)
    return model, official_pretrainer(config, variables_by_path(model))


@pytest.fixture(scope="module")
def both() -> tuple:
    return pair(CONFIG)


def assert_equal(both: tuple, batch: dict) -> None:
    model, theirs = both
    outputs, gradients = outputs_and_gradients(model, batch)
    their_outputs, their_gradients = official_outputs_and_gradients(theirs, batch)
    assert_outputs_equal(outputs, their_outputs)
    assert_gradients_equal(gradients, their_gradients)


@pytest.mark.quick_cases("larger")
@pytest.mark.parametrize(("seed", "stddev"), [(0, 0.02), (2, 0.2)], ids=["initial", "larger"])
@pytest.mark.core
def test_outputs_and_gradients_are_equal(seed, stddev):
    assert_equal(pair(CONFIG, seed, stddev), random_batch(CONFIG, batch=5, length=20, predictions=4, seed=seed))


def test_outputs_and_gradients_of_unit_gain_are_equal(both):
    assert_equal(both, random_batch(CONFIG, batch=5, length=20, predictions=4, seed=1))


@pytest.mark.quick_cases("one_head_of_one_layer")
@pytest.mark.parametrize(
    "config, sizes",
    [(ONE_HEAD, (4, 16, 3)), (DEEP, (7, 64, 10)), (LONG, (3, 128, 20))],
    ids=["one_head_of_one_layer", "six_layers_of_sixteen_heads", "long_rows"],
)
@pytest.mark.core
def test_other_shapes_are_equal(config, sizes):
    assert_equal(pair(config, seed=2), random_batch(config, *sizes, seed=2))


@pytest.mark.core
def test_rows_without_padding_are_equal(both):
    batch = random_batch(CONFIG, batch=3, length=24, predictions=5, padded=False)
    assert np.all(batch["input_mask"])
    assert_equal(both, batch)


@pytest.mark.core
def test_a_single_padded_row_is_equal(both):
    batch = {name: value[1:2] for name, value in random_batch(CONFIG, batch=5, length=20, predictions=4).items()}
    assert 0 < tf.reduce_sum(batch["input_mask"]) < 20
    assert_equal(both, batch | {"masked_lm_weights": tf.ones([1, 4])})


def test_rows_without_segments_are_equal(both):
    batch = random_batch(CONFIG, batch=2, length=12, predictions=4)
    del batch["segment_ids"]
    # only the first segment has a gradient; the second segment's is zero in both models
    assert_equal(both, batch)


@pytest.mark.core
def test_losses_and_accuracies_follow_their_definition():
    model = random_pretrainer(CONFIG)
    batch = random_batch(CONFIG, batch=6, length=16, predictions=5)
    got = {name: float(mean) for name, mean in means_of(PretrainingObjective(model), batch).items()}

    outputs = model(batch)
    logits = outputs["masked_lm_logits"].numpy().astype(np.float64)
    weights, labels = batch["masked_lm_weights"].numpy(), batch["masked_lm_ids"].numpy()
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nll = total = right = 0.0
    for row in range(6):
        for p in range(5):
            if weights[row, p]:
                nll -= log_probabilities[row, p, labels[row, p]]
                right += logits[row, p].argmax() == labels[row, p]
                total += 1
    order = outputs["next_sentence_logits"].numpy().astype(np.float64)
    order_labels = batch["next_sentence_labels"].numpy()
    order_nll = np.log(np.exp(order).sum(-1)) - order[np.arange(6), order_labels]
    expected = {
        "masked_lm_loss": nll / total,
        "masked_lm_accuracy": right / total,
        "next_sentence_loss": order_nll.mean(),
        "next_sentence_accuracy": (order.argmax(-1) == order_labels).mean(),
        "next_sentence_random_share": order_labels.mean(),
    }
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, err_msg=name)


def test_word_loss_counts_only_word_start_tokens():
    batch = random_batch(CONFIG, batch=6, length=16, predictions=5)
    starts_word = np.random.default_rng(0).random(CONFIG.vocab_size) < 0.5
    objective = PretrainingObjective(random_pretrainer(CONFIG), next_sentence=False, starts_word=starts_word)
    got = means_of(objective, batch)
    weights, labels = batch["masked_lm_weights"].numpy(), batch["masked_lm_ids"].numpy()
    tokens_per_word = weights.sum() / (weights * starts_word[labels]).sum()
    np.testing.assert_allclose(got["word_loss"], got["masked_lm_loss"] * tokens_per_word, rtol=1e-5)


def test_a_batch_without_any_prediction_gives_no_nan():
    batch = random_batch(CONFIG, batch=2, length=16, predictions=3)
    batch["masked_lm_weights"] = tf.zeros([2, 3])
    objective = PretrainingObjective(random_pretrainer(CONFIG))
    assert float(objective.numerators(batch, training=False, seed=None)["loss"]["masked_lm_loss"]) == 0
    assert float(objective.denominators(batch)["loss"]["masked_lm_loss"]) == 0
    assert np.isfinite(loss_of(objective, batch))
