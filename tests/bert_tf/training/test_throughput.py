import itertools
import math
import types

import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.settings import DeviceSettings
from bert_tf.training import flops, throughput
from bert_tf.training.flops import Peak
from bert_tf.training.throughput import Throughput
from bert_tf.training.trainer import Trainer, make_optimizer
from tests.bert_tf.classification import make_classifier, make_task
from tests.bert_tf.training.test_trainer import Drawing
from tests.small_configs import small_config

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


CONFIG = small_config(90, 32, 2, 4, max_position_embeddings=24, intermediate_size=48)
BATCH, LENGTH, PREDICTIONS = 3, 20, 5


def product_flops(op: tf.Operation) -> int:
    """Counts two per multiply-add of a matrix product, from the shapes of its operands and its result."""
    if op.type == "Einsum":
        inputs, result = op.get_attr("equation").decode().split("->")
        sizes = {}
        for letters, tensor in zip([*inputs.split(","), result], [*op.inputs, *op.outputs], strict=True):
            sizes |= dict(zip(letters, tensor.shape.as_list(), strict=True))
        return 2 * math.prod(sizes.values())
    transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
    contracted = op.inputs[0].shape.as_list()[-2 if transposed else -1]
    return 2 * math.prod(op.outputs[0].shape.as_list()) * contracted


def traced_flops(model, loss_of_outputs, **more: int) -> int:
    """Counts the FLOPs of all products in the graph of loss and gradients; `more` maps inputs to their lengths."""

    @tf.function(autograph=False)
    def gradients(inputs):
        with tf.GradientTape() as tape:
            loss = loss_of_outputs(model(inputs, training=True))
        return tape.gradient(loss, model.trainable_variables)

    sizes = {"input_ids": LENGTH, "masked_lm_positions": PREDICTIONS, **more}
    graph = gradients.get_concrete_function({n: tf.TensorSpec([BATCH, s], tf.int32) for n, s in sizes.items()}).graph
    products = [op for op in graph.get_operations() if op.type.startswith(("MatMul", "BatchMatMul", "Einsum"))]
    assert len(products) > 3 * 6 * CONFIG.num_hidden_layers - 1
    return sum(map(product_flops, products))


@pytest.mark.slow
@pytest.mark.parametrize(("direction", "examples"), [("bidi", 6), ("ltr", 1), ("bidi", 1), ("ltr", 6)])
def test_pretraining_flops_formula_equals_graph(direction, examples):
    packed = {"sequence_ids": LENGTH, "position_ids": LENGTH, "cls_positions": examples} if examples > 1 else {}
    config = BertConfig.from_dict({**vars(CONFIG), "directionality": direction})

    def loss(outputs):
        return tf.reduce_sum(outputs["masked_lm_logits"] ** 2) + tf.reduce_sum(outputs["next_sentence_logits"] ** 2)

    counted = traced_flops(BertPretrainer(config), loss, **packed)
    formula = flops.pretraining_flops(config, LENGTH, PREDICTIONS, 2, examples)
    assert BATCH * formula == pytest.approx(counted, rel=0.01)


@pytest.mark.slow
def test_flops_of_classification_equal_the_graphs():
    counted = traced_flops(make_classifier(CONFIG, 3), lambda outputs: tf.reduce_sum(outputs["logits"] ** 2))
    assert BATCH * make_task(3).training_flops(CONFIG, LENGTH) == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize(
    ("name", "dtype", "teraflops"),
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.5),
        ("Tesla V100-SXM2-16GB", "float16", 125),
        ("Tesla T4", "float16", 65),
    ],
)
def test_published_peaks_of_gpus(name, dtype, teraflops):
    assert flops.gpu_peak(name, dtype, replicas=2).flops == pytest.approx(2e12 * teraflops)


def test_what_is_not_known_has_no_peak():
    for name, dtype in (("Tesla V100-SXM2-16GB", "bfloat16"), ("Quadro P4000", "float32")):
        assert flops.gpu_peak(name, dtype) is None
    assert [flops.tpu_peak(kind) for kind in ("", "v99-8", "v3", "8")] == [None] * 4
    assert flops.peak(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), "float32") is None
