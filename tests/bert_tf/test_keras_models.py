"""`BertEncoder` inside a user's Keras model."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from bert_tf.encoder import BertEncoder
from bert_tf.encoder_pair import make_encoder
from bert_tf.modeling.precision import policy
from tests.small_configs import small_config

CONFIG = small_config(50, max_position_embeddings=16, initializer_range=0.2)
IDS = np.random.default_rng(0).integers(5, 50, (64, 12)).astype(np.int32)
DATA = {"input_ids": IDS, "input_mask": np.ones_like(IDS), "segment_ids": np.zeros_like(IDS)}
LABELS = (IDS[:, 1] > 27).astype(np.int32)


def make_model(length):
    inputs = {name: keras.Input([length], dtype=tf.int32, name=name) for name in DATA}
    encoder = BertEncoder(CONFIG, name="bert")
    logits = keras.layers.Dense(2, dtype="float32")(encoder(inputs)["pooled_output"])
    return keras.Model(inputs, logits), encoder


@pytest.mark.slow
def test_fit_trains_on_replicas_in_mixed_precision():
    # Collectives between CPU devices would remember the shapes of other strategies in this process.
    reduction = tf.distribute.ReductionToOneDevice()
    with policy("mixed_bfloat16"), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], reduction).scope():
        model, encoder = make_model(None)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(5e-3), loss)
    before = encoder.embeddings.word_embeddings.numpy()
    losses = model.fit(DATA, LABELS, batch_size=32, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    assert np.abs(encoder.embeddings.word_embeddings.numpy() - before).max() > 1e-3
    assert encoder.embeddings.word_embeddings.dtype == tf.float32


@pytest.mark.parametrize("name", [pytest.param("saved_model", marks=pytest.mark.slow), "model.keras"])
def test_a_loaded_model_keeps_its_precision(tmp_path, name):
    with policy("mixed_bfloat16"):
        model, _ = make_model(None)
    model.save(str(tmp_path / name))
    again = keras.models.load_model(str(tmp_path / name))
    assert keras.mixed_precision.global_policy().name == "float32"
    assert again.get_layer("bert")(DATA)["pooled_output"].dtype == tf.bfloat16
    np.testing.assert_array_equal(again(DATA), model(DATA))


def test_an_encoder_computes_in_its_own_dtype():
    config = small_config(10, 8, 1, 1, max_position_embeddings=4, intermediate_size=8)
    encoder = BertEncoder(config, dtype="mixed_bfloat16")
    for each in (encoder, BertEncoder.from_config(encoder.get_config())):
        assert each({"input_ids": tf.constant([[1]])})["pooled_output"].dtype == tf.bfloat16
    pair = dataclasses.replace(config, directionality="ltr+rtl", num_attention_heads=2)
    with pytest.raises(ValueError, match=r"directionality=ltr\+rtl means two encoders; call make_encoder"):
        BertEncoder(pair)
    with pytest.raises(ValueError, match="Keras cannot store a pair of encoders"):
        make_encoder(pair).get_config()


def test_a_policy_of_half_weights_is_refused_by_name():
    with policy("float16"), pytest.raises(ValueError, match="the Keras policy is float16, .* set the policy mixed_flo"):
        BertEncoder(CONFIG)


FORMATS = ["weights", "weights.h5", "model.h5", "model.keras", pytest.param("saved_model", marks=pytest.mark.slow)]


@pytest.mark.parametrize("name", FORMATS)
def test_a_model_is_saved_and_loaded_in_each_format(tmp_path, name, caplog):
    model, _ = make_model(None)
    path = str(tmp_path / name)
    if name.startswith("weights"):
        model.save_weights(path)
        again, _ = make_model(None)
        again.load_weights(path)
    else:
        model.save(path)
        again = keras.models.load_model(path)
        assert again.get_layer("bert").config == CONFIG
    np.testing.assert_allclose(again(DATA), model(DATA), atol=1e-6)
    assert "same name" not in caplog.text


class Subclassed(keras.Model):
    def __init__(self, **options):
        super().__init__(**options)
        self.encoder, self.head = BertEncoder(CONFIG), keras.layers.Dense(2)

    def call(self, inputs):
        return self.head(self.encoder(inputs)["pooled_output"])

    def get_config(self):
        return {}


def test_a_subclassed_model_is_saved_and_loaded(tmp_path):
    model = Subclassed()
    expected = model(DATA)
    model.save(str(tmp_path / "model.keras"))
    again = keras.models.load_model(str(tmp_path / "model.keras"), custom_objects={"Subclassed": Subclassed})
    np.testing.assert_allclose(again(DATA), expected, atol=1e-6)


def test_fixed_length_rows_have_embedding_gradients():
    model, encoder = make_model(12)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(DATA, training=True))
    (gradient,) = tape.gradient(loss, [encoder.embeddings.word_embeddings])
    assert np.abs(tf.convert_to_tensor(gradient)).max() > 0


@pytest.mark.slow
# Keras unfreezes single layers when it loads a model from a SavedModel.
@pytest.mark.parametrize(
    ("name", "whole"),
    [
        pytest.param("saved_model", True, marks=pytest.mark.slow),
        pytest.param("model.keras", True, marks=pytest.mark.slow),
        ("model.keras", False),
    ],
)
def test_a_loaded_model_is_as_frozen_as_the_saved_one(tmp_path, name, whole):
    model, encoder = make_model(None)
    for part in [encoder] if whole else [encoder.embeddings, encoder.blocks[0].attention]:
        part.trainable = False
    model.compile("adam", "mse", run_eagerly=True)
    model.fit(DATA, np.eye(2)[LABELS], epochs=1, verbose=0)
    model.save(str(tmp_path / name))
    again = keras.models.load_model(str(tmp_path / name))
    shapes = [tuple(weight.shape) for weight in model.trainable_weights]
    assert [tuple(weight.shape) for weight in again.trainable_weights] == shapes
    assert len(shapes) < len(model.weights) and (len(shapes) == 2) == whole
    before = encoder.embeddings.word_embeddings.numpy()
    again.fit(DATA, np.eye(2)[LABELS], epochs=1, verbose=0)
    np.testing.assert_array_equal(again.get_layer("bert").embeddings.word_embeddings, before)
    assert name == "saved_model" or int(again.optimizer.iterations) == 4, "the optimizer's state came along"
