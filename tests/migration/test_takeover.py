"""Models that transformers' TensorFlow classes and KerasHub wrote answer raw strings as the library that wrote them."""

import itertools
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.classifier import TextClassifier
from bert_tf.conversion import convert_checkpoint
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.settings import ConversionSettings
from bert_tf.text import tokenizer_files
from export.saved_model import export_saved_model
from export.settings import ExportSettings
from tests.bert_tf.classification import make_classifier
from tests.migration import keras_hub_models, taken_over, transformers_models, write_files
from tests.migration.taken_over import TOLERANCE
from tests.migration.write_files import IDS, MASK, SEGMENTS

pytestmark = pytest.mark.migration

FORMS = transformers_models.FORMS["tensorflow"]


def written(script, folder: pathlib.Path, *arguments: str) -> pathlib.Path:
    """Runs a script in the environment of `make test-migration`; returns the folder of its files."""
    python = os.environ.get("BERT_TF_MIGRATION_PYTHON")
    assert python, "give the other libraries: make test-migration"
    subprocess.run([python, script.__file__, folder, *arguments], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return written(transformers_models, tmp_path_factory.mktemp("tensorflow"), "tensorflow")


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    return written(keras_hub_models, tmp_path_factory.mktemp("keras_hub"))


@pytest.mark.parametrize(("head", "form"), itertools.product(transformers_models.HEADS, FORMS))
def test_an_export_answers_as_transformers(models, tmp_path, head, form):
    taken_over.assert_answers(head, form, models / head / form, tmp_path / "model")


@pytest.mark.parametrize(("family", "form"), [("distilbert", "h5"), ("electra_small", "safetensors")])
def test_other_encoders_answer_as_transformers(tmp_path, family, form):
    models = written(transformers_models, tmp_path / "theirs", "tensorflow", family)
    for head in transformers_models.heads_of(family):
        taken_over.assert_answers(head, form, models / head / form, tmp_path / head)


@pytest.mark.parametrize(("head", "form"), itertools.product(taken_over.PREDICTED, FORMS))
def test_a_script_predicts_as_transformers(models, tmp_path, head, form):
    taken_over.assert_predictions(head, form, models / head / form, tmp_path / "run")


@pytest.mark.parametrize("case", keras_hub_models.CASES)
def test_keras_hub_preset_answers_in_all_interfaces(presets, tmp_path, case):
    folder = presets / case
    answers = {name: np.array(value) for name, value in json.loads((folder / "answers.json").read_text()).items()}
    expected = transformers_models.softmax(answers["classifier"])
    rules = tokenizer_files.read(str(folder / "classifier"))
    assert (rules.do_lower_case, rules.strip_accents) == (case == "uncased", False)
    first, second = (keras_hub_models.texts(200, seed) for seed in (1, 2))
    source, pairs = str(folder / "classifier"), list(zip(first, second, strict=True))
    loaded = TextClassifier.load(source, has_pairs=True)
    np.testing.assert_allclose(loaded.probabilities(pairs), expected, **TOLERANCE)
    convert_checkpoint(
        ConversionSettings(input=source, output=f"{tmp_path}/converted", format="bert_tf", has_pairs=True)
    )
    converted = TextClassifier.load(f"{tmp_path}/converted")
    np.testing.assert_allclose(converted.probabilities(pairs), expected, **TOLERANCE)
    export_saved_model(ExportSettings(checkpoint_dir=source, export_dir=f"{tmp_path}/served", has_pairs=True))
    served = tf.saved_model.load(f"{tmp_path}/served/1").signatures["serving_default"]
    found = served(text_a=tf.constant(first), text_b=tf.constant(second))["probabilities"]
    np.testing.assert_allclose(found, expected, **TOLERANCE)
    taken_over.write_pairs(tmp_path / "test.csv", first, second)
    flags = [f"--init_checkpoint={source}", f"--output_dir={tmp_path}/new"]
    taken_over.assert_probabilities_of_run(flags, tmp_path, expected)

    flags = {"checkpoint_dir": str(folder / "masked_lm"), "export_dir": f"{tmp_path}/filled"}
    export_saved_model(ExportSettings(**flags, task_name="fill_mask"))
    filled = tf.saved_model.load(f"{tmp_path}/filled/1").signatures["serving_default"]
    scores = filled(text=tf.constant([f"{text} [MASK]" for text in first]))["scores"][:, 0, :5]
    best = np.sort(transformers_models.softmax(answers["masked_lm"]))[:, ::-1][:, :5]
    # Their head has another epsilon and the exact GELU; see the warning.
    np.testing.assert_allclose(scores, best, rtol=0, atol=1e-3)


@pytest.mark.parametrize("case", keras_hub_models.CASES)
def test_all_files_of_keras_hub_have_the_same_weights(presets, tmp_path, case):
    def weights(model, source) -> list:
        checkpoints.initialize(model, str(source))
        return model.get_weights()

    config = checkpoints.open_checkpoint(str(presets / case / "classifier")).config
    expected = weights(make_classifier(config, 3), presets / case / "classifier")
    for name in ("classifier/config.json", "model.weights.h5"):
        shutil.copy(presets / case / name, tmp_path)
    np.testing.assert_equal(weights(make_classifier(config, 3), tmp_path), expected)
    encoder = checkpoints.load_encoder(str(presets / case / "backbone")).get_weights()
    np.testing.assert_equal(encoder, expected[: len(encoder)])


INPUTS = {"input_ids": tf.constant(IDS), "input_mask": tf.constant(MASK), "segment_ids": tf.constant(SEGMENTS)}


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory):
    """Models whose answers are logits of tokens, and an encoder with its own name."""
    return written(write_files, tmp_path_factory.mktemp("hugging_face"))


def assert_equal(ours, theirs) -> None:
    np.testing.assert_allclose(ours, theirs, atol=2e-5)


@pytest.mark.parametrize("form", ["h5", "safetensors"])
def test_the_heads_of_pre_training_of_transformers(hugging_face, form):
    places = tf.constant([[1, 2], [1, 3]])
    for name, key in (("ForPreTraining", "seq_relationship_logits"), ("ForNextSentencePrediction", "logits")):
        path, expected = hugging_face / name / form, np.load(hugging_face / name / "expected.npz")
        model = BertPretrainer(checkpoints.open_checkpoint(str(path)).config)
        checkpoints.initialize(model, str(path))
        outputs = model(INPUTS | {"masked_lm_positions": places})
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
