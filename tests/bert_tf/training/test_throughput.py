import itertools
import types

import pytest
import tensorflow as tf

from bert_tf.settings import DeviceSettings
from bert_tf.training import throughput
from bert_tf.training.flops import Peak
from bert_tf.training.throughput import Throughput
from bert_tf.training.trainer import Trainer, make_optimizer
from tests.bert_tf.training.test_seeds import Drawing

MASK = tf.constant([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]])  # 3 rows, 8 tokens


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances by one second at each reading."""
    ticks = itertools.count()
    monkeypatch.setattr(throughput, "time", types.SimpleNamespace(monotonic=lambda: float(next(ticks))))


def test_rates_count_every_replica_and_no_padding(clock):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        counter = Throughput(flops_per_row=50.0, peak=Peak(1200.0, "a toy"))
    counter.start()
    for _ in range(2):
        strategy.run(lambda: counter.count({"input_mask": MASK}))
    expected = {"sequences_per_second": 12.0, "tokens_per_second": 32.0, "model_flop_utilization": 12 * 50 / 1200}
    assert counter.rates() == expected
    counter.start()
    assert counter.rates() == {}, "nothing was counted since the start"


def test_packed_rows_count_examples_and_flops(clock):
    counter = Throughput(flops_per_row=50.0, peak=Peak(1200.0, "a toy"))
    counter.start()
    counter.count({"input_mask": MASK, "sequence_ids": tf.constant([[1, 1, 2, 0], [1, 0, 0, 0], [1, 2, 3, 4]])})
    expected = {"sequences_per_second": 7.0, "tokens_per_second": 8.0, "model_flop_utilization": 3 * 50 / 1200}
    assert counter.rates() == expected


@pytest.mark.parametrize("peak", [None, Peak(100.0, "a toy")], ids=["unknown", "exceeded"])
def test_no_utilization_without_a_known_peak(clock, caplog, peak):
    counter = Throughput(flops_per_row=50.0, peak=peak)
    counter.start()
    counter.count({"input_mask": MASK})
    assert "model_flop_utilization" not in counter.rates()
    assert ("computes 150 FLOP/s, more than a toy" in caplog.text) == (peak is not None)


def trainer() -> Trainer:
    optimizer = make_optimizer(DeviceSettings(), 1e-3, 10, 0)
    data = tf.data.Dataset.from_tensors({"input_mask": MASK}).repeat()
    return Trainer(Drawing(), tf.distribute.get_strategy(), optimizer=optimizer, train_dataset=data)


def test_tracing_steps_count_in_no_rate(clock):
    first = trainer()
    assert "sequences_per_second" not in first.train(tf.constant(1))
    assert first.train(tf.constant(4))["sequences_per_second"] == 4 * 3, "a second between two looks at the clock"
    second = trainer()
    assert second.train(tf.constant(5))["tokens_per_second"] == 4 * 8
    assert int(second.global_step) == 5
