"""Files that other libraries wrote: our models give the outputs of the library that wrote the file."""

import os
import pathlib
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.pretraining.objective import BertPretrainer
from tests.bert_tf.classification import make_classifier
from tests.migration.write_files import IDS, MASK, SEGMENTS

pytestmark = pytest.mark.migration

INPUTS = {"input_ids": tf.constant(IDS), "input_mask": tf.constant(MASK), "segment_ids": tf.constant(SEGMENTS)}
WRITER = pathlib.Path(__file__).with_name("write_files.py")


def written(library: str, tmp_path_factory) -> pathlib.Path:
    """Returns the folder of the files that a library writes in the environment of `make test-migration`."""
    python = os.environ.get("BERT_TF_MIGRATION_PYTHON")
    assert python, "give the other libraries: make test-migration"
    folder = tmp_path_factory.mktemp(library)
    subprocess.run([python, WRITER, library, folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory):
    return written("hugging_face", tmp_path_factory)


@pytest.fixture(scope="module")
def keras_hub(tmp_path_factory):
    return written("keras_hub", tmp_path_factory)


def assert_equal(ours, theirs) -> None:
    np.testing.assert_allclose(ours, theirs, atol=2e-5)


def initialized(model, path, inputs=INPUTS):
    checkpoints.initialize(model, str(path))
    return model(inputs)


@pytest.mark.parametrize("form", ["h5", "safetensors"])
def test_the_heads_of_pre_training_of_transformers(hugging_face, form):
    places = tf.constant([[1, 2], [1, 3]])
    for name, key in (("ForPreTraining", "seq_relationship_logits"), ("ForNextSentencePrediction", "logits")):
        path, expected = hugging_face / name / form, np.load(hugging_face / name / "expected.npz")
        model = BertPretrainer(checkpoints.open_checkpoint(str(path)).config)
        outputs = initialized(model, path, INPUTS | {"masked_lm_positions": places})
        assert_equal(outputs["next_sentence_logits"], expected[key])
        if name == "ForPreTraining":
            masked = tf.gather(expected["prediction_logits"], places, batch_dims=1)
            assert_equal(outputs["masked_lm_logits"], masked)


def test_a_saved_model_with_its_own_name(hugging_face, caplog):
    folder, expected = hugging_face / "named", np.load(hugging_face / "named.npz")["sequence"]
    outputs = checkpoints.load_encoder(str(folder / "saved_model/1"))(INPUTS)["sequence_output"]
    kept = MASK[:, :, np.newaxis]
    assert_equal(outputs * kept, expected * kept)
    assert "are assumed" not in caplog.text
    (folder / "config.json").rename(folder / "saved_model/1/config.json")
    assert_equal(checkpoints.load_encoder(str(folder / "saved_model/1"))(INPUTS)["sequence_output"], outputs)
    (folder / "saved_model/1/config.json").unlink()
    checkpoints.load_encoder(str(folder / "saved_model/1"))
    assert "1 heads and the exact GELU are assumed; copy the model's config.json there" in caplog.text


def test_presets_of_keras_hub(keras_hub):
    expected = np.load(keras_hub / "expected.npz")
    outputs = checkpoints.load_encoder(str(keras_hub / "backbone"))(INPUTS)
    kept = MASK[:, :, np.newaxis]
    assert_equal(outputs["sequence_output"] * kept, expected["sequence"] * kept)
    assert_equal(outputs["pooled_output"], expected["pooled"])
    config = checkpoints.open_checkpoint(str(keras_hub / "classifier")).config
    assert_equal(initialized(make_classifier(config, 3), keras_hub / "classifier")["logits"], expected["logits"])
    (keras_hub / "weights").mkdir()
    (keras_hub / "whole.weights.h5").rename(keras_hub / "weights/model.weights.h5")
    (keras_hub / "classifier/config.json").rename(keras_hub / "weights/config.json")
    assert_equal(initialized(make_classifier(config, 3), keras_hub / "weights")["logits"], expected["logits"])
    # Their head has another epsilon and the exact GELU; see the warning.
    model = BertPretrainer(config)
    checkpoints.initialize(model, str(keras_hub / "masked_lm"))
    outputs = model(INPUTS | {"masked_lm_positions": tf.constant([[1, 2], [1, 3]])})
    np.testing.assert_allclose(outputs["masked_lm_logits"], expected["masked_lm"], atol=2e-2)
