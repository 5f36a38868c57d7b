import dataclasses
import logging

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from tests.bert_tf.classification import make_classifier
from tests.bert_tf.reference import random_pretrainer
from tests.kit import refused
from tests.small_configs import small_config

CONFIG = small_config(40, num_hidden_layers=2, max_position_embeddings=12)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A folder with a pre-trainer's checkpoint, and the model."""
    folder = tmp_path_factory.mktemp("pretrained")
    model = random_pretrainer(CONFIG)
    step = tf.Variable(7, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, global_step=step)
    tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=1).save(checkpoint_number=7)
    (folder / "bert_config.json").write_text(CONFIG.to_json_string())
    return folder, model


@pytest.mark.parametrize("path", ["", "ckpt-7", "ckpt-7.index"])
def test_load_encoder_gives_the_saved_encoder(pretrained, path):
    folder, model = pretrained
    inputs = {"input_ids": tf.constant([[1, 5, 9, 2]])}
    loaded = checkpoints.load_encoder(folder / path, folder / "bert_config.json")
    np.testing.assert_array_equal(loaded(inputs)["sequence_output"], model.encoder(inputs)["sequence_output"])


def test_initialize_loads_encoder_and_reports_rest(pretrained, caplog):
    folder, model = pretrained
    classifier = make_classifier(CONFIG, 3)
    head = classifier.head.dense.kernel.numpy()
    with caplog.at_level(logging.INFO, "absl"):
        checkpoints.initialize(classifier, str(folder))
    for ours, saved in zip(classifier.encoder.weights, model.encoder.weights, strict=True):
        np.testing.assert_array_equal(ours, saved)
    np.testing.assert_array_equal(classifier.head.dense.kernel, head)
    assert "keep their initial values: head/dense/bias, head/dense/kernel" in caplog.text
    assert "unused tensors of the checkpoint: masked_lm/bias" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 41}, r"encoder/embeddings/word_embeddings has shape \[40, 16\].*needs \[41, 16\]"),
        ({"num_hidden_layers": 3}, r"the tensor encoder/blocks/2/.* is missing"),
        ({"intermediate_size": 64}, r"blocks/0/intermediate/.* has shape"),
        ({"num_hidden_layers": 1}, r"the tensor encoder/blocks/1/.* has no place in the model"),
        ({"num_attention_heads": 4}, "has num_attention_heads=2, but the model has 4"),
        ({"directionality": "ltr"}, "has directionality=bidi, but the model has ltr"),
        ({"hidden_act": "gelu_erf"}, "has hidden_act=gelu, but the model has gelu_erf"),
    ],
)
def test_another_architecture_is_refused_by_tensor(pretrained, change, message):
    model = make_classifier(dataclasses.replace(CONFIG, **change), 2)
    before = [w.numpy() for w in model.weights]
    refused(message, checkpoints.initialize, model, str(pretrained[0]))
    for value, weight in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(value, weight)


def test_a_checkpoint_of_another_project_is_refused(tmp_path):
    tf.train.Checkpoint(v=tf.Variable(1.0)).write(str(tmp_path / "x"))
    refused("holds no encoder of bert_tf", checkpoints.initialize, make_classifier(CONFIG, 2), str(tmp_path / "x"))
