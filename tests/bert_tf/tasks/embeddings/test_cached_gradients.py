"""Gradients of a loss over a whole batch, computed in micro-batches, in parts and on several replicas."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import variables_by_path
from tests.bert_tf.tasks import small_runs
from tests.bert_tf.tasks.embeddings import small_model
from tests.bert_tf.tasks.embeddings.small_model import SEED, by_path, gradients
from tests.small_configs import small_config


def plain_gradients(objective, batch):
    """The gradient of the loss of the whole batch by one tape, without any caching."""
    variables = objective.model.trainable_variables
    with tf.GradientTape() as tape:
        logits = objective.model(batch, training=True, seed=SEED)["logits"]
        sums = objective.weighted_sums(logits, batch)
        loss = objective.loss(sums, objective.denominators(batch)["loss"])
    return by_path(objective.model, tape.gradient(loss, variables))


def assert_same(found, expected):
    """Compares gradients; beside large values of a tensor, the tolerance is larger, because all values are sums."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        atol = max(1e-5, 3e-6 * np.abs(value).max())
        np.testing.assert_allclose(found[name], value, atol=atol, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("name", ["infonce", "cosent"])
def test_gradients_of_whole_batch_equal_one_tape(vocab_file, name):
    task = small_model.tasks()[name]
    objective = small_model.objective_of(task)
    batch = small_model.batch_of(task, small_model.examples(8, scored=name == "cosent"), vocab_file)
    assert_same(gradients(objective, batch)[0], plain_gradients(objective, batch))


@pytest.mark.quick_cases("infonce-True")
@pytest.mark.parametrize(("name", "packed"), [("infonce", False), ("infonce", True), ("cosent", True)])
def test_micro_batches_and_parts_change_nothing(vocab_file, name, packed):
    task = small_model.tasks()[name]
    objective = small_model.objective_of(task, small_model.without_dropout())
    examples = small_model.examples(8, scored=name == "cosent")
    whole, numerators = gradients(objective, small_model.batch_of(task, examples, vocab_file))
    batch = small_model.batch_of(task, examples, vocab_file, packed, slices=4)
    for micro_batches, parts in ((4, 1), (2, 2), (1, 4)):
        found, values = gradients(objective, batch, micro_batches, parts)
        assert_same(found, whole)
        assert values == pytest.approx(numerators, rel=1e-5)


@pytest.mark.slow
def test_recomputation_uses_the_same_dropout_masks(vocab_file):
    """The gradient along a direction is the derivative of the loss in that direction, with the same masks."""
    task = small_model.tasks()["infonce"]
    objective = small_model.objective_of(task)
    batch = small_model.batch_of(task, small_model.examples(4), vocab_file, slices=2)
    found, _ = gradients(objective, batch, micro_batches=2)
    path = "encoder/blocks/1/output_dense/kernel"
    variable = variables_by_path(objective.model)[path]
    direction = found[path] / np.linalg.norm(found[path])
    start, losses = variable.numpy(), []
    for step in (5e-3, -5e-3):
        variable.assign(start + step * direction)
        losses.append(gradients(objective, batch, micro_batches=2)[1]["loss"] / 4)
    variable.assign(start)
    assert np.sum(found[path] * direction) == pytest.approx((losses[0] - losses[1]) / 1e-2, rel=0.01)


@pytest.mark.slow
def test_two_replicas_equal_one(vocab_file, tmp_path):
    (tmp_path / "no_dropout.json").write_text(small_config(300, 16, 1, dropout=0.0).to_json_string())
    flags = f"--bert_config_file={tmp_path}/no_dropout.json", "--train_batch_size=16"
    one, two = (
        small_runs.trained("embeddings", vocab_file, tmp_path / kind, *flags, f"--distribution_strategy={kind}")
        for kind in ("one_device", "mirrored")
    )
    for found, expected in zip(two, one, strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
