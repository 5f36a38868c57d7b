"""Served vectors of texts and tokens compared with `extract_features`."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.features.extractor import FeatureExtractor
from tests.bert_tf.features.test_features import sentence_transformer
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.export.exports import ask, export

# The quick tests of exports use classifiers, questions and entities.
pytestmark = pytest.mark.slow

TEXTS = ["the man said", "", "Ünïcödé\t中文 \U0001f600 café", "very " * 40, "a\u00adb \u200b x", "they had, all of it!"]
LENGTH = 24


@pytest.fixture(scope="module")
def run(vocab_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("embeddings")
    write_pretrained(folder / "run", vocab_file)
    return folder / "run"


@pytest.fixture(scope="module")
def encoder(run):
    """An export with two layers and mean pooling."""
    return export(run, task_name="embeddings", layers="-2,0", max_seq_length=LENGTH)


def test_pooled_vectors_are_those_of_extract_features(run, encoder):
    expected = FeatureExtractor(run, layers="-2,0", max_seq_length=LENGTH, pooling="mean").sentences(TEXTS)
    answers = ask(encoder, text=TEXTS)
    assert answers.keys() == {"embedding"} and np.ptp(expected) > 1
    np.testing.assert_allclose(answers["embedding"], expected, atol=1e-5)
    assert ask(encoder, text=[])["embedding"].shape == (0, 2, 16)


def test_an_export_has_only_the_layers_it_reads(run, encoder):
    whole = export(run, task_name="embeddings", layers="-1,0", export_dir=str(run.parent / "whole/1"))
    count, all_of_them = (sum(np.prod(v.shape) for v in model.weights) for model in (encoder, whole))
    size, inner = 16, 32
    assert all_of_them - count == 4 * size**2 + 2 * size * inner, "the matrices of the top layer"


def test_tokens_have_the_vectors_of_extract_features(run, encoder):
    expected = FeatureExtractor(run, layers="-2,0", max_seq_length=LENGTH).tokens(TEXTS)
    answers = ask(encoder, "token_embeddings", text=TEXTS)
    assert answers["embeddings"].shape == (len(TEXTS), LENGTH, 2, 16)
    for number, features in enumerate(expected):
        count = len(features.tokens)
        assert answers["num_tokens"][number] == count
        assert answers["tokens"][number].astype(str).tolist() == [*features.tokens, *[""] * (LENGTH - count)]
        for name, values in (("start", features.starts), ("end", features.ends)):
            assert answers[name][number].tolist() == [*values, *[-1] * (LENGTH - count)]
        np.testing.assert_allclose(answers["embeddings"][number, :count], features.values, atol=1e-5)
        assert not answers["embeddings"][number, count:].any()
    nothing = ask(encoder, "token_embeddings", text=[])
    assert all(len(value) == 0 for value in nothing.values())


def test_rows_of_tokens_have_the_same_vectors(encoder):
    row = tf.constant([[2, 60, 70, 80, 3, 0, 0]])
    mask = tf.cast(row > 0, tf.int32)
    found = encoder.signatures["tokens"](input_ids=row, input_mask=mask, segment_ids=0 * row)
    shorter = encoder.signatures["tokens"](input_ids=row[:, :5], input_mask=mask[:, :5], segment_ids=0 * row[:, :5])
    np.testing.assert_allclose(found["embedding"], shorter["embedding"], atol=1e-6)
    vectors = found["token_embeddings"].numpy()
    np.testing.assert_allclose(vectors[0, :5].mean(0), found["embedding"][0], atol=1e-5)
    assert not vectors[0, 5:].any()


def test_follows_sentence_transformers_pooling(run, tmp_path, vocab_file):
    copy = shutil.copytree(run, tmp_path / "run")
    sentence_transformer(copy, {"pooling_mode_max_tokens": True}, "Normalize", length=12)
    expected = FeatureExtractor(copy, sentence_vectors=True).sentences(TEXTS)
    found = ask(export(copy, task_name="embeddings"), text=TEXTS)["embedding"]
    assert found.shape == (len(TEXTS), 16)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_other_poolings_and_vectors_of_length_1(run, tmp_path):
    for number, options in enumerate(({"pooling": "cls", "layers": "0,-1", "normalize": True}, {"pooling": "max"})):
        expected = FeatureExtractor(run, max_seq_length=LENGTH, **{"layers": "-1"} | options).sentences(TEXTS)
        target = str(tmp_path / f"{number}/1")
        model = export(run, export_dir=target, task_name="embeddings", max_seq_length=LENGTH, **options)
        np.testing.assert_allclose(ask(model, text=TEXTS)["embedding"], expected, atol=1e-5)
