"""Files that other libraries wrote: our models give the outputs of the library that wrote the file."""

import os
import pathlib
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.finetuning.model import FineTunedBert
from bert_tf.modeling.heads import SpanHead, TaggingHead
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.tasks.choice.choice_task import make_head as make_choice_head
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


def initialized(model, path):
    checkpoints.initialize(model, str(path))
    return model(INPUTS)


@pytest.mark.parametrize("form", ["h5", "safetensors", "h5/saved_model/1"])
def test_the_encoder_of_transformers(hugging_face, form):
    expected = np.load(hugging_face / "Model/expected.npz")
    config = str(hugging_face / "Model/h5/config.json") if "saved_model" in form else ""
    outputs = checkpoints.load_encoder(str(hugging_face / "Model" / form), config)(INPUTS)
    kept = MASK[:, :, np.newaxis]
    assert_equal(outputs["sequence_output"] * kept, expected["last_hidden_state"] * kept)
    assert_equal(outputs["pooled_output"], expected["pooler_output"])


@pytest.mark.parametrize("form", ["h5", "safetensors"])
def test_all_heads_of_transformers(hugging_face, form):
    def read(name):
        path = hugging_face / name / form
        return path, checkpoints.open_checkpoint(str(path)).config, np.load(hugging_face / name / "expected.npz")

    kept = MASK[:, :, np.newaxis]
    path, config, expected = read("ForSequenceClassification")
    assert_equal(initialized(make_classifier(config, 3), path)["logits"], expected["logits"])
    path, config, expected = read("ForTokenClassification")
    outputs = initialized(FineTunedBert(config, lambda config: TaggingHead(config, 3)), path)
    assert_equal(outputs["logits"] * kept, expected["logits"] * kept)
    path, config, expected = read("ForQuestionAnswering")
    outputs = initialized(FineTunedBert(config, SpanHead), path)["logits"]
    for number, name in enumerate(("start_logits", "end_logits")):
        assert_equal(outputs[:, :, number] * MASK, expected[name] * MASK)
    path, config, expected = read("ForMultipleChoice")
    assert_equal(initialized(FineTunedBert(config, make_choice_head), path)["logits"][:, 0], expected["logits"][0])
    places = tf.constant([[1, 2], [1, 3]])
    for name, key in (("ForMaskedLM", "logits"), ("ForPreTraining", "prediction_logits")):
        path, config, expected = read(name)
        model = BertPretrainer(config)
        checkpoints.initialize(model, str(path))
        outputs = model(INPUTS | {"masked_lm_positions": places})
        assert_equal(outputs["masked_lm_logits"], tf.gather(expected[key], places, batch_dims=1))
        if name == "ForPreTraining":
            assert_equal(outputs["next_sentence_logits"], expected["seq_relationship_logits"])
    path, config, expected = read("ForNextSentencePrediction")
    model = BertPretrainer(config)
    checkpoints.initialize(model, str(path))
    assert_equal(model(INPUTS | {"masked_lm_positions": places})["next_sentence_logits"], expected["logits"])


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
    tokenizer = checkpoint_tokenizer.of(str(keras_hub / "masked_lm"))
    assert tokenizer.vocab_file.endswith("vocabulary.txt") and tokenizer.casing.do_lower_case is False
