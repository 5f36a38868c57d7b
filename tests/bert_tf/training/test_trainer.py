"""A step does not depend on how its rows are spread over replicas and micro-batches."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from bert_tf.distributed import strategies
from bert_tf.modeling.dropout import fold_in
from bert_tf.pretraining.objective import PretrainingObjective
from bert_tf.settings import DeviceSettings
from bert_tf.training.metrics import Metric
from bert_tf.training.trainer import Trainer, make_optimizer
from tests.bert_tf.training.one_batch import batch, make_trainer, spoilt

_PRODUCTS = ("MatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")


def run(trainer: Trainer, steps: int = 3) -> tuple[list[dict[str, float]], list[np.ndarray]]:
    """Returns the metrics of each step and the final weights."""
    results = [{k: float(v) for k, v in trainer.train(tf.constant(1)).items()} for _ in range(steps)]
    return [
        {k: v for k, v in f.items() if "per_second" not in k} for f in results
    ], trainer.objective.model.get_weights()


def assert_same(got, expected):
    for step, (results, wanted) in enumerate(zip(got[0], expected[0], strict=True)):
        assert results.keys() == wanted.keys()
        for name, value in wanted.items():
            np.testing.assert_allclose(results[name], value, rtol=1e-5, err_msg=f"{name}, step {step}")
    for value, wanted in zip(got[1], expected[1], strict=True):
        np.testing.assert_allclose(value, wanted, atol=1e-5)


@pytest.fixture(scope="module")
def whole():
    """Pre-training on one device without micro-batches."""
    return run(make_trainer())


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [{"replicas": 2}, {"parts": 2, "micro_batches": 2}, {"replicas": 2, "compiles": True}], ids=str
)
def test_a_step_does_not_depend_on_its_division(whole, how):
    assert whole[0][0]["gradient_norm"] > 1.0, "clipping before the sum would go unnoticed"
    assert_same(run(make_trainer(**{"micro_batches": 4} | how)), whole)


@pytest.mark.slow
def test_xla_compiles_forward_and_backward_together():
    """The compiled function contains the whole forward and backward pass."""
    trainer = make_trainer(replicas=2, compiles=True)
    iterator = iter(trainer._train_dataset)
    graph = tf.function(trainer.train_step).get_concrete_function(iterator).graph.as_graph_def()
    compiled, products, plain = 0, 0, []
    for function in graph.library.function:
        kinds = [node.op for node in function.node_def]
        if function.attr["_XlaMustCompile"].b and "XlaOptimizationBarrier" in kinds:
            compiled += 1
            products += sum(kind in _PRODUCTS for kind in kinds)
        elif any(kind in _PRODUCTS for kind in kinds):
            plain.append(function.signature.name)
    outside = [node.name for node in graph.node if node.op in _PRODUCTS]
    assert compiled == 2, "one for each replica, with its own weights"
    assert products > 2 * 3 * 8 and not outside and not plain


# A finite loss that overflows when it is scaled for float16.
HUGE = spoilt(39, lambda loss, is_bad: loss * tf.where(is_bad, 1e36, 1.0))


@pytest.mark.slow
def test_float16_overflow_skips_the_whole_step():
    good = batch(PretrainingObjective)
    good["input_ids"][:, 0] = 7
    ids = good["input_ids"].copy()
    ids[-1, 0] = 39
    overflowing = good | {"input_ids": ids}
    rows = {name: np.concatenate([overflowing[name], value]) for name, value in good.items()}
    try:
        trainer = make_trainer(HUGE, replicas=2, micro_batches=2, rows=rows, dtype="float16")
        weights = [trainer.objective.model.get_weights()]
        scales = [float(trainer.optimizer.loss_scale)]
        norms = []
        for _ in range(2):
            norms.append(run(trainer, steps=1)[0][0].get("gradient_norm", 0.0))  # no metrics of a skipped step
            weights.append(trainer.objective.model.get_weights())
            scales.append(float(trainer.optimizer.loss_scale))
    finally:
        keras.mixed_precision.set_global_policy("float32")
    changed, changed_next = (
        [np.abs(new - old).max() > 0 for old, new in zip(before, after, strict=True)]
        for before, after in itertools.pairwise(weights)
    )
    assert norms[0] == 0.0 and not any(changed) and scales[1] == scales[0] / 2
    assert norms[1] > 0.0 and all(changed_next) and scales[2] == scales[1]


class Drawing:
    """An objective whose metric is a number that its seed determines, instead of a dropout mask."""

    couples_rows = False
    metrics = (Metric("loss"), Metric("drawn"))

    def __init__(self):
        self.model = keras.Sequential([keras.layers.Dense(1, use_bias=False)])
        self.model.build([None, 1])

    def denominators(self, batch):
        return {"loss": {"loss": tf.ones([])}, "metrics": {"drawn": tf.ones([])}}

    def numerators(self, batch, training, seed):
        drawn = tf.random.stateless_uniform([], seed)
        weight = tf.reduce_sum(self.model.trainable_variables[0])
        return {"loss": {"loss": drawn * weight}, "metrics": {"drawn": drawn}}

    def loss(self, numerators, denominators):
        return numerators["loss"] / denominators["loss"]


def drawn_in_first_step(replicas: int, micro_batches: int) -> float:
    """Returns the sum of the numbers that all micro-batches of all replicas draw in the first step."""
    settings = DeviceSettings(distribution_strategy="mirrored" if replicas > 1 else "one_device")
    strategy = strategies.make_strategy(settings)
    rows = tf.data.Dataset.from_tensors({"input_mask": np.ones([micro_batches, 1], np.int32)}).repeat()
    with strategy.scope():
        trainer = Trainer(
            Drawing(),
            strategy,
            random_seed=11,
            optimizer=make_optimizer(settings, 1e-2, 10, 0),
            train_dataset=strategy.distribute_datasets_from_function(lambda _: rows),
            gradient_accumulation_steps=micro_batches,
        )
    return replicas * float(trainer.train(tf.constant(1))["drawn"])


def test_replicas_and_micro_batches_have_own_seeds():
    uniform = tf.random.stateless_uniform
    of_replicas = [fold_in(tf.constant([11, 0]), replica) for replica in range(2)]
    numbers = [float(uniform([], fold_in(seed, part))) for seed in of_replicas for part in range(2)]
    assert len(set(numbers)) == 4
    np.testing.assert_allclose(drawn_in_first_step(2, 2), sum(numbers), rtol=1e-6)
