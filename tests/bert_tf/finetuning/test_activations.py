"""Stored activations equal the encoder's activations, for any batches in which they were computed."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning import activations, batches
from bert_tf.finetuning.model import FineTunedBert
from bert_tf.finetuning.task import encoded_split
from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.tagging import make_task, sentences
from tests.small_configs import small_config


@pytest.mark.slow
@pytest.mark.parametrize(("features", "layers"), [("embeddings", 1), ("weighted_sum_last_four", 4)])
def test_stored_activations_equal_encoder_outputs(vocab_file, tmp_path, monkeypatch, caplog, features, layers):
    monkeypatch.setattr(batches, "_TOKENS_PER_BATCH", 100)
    tokenizer = BertTokenizer(vocab_file)
    task = make_task(features=features, lstm_size=4, activations_dir=str(tmp_path))
    found = sentences(tokenizer.vocabulary, 30, longest=30)
    split = encoded_split(task, found, tokenizer, 24)
    config = small_config(300, 16, layers, max_position_embeddings=24, initializer_range=0.3)
    model = FineTunedBert(config, task.head)
    strategy = tf.distribute.get_strategy()
    monkeypatch.setattr("bert_tf.core.progress_bar.SECONDS_BETWEEN_LINES", -1.0)
    with caplog.at_level("INFO"):
        stored = activations.with_activations(split, "dev", task, model, tokenizer, 24, strategy)
    assert f"running the encoder over dev: {len(split)} of {len(split)} rows" in caplog.text
    assert len(split) > len(found)
    inputs = task.model_inputs(split.columns, tokenizer, 24)
    expected = model.activations(inputs).numpy()
    rows = np.random.default_rng(0).permutation(len(split))
    dataset = tf.data.Dataset.from_tensors(tf.constant(rows)).map(stored.activations.of_rows)
    got = next(iter(dataset)).numpy()
    for place, row in enumerate(rows):
        count = stored.lengths[row]
        assert count == int(tf.reduce_sum(inputs["read_mask"][row]))
        np.testing.assert_allclose(got[place, :count], expected[row, :count], atol=5e-3)
        assert not np.any(got[place, count:])
    with caplog.at_level("INFO"):
        activations.with_activations(split, "dev", task, model, tokenizer, 24, strategy)
    assert "are already in" in caplog.text
    whole = (tmp_path / stored.activations.path).read_bytes()
    (tmp_path / stored.activations.path).write_bytes(whole[:-8])
    assert not stored.activations.is_there(), "a truncated file is written again"
    other = FineTunedBert(config, make_task(features="last_hidden", lstm_size=4).head)
    other.encoder.set_weights(model.encoder.get_weights())
    again = activations.with_activations(split, "dev", task, other, tokenizer, 24, strategy)
    assert again.activations.path != stored.activations.path, "other layers have another file"
    model.encoder.embeddings.weights[0].assign_add(tf.ones_like(model.encoder.embeddings.weights[0]))
    again = activations.with_activations(split, "dev", task, model, tokenizer, 24, strategy)
    assert again.activations.path != stored.activations.path, "other weights have other activations"
