"""Files that other libraries wrote: our models give the outputs of the library that wrote the file."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.pretraining.objective import BertPretrainer
from tests.migration import write_files
from tests.migration.test_takeover import written
from tests.migration.write_files import IDS, MASK, SEGMENTS

pytestmark = pytest.mark.migration

INPUTS = {"input_ids": tf.constant(IDS), "input_mask": tf.constant(MASK), "segment_ids": tf.constant(SEGMENTS)}


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory):
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
