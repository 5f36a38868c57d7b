"""Every replica and every micro-batch of a step draws its own dropout masks."""

import numpy as np
import tensorflow as tf
import tf_keras as keras

from bert_tf.distributed import strategies
from bert_tf.modeling.dropout import fold_in
from bert_tf.settings import DeviceSettings
from bert_tf.training.metrics import Metric
from bert_tf.training.trainer import Trainer, make_optimizer


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
