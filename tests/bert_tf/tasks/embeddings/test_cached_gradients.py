"""Gradients of a loss over a whole batch, computed in micro-batches, in parts and on several replicas."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import variables_by_path
from bert_tf.training import cached_gradients
from tests.bert_tf.tasks.embeddings import small_model
from tests.bert_tf.tasks.embeddings.small_model import SEED, by_path, gradients


def plain_gradients(objective, batch):
    """The gradient of the loss of the whole batch by one tape, without any caching."""
    variables = objective.model.trainable_variables
    with tf.GradientTape() as tape:
        logits = objective.model(batch, training=True, seed=SEED)["logits"]
        sums = objective.weighted_sums(logits, batch)
        loss = objective.loss(sums, objective.denominators(batch)["loss"])
    return by_path(objective.model, tape.gradient(loss, variables))


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-5, rtol=1e-4, err_msg=name)


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
    batch = small_model.batch_of(task, examples, vocab_file, packed, shares=4)
    for micro_batches, parts in ((4, 1), (2, 2), (1, 4)):
        found, values = gradients(objective, batch, micro_batches, parts)
        assert_same(found, whole)
        assert values == pytest.approx(numerators, rel=1e-5)


@pytest.mark.slow
def test_recomputation_uses_the_same_dropout_masks(vocab_file):
    """The gradient along a direction is the derivative of the loss in that direction, with the same masks."""
    task = small_model.tasks()["infonce"]
    objective = small_model.objective_of(task)
    batch = small_model.batch_of(task, small_model.examples(4), vocab_file, shares=2)
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
def test_two_replicas_equal_one(vocab_file):
    task = small_model.tasks()["infonce"]
    found = small_model.examples(8)
    one = small_model.objective_of(task, small_model.without_dropout())
    batch = small_model.batch_of(task, found, vocab_file, shares=2)
    expected, _ = gradients(one, batch)
    devices = [f"CPU:{number}" for number in range(2)]
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())
    with strategy.scope():
        two = small_model.objective_of(task, small_model.without_dropout())
    two.model({name: column[:3] for name, column in batch.items()})
    for variable, value in zip(two.model.variables, one.model.variables, strict=True):
        variable.assign(value)
    total = one.denominators(batch)["loss"]
    paths = {id(variable): path for path, variable in variables_by_path(one.model).items()}
    names = [paths[id(variable)] for variable in one.model.trainable_variables]

    @tf.function
    def run():
        def on_replica():
            context = tf.distribute.get_replica_context()
            half = len(batch["row_ids"]) // 2
            first = context.replica_id_in_sync_group * half
            own = {name: column[first : first + half] for name, column in batch.items()}
            own = {name: tf.ensure_shape(column, [half, *column.shape[1:]]) for name, column in own.items()}
            variables = two.model.trainable_variables
            values, _ = cached_gradients.accumulate(two, variables, own, SEED, total, micro_batches=2)
            there = [g is not None for g in values]
            sums = iter(
                context.all_reduce(
                    tf.distribute.ReduceOp.SUM, [tf.convert_to_tensor(g) for g in values if g is not None]
                )
            )
            return [next(sums) if one else None for one in there]

        return strategy.run(on_replica)

    values = [None if value is None else strategy.experimental_local_results(value)[0] for value in run()]
    found = {path: value.numpy() for path, value in zip(names, values, strict=True) if value is not None}
    assert_same(found, expected)
