"""Our model against Hugging Face's in PyTorch with the same weights, in float32: outputs, loss, gradients.

`test_official_parity` compares other shapes, and rows without padding or segments.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers

from bert_tf.checkpoints import variables_by_path
from bert_tf.config import BertConfig
from bert_tf.encoder import BertEncoder
from bert_tf.input.pipeline import every_token_predicted
from bert_tf.settings import FineTuningSettings
from bert_tf.training.optimization import WarmupLinearDecay
from tests.bert_tf.checkpoint_formats.models import their_name
from tests.bert_tf.reference import (
    CONFIG,
    assert_gradients_equal,
    assert_outputs_equal,
    outputs_and_gradients,
    random_batch,
    random_pretrainer,
)
from tests.parity.hugging_face import (
    hugging_face,
    their_inputs,
    their_outputs_and_gradients,
    their_states,
    transposed,
)

pytestmark = pytest.mark.torch


def assert_equal(
    config: BertConfig, batch: dict, seed: int = 0, stddev: float | None = None, attention: str = "eager"
) -> None:
    """By default with weights that keep activations at unit scale, see pretraining/test_official_parity.py."""
    model = random_pretrainer(config, seed, stddev or config.hidden_size**-0.5)
    weights = variables_by_path(model)
    outputs, gradients = outputs_and_gradients(model, batch)
    heads = hugging_face(transformers.BertForPreTraining, config, weights, attention)
    their_outputs, their_gradients = their_outputs_and_gradients(heads, batch, weights)
    assert_outputs_equal(outputs, their_outputs)
    assert_gradients_equal(gradients, their_gradients)
    encoder = hugging_face(transformers.BertModel, config, weights, attention)
    assert_outputs_equal(outputs, their_states(encoder, batch))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_erf"])
@pytest.mark.parametrize("stddev", [0.02, None, 0.2], ids=["initial", "unit_gain", "larger"])
def test_outputs_and_gradients_are_equal(stddev, hidden_act, attention):
    config = dataclasses.replace(CONFIG, hidden_act=hidden_act)
    assert_equal(config, random_batch(config, batch=5, length=20, predictions=4, seed=3), 3, stddev, attention)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_left_to_right_is_their_decoder(attention):
    """Without the next-sentence task: our pooler reads the last token, which sees the row, theirs the first."""
    config = dataclasses.replace(CONFIG, directionality="ltr")
    model = random_pretrainer(config, stddev=config.hidden_size**-0.5)
    weights = variables_by_path(model)
    batch = random_batch(config, batch=5, length=20, predictions=4)
    outputs, gradients = outputs_and_gradients(model, batch, next_sentence=False)
    theirs = hugging_face(transformers.BertForMaskedLM, config, weights, attention, is_decoder=True)
    their_outputs, their_gradients = their_outputs_and_gradients(theirs, batch, weights, next_sentence=False)
    assert_outputs_equal(outputs, their_outputs)
    assert_gradients_equal(gradients, their_gradients)


@pytest.mark.parametrize("ours, theirs", [("gelu", "gelu_erf"), ("gelu_erf", "gelu")])
def test_another_gelu_is_told_apart(ours, theirs):
    batch = random_batch(CONFIG, batch=5, length=20, predictions=4)
    model = random_pretrainer(dataclasses.replace(CONFIG, hidden_act=ours))
    config = dataclasses.replace(CONFIG, hidden_act=theirs)
    encoder = hugging_face(transformers.BertModel, config, variables_by_path(model), "eager")
    with pytest.raises(AssertionError, match="encoder_outputs 0"):
        assert_outputs_equal(model(batch), their_states(encoder, batch))


def test_the_papers_base_size_is_equal():
    """With initial weights of training."""
    config = BertConfig.named("base")
    encoder = BertEncoder(config)
    batch = random_batch(config, batch=2, length=128, predictions=20)
    weights = {f"encoder/{path}": variable for path, variable in variables_by_path(encoder).items()}
    theirs = hugging_face(transformers.BertModel, config, weights, "sdpa")
    assert_outputs_equal(encoder(batch), their_states(theirs, batch))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_left_to_right_language_model_is_equal(attention):
    """Their model shifts the labels itself: position i predicts the label of position i + 1."""
    config = dataclasses.replace(CONFIG, directionality="ltr")
    rng = np.random.default_rng(0)
    lengths = np.array([24, 9, 17])
    ids = rng.integers(2, config.vocab_size, [3, 24]) * (np.arange(24) < lengths[:, np.newaxis])
    ids[:, 0], ids[range(3), lengths - 1] = 0, 1  # [CLS] and [SEP]
    rows = {"input_ids": tf.constant(ids, tf.int32), "input_mask": tf.sequence_mask(lengths, 24, tf.int32)}
    batch = rows | {"segment_ids": tf.zeros_like(rows["input_ids"])} | every_token_predicted(rows, "ltr")
    model = random_pretrainer(config, stddev=config.hidden_size**-0.5)
    weights = variables_by_path(model)
    ours, gradients = outputs_and_gradients(model, batch, next_sentence=False)
    theirs = hugging_face(transformers.BertLMHeadModel, config, weights, attention, is_decoder=True)
    labels = torch.from_numpy(np.where((ids > 1) & (np.arange(24) < lengths[:, np.newaxis]), ids, -100))
    results = theirs(**their_inputs(batch), labels=labels)
    results.loss.backward()
    np.testing.assert_allclose(ours["loss"], results.loss.detach(), rtol=1e-6)
    paths = {their_name(path): path for path in weights}
    expected = {
        paths[name]: transposed(parameter.grad.numpy(), paths[name])
        for name, parameter in theirs.named_parameters()
        if parameter.grad is not None
    }
    assert_gradients_equal({path: gradients[path] for path in expected}, expected)


@pytest.mark.parametrize("warmup", [0, 7])
def test_the_rates_of_fine_tuning_are_the_trainers(warmup):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3e-5)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, 70)
    ours = WarmupLinearDecay(3e-5, 70, warmup, decay_after_warmup=FineTuningSettings.decay_after_warmup)
    for step in range(72):
        np.testing.assert_allclose(ours(step), schedule.get_last_lr()[0], rtol=1e-5, atol=1e-12)
        optimizer.step()
        schedule.step()
