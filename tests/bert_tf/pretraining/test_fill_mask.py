import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.input import pipeline
from bert_tf.pretraining import fill_mask
from tests.bert_tf.reference import random_pretrainer
from tests.kit import refused
from tests.small_configs import small_config

CONFIG = small_config(max_position_embeddings=16)


def sentences(tmp_path, text: str) -> str:
    path = tmp_path / "sentences.txt"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return str(path)


def test_own_sentences_are_tokenized_around_blanks(tokenizer, tmp_path):
    path = sentences(tmp_path, "The [MASK] was there.\n\n[MASK][MASK] walked\n")
    first, second = fill_mask.rows_of_file(path, tokenizer, 16)
    assert tokenizer.to_tokens(first.input_ids) == ["[CLS]", "the", "[MASK]", "was", "there", ".", "[SEP]"]
    assert first.blanks == [2] and second.blanks == [1, 2] and first.right_ids is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the man\n", "line 1: contains .* 0 times"),
        ("a [MASK]\n" + "a [MASK] " * 21, "line 2: contains .* 21 times"),
        ("the the the the the the the the the the the the the the the [MASK]", "line 1: has 18 tokens, more than"),
        ("\n\n", "contains 0 sentences"),
        ("a [MASK]\n" * 51, "contains 51 sentences"),
        ("caf\udce9 [MASK]\n", "not UTF-8"),
    ],
)
def test_sentences_that_do_not_fit_are_refused(tokenizer, tmp_path, text, message):
    refused(message, fill_mask.rows_of_file, sentences(tmp_path, text), tokenizer, 16)


def row_of_data(tokenizer) -> dict:
    """[CLS] the [MASK] was at [SEP]: "man" is masked, "at" replaces "on", and one prediction is unused."""
    ids = [tokenizer.cls_id, *tokenizer.encode(["the"]).values, tokenizer.mask_id, *tokenizer.encode(["was at"]).values]
    ids = [*map(int, ids), tokenizer.sep_id, 0, 0]
    man, on = map(int, tokenizer.encode(["man on"]).values)
    return {
        "input_ids": np.array([ids]), "input_mask": np.array([[1] * 6 + [0] * 2]),
        "segment_ids": np.zeros([1, 8], int), "masked_lm_positions": np.array([[2, 4, 0]]),
        "masked_lm_ids": np.array([[man, on, 0]]), "masked_lm_weights": np.array([[1.0, 1.0, 0.0]]),
    }  # fmt: skip


def test_rows_show_what_the_model_reads(tokenizer):
    rows = fill_mask.rows_of_batch(row_of_data(tokenizer), "bidi")
    model = random_pretrainer(CONFIG)
    look = fill_mask.FillMask(model, tf.distribute.get_strategy(), rows, tokenizer.vocabulary, 8)
    (sample,) = look.look()
    assert sample["text"] == "[CLS] the [1] was [2: at] [SEP]"
    assert [blank["right"] for blank in sample["blanks"]] == ["man", "on"]


@pytest.mark.parametrize(
    "strategy", [tf.distribute.get_strategy, lambda: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])]
)
def test_guesses_are_the_models_probabilities(tokenizer, strategy, tmp_path):
    path = sentences(tmp_path, "the [MASK] was [MASK] there\nhe [MASK]\n")
    rows = fill_mask.rows_of_file(path, tokenizer, 12)
    strategy = strategy()
    with strategy.scope():
        model = random_pretrainer(CONFIG)
    look = fill_mask.FillMask(model, strategy, rows, tokenizer.vocabulary, 12)
    samples = look.look()
    assert samples == look.look()
    for row, sample in zip(rows, samples, strict=True):
        inputs = {"input_ids": row.input_ids[None], "masked_lm_positions": np.array([row.blanks], np.int32)}
        logits = model(inputs)["masked_lm_logits"].numpy()[0].astype(np.float64)
        for blank, scores in zip(sample["blanks"], logits, strict=True):
            probabilities = np.exp(scores) / np.exp(scores).sum()
            best = np.argsort(-probabilities)[:3]
            names = [tokenizer.vocabulary[i] if i < len(tokenizer.vocabulary) else f"[id {i}]" for i in best]
            assert [token for token, _ in blank["guesses"]] == names
            np.testing.assert_allclose([p for _, p in blank["guesses"]], probabilities[best], atol=6e-5)


@pytest.mark.parametrize("direction", ["ltr", "rtl"])
def test_one_directional_models_predict_unseen_tokens(tokenizer, direction):
    """The right token of a blank is the row's token there, and the guesses do not depend on it."""
    ids = [tokenizer.cls_id, *map(int, tokenizer.encode(["the man was at my side now"]).values), tokenizer.sep_id, 0, 0]

    def samples(ids):
        row = {"input_ids": np.array([ids]), "input_mask": np.array([[int(i > 0) for i in ids]])}
        predicted = pipeline.every_token_predicted(
            {name: tf.constant(value, tf.int32) for name, value in row.items()}, direction
        )
        batch = row | {"segment_ids": np.zeros_like(row["input_ids"])} | {k: v.numpy() for k, v in predicted.items()}
        rows = fill_mask.rows_of_batch(batch, direction)
        return rows, fill_mask.FillMask(model, tf.distribute.get_strategy(), rows, tokenizer.vocabulary, 16).look()

    model = random_pretrainer(dataclasses.replace(CONFIG, directionality=direction))
    (row,), (sample,) = samples(ids)
    assert len(sample["blanks"]) > 3
    for at, blank in zip(row.blanks, sample["blanks"], strict=True):
        assert blank["right"] == tokenizer.vocabulary[ids[at]]
    changed = list(ids)
    changed[row.blanks[2]] = tokenizer.unk_id
    _, (other,) = samples(changed)
    assert other["blanks"][2]["guesses"] == sample["blanks"][2]["guesses"]
    assert any(a["guesses"] != b["guesses"] for a, b in zip(sample["blanks"], other["blanks"], strict=True))
