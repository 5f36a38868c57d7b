"""Training and inference on an NVIDIA GPU agree with the CPU: `make test-gpu`."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from tensorflow.python.framework import config as framework

from bert_tf.encoder import FUSED, PLAIN, BertEncoder
from bert_tf.finetuning.model import FineTuningObjective
from bert_tf.pretraining.objective import PretrainingObjective
from export.saved_model import export_saved_model
from export.settings import ExportSettings
from tests.bert_tf.tasks import small_runs
from tests.bert_tf.training.one_batch import batch, make_trainer
from tests.bert_tf.training.test_trainer import run
from tests.small_configs import small_config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="TensorFlow finds no GPU"),
]
GPU = {"num_gpus": 1}


@pytest.fixture(autouse=True)
def _without_tf32():
    """Turns off TF32, whose products have 10 bits, since the CPU's float32 products have 23."""
    tf.config.experimental.enable_tensor_float_32_execution(False)


def steps_of(trainer, steps: int = 3) -> list[dict[str, float]]:
    """Returns the metrics of each step."""
    return run(trainer, steps)[0]


def assert_close(got, expected, rel):
    for step, (mine, other) in enumerate(zip(got, expected, strict=True)):
        assert mine == pytest.approx(other, rel=rel), f"step {step}"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_encoder_agrees_with_the_cpu(dtype):
    inputs = {name: tf.constant(batch(PretrainingObjective)[name]) for name in ("input_ids", "input_mask")}
    keras.utils.set_random_seed(1)
    with tf.device("CPU:0"):
        reference = BertEncoder(small_config(40, 32, 2))
        reference.inference_operations = PLAIN
        expected = reference(inputs)
    keras.mixed_precision.set_global_policy("float32" if dtype == "float32" else f"mixed_{dtype}")
    try:
        with tf.device("GPU:0"):
            encoder = BertEncoder(small_config(40, 32, 2))
            encoder.set_weights(reference.get_weights())
            assert encoder.inference_operations is FUSED
            found = tf.function(encoder)(inputs)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    for name in ("sequence_output", "pooled_output"):
        assert "GPU" in found[name].device
        np.testing.assert_allclose(
            tf.cast(found[name], tf.float32), expected[name], atol=1e-5 if dtype == "float32" else 5e-2
        )


@pytest.mark.parametrize("objective", [PretrainingObjective, FineTuningObjective])
@pytest.mark.parametrize(("micro_batches", "compiles"), [(1, True), (2, True), (1, False)])
def test_steps_agree_with_the_cpu(objective, micro_batches, compiles):
    """Pre-training has packed rows."""
    expected = steps_of(make_trainer(objective, micro_batches=micro_batches))
    got = steps_of(make_trainer(objective, micro_batches=micro_batches, device=GPU, compiles=compiles))
    assert_close(got, expected, rel=1e-5)


def test_steps_in_bfloat16_agree_with_the_cpu():
    got, expected = steps_of(make_trainer(dtype="bfloat16", device=GPU, compiles=True)), steps_of(make_trainer())
    names = ("masked_lm_loss", "next_sentence_loss", "gradient_norm")
    for mine, other in zip(got, expected, strict=True):
        assert [mine[name] for name in names] == pytest.approx([other[name] for name in names], rel=5e-2)


def test_mirrored_with_one_gpu_is_the_same_step():
    got = steps_of(make_trainer(device=GPU | {"distribution_strategy": "mirrored"}, compiles=True))
    assert_close(got, steps_of(make_trainer()), rel=1e-5)


def test_a_resumed_run_is_bit_identical(tmp_path):
    config = small_config(40, 32, 2, max_position_embeddings=16)
    framework.enable_op_determinism()
    try:
        whole = make_trainer(config=config, device=GPU, dtype="bfloat16", compiles=True)
        run(whole, 2)
        saved = whole.checkpoint.save(str(tmp_path / "ckpt"))
        run(whole, 2)
        resumed = make_trainer(config=config, device=GPU, dtype="bfloat16", compiles=True)
        resumed.checkpoint.restore(saved).assert_consumed()
        run(resumed, 2)
        pairs = zip(whole.objective.model.get_weights(), resumed.objective.model.get_weights(), strict=True)
        assert all(np.array_equal(one, other) for one, other in pairs)
    finally:
        framework.disable_op_determinism()


@pytest.mark.parametrize("kind", small_runs.KINDS)
def test_every_kind_trains_as_on_the_cpu(kind, vocab_file, tmp_path):
    """With dropout: the masks are the same on all devices. The GPU compiles the step by default."""
    cpu = ("--distribution_strategy=one_device", "--num_gpus=0")
    flags = {"gpu": (), "cpu": cpu}
    got, expected = (small_runs.trained(kind, vocab_file, tmp_path / name, *more) for name, more in flags.items())
    assert_close(got, expected, rel=2e-4)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_an_export_answers_on_the_gpu_as_on_the_cpu(device, vocab_file, tmp_path):
    small_runs.trained("classification", vocab_file, tmp_path / "run")
    settings = ExportSettings(checkpoint_dir=str(tmp_path / "run"), export_dir=str(tmp_path / "served"), device=device)
    path = export_saved_model(settings)
    texts = tf.constant(["the man said", "women had many years", ""])
    found = {}
    for place in ("CPU:0", "GPU:0"):
        with tf.device(place):
            answers = tf.saved_model.load(path).signatures["serving_default"](text_a=texts)
            found[place] = answers["probabilities"].numpy()
    np.testing.assert_allclose(found["GPU:0"], found["CPU:0"], atol=1e-5)
    assert not np.allclose(*itertools.islice(found["GPU:0"], 2), atol=1e-7), "different texts have different answers"
