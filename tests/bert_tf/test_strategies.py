"""Every strategy by its flags; several replicas and several machines train as one device does."""

import dataclasses

import pytest
import tensorflow as tf

from bert_tf import strategies
from bert_tf.settings import DeviceSettings
from tfrecords.errors import InputError


@pytest.mark.parametrize(
    ("kind", "made", "replicas"),
    [("off", tf.distribute.Strategy, 1), ("one_device", tf.distribute.OneDeviceStrategy, 1),
     ("mirrored", tf.distribute.MirroredStrategy, 2)],
)  # fmt: skip
def test_strategies_by_flag(kind, made, replicas):
    strategy = strategies.make_strategy(dataclasses.replace(DeviceSettings(), distribution_strategy=kind))
    assert isinstance(strategy, made) and strategy.num_replicas_in_sync == replicas


@pytest.mark.parametrize(
    ("micro_batches", "rows", "message"),
    [(1, 7, "--train_batch_size=7: must be a multiple of the 2 replicas"),
     (3, 8, "--train_batch_size=8: must be a multiple of the 2 replicas times 3 micro-batches")],
)  # fmt: skip
def test_a_batch_that_cannot_be_shared_is_refused(micro_batches, rows, message):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    strategies.check_batch_size(strategy, micro_batches, train_batch_size=12)
    with pytest.raises(InputError, match=message):
        strategies.check_batch_size(strategy, micro_batches, train_batch_size=rows)
