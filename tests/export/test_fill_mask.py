"""Served guesses for masked tokens compared with `score_text`, and the filled-in texts."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pretraining.fill_mask import row_of_line
from bert_tf.pretraining.scoring import MaskedScorer
from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.export.exports import ask, export
from tests.kit import refused

# The quick tests of exports use classifiers, questions and entities.
pytestmark = pytest.mark.slow

TEXTS = [
    "the [MASK] said", "[MASK]", "[MASK][MASK] of [MASK]", "Ünïcödé [MASK]\t中文 \U0001f600", "a[MASK]b", "  [MASK] . ",
    "they [MASK] had [MASK] all " + "of " * 12, " ".join(["[MASK]"] * 20), "[mask] [MASK ] [MASK]]",
]  # fmt: skip


@pytest.fixture(scope="module")
def filler(vocab_file, tmp_path_factory):
    """An export, its tokenizer, and the model of `score_text`."""
    folder = tmp_path_factory.mktemp("fill_mask")
    scorer, tokenizer = write_pretrained(folder / "run", vocab_file), BertTokenizer(vocab_file)
    model = export(folder / "run", task_name="fill_mask", top_k=4)
    return model, tokenizer, MaskedScorer(scorer, tokenizer, num_guesses=4)


def filled_in(text: str, tokens: list[str], mask: int, guess: str) -> str:
    """Replaces a mask by a guess, and the other masks by their first guesses."""
    parts, found = text.split("[MASK]"), ""
    for number, (part, best) in enumerate(zip(parts[:-1], tokens, strict=True)):
        token = guess if number == mask else best
        found += part.rstrip() + token[2:] if token.startswith("##") else part + token
    return found + parts[-1]


def test_guesses_are_those_of_score_text(filler):
    model, tokenizer, scorer = filler
    answers = ask(model, text=TEXTS)
    assert answers.keys() == {"tokens", "scores", "positions", "filled", "num_masks"}
    assert answers["tokens"].shape == (len(TEXTS), 20, 4)
    rows = [row_of_line(text, "", tokenizer, 40) for text in TEXTS]
    expected, continuing = scorer.answers(rows), 0
    for number, (row, found) in enumerate(zip(rows, expected, strict=True)):
        count = len(row.blanks)
        assert answers["num_masks"][number] == count
        assert answers["positions"][number].tolist() == [*row.blanks, *[-1] * (20 - count)]
        guesses = [[tokenizer.vocabulary[i] for i in ids] for ids in found.guesses]
        assert answers["tokens"][number, :count].astype(str).tolist() == guesses
        best = [tokens[0] for tokens in guesses]
        filled = [[filled_in(TEXTS[number], best, mask, g) for g in tokens] for mask, tokens in enumerate(guesses)]
        assert [[one.decode() for one in row] for row in answers["filled"][number, :count]] == filled
        continuing += sum(token.startswith("##") for tokens in guesses for token in tokens)
        scores = np.exp(found.guess_log_probabilities)
        np.testing.assert_allclose(answers["scores"][number, :count], scores, atol=1e-5)
        assert not answers["scores"][number, count:].any() and not answers["filled"][number, count:].any()
    assert len({tuple(row[0]) for row in answers["tokens"].tolist()}) > 4 and continuing > 4


def test_texts_without_mask_are_answered(filler):
    model, _, _ = filler
    for texts in ([], ["the man", ""]):
        answers = ask(model, text=texts)
        assert answers["tokens"].shape == (len(texts), 0, 4) and answers["num_masks"].tolist() == [0] * len(texts)
    long = "the [MASK] " + "of " * 40 + "[MASK] x"
    answers = ask(model, text=[long, "[MASK] " * 25, b"th\xffe [MASK]\xe4"])
    assert answers["num_masks"].tolist() == [1, 20, 1], "the second is behind the row, or the 21st of a row"
    token = answers["tokens"][0, 0, 1].decode()
    joined = f" {token}" if not token.startswith("##") else token[2:]
    assert answers["filled"][0, 0, 1].decode() == long.replace(" [MASK]", joined, 1)
    assert answers["filled"][1, 19, 3].decode().count("[MASK]") == 5
    answers["filled"][2, 0, 0].decode()


def test_rows_of_tokens_have_the_same_guesses(filler):
    model, tokenizer, _ = filler
    ids = row_of_line(TEXTS[0], "", tokenizer, 40).input_ids
    row = tf.constant([[*ids, 0, tokenizer.mask_id]])  # padding is not read
    mask = tf.constant([[1] * len(ids) + [0, 0]])
    found = model.signatures["tokens"](input_ids=row, input_mask=mask, segment_ids=0 * row)
    answers = ask(model, text=TEXTS[:1])
    assert found["tokens"].numpy().tolist() == answers["tokens"].tolist()
    np.testing.assert_allclose(found["scores"], answers["scores"], atol=1e-6)


def test_a_checkpoint_must_predict_masks(vocab_file, tmp_path):
    """`test_scoring` tests other checkpoints that cannot predict tokens."""
    write_pretrained(tmp_path / "run", vocab_file)
    write_pretrained(tmp_path / "ltr", vocab_file, directionality="ltr")
    message = "--max_seq_length=64 is beyond max_position_embeddings=40"
    refused(message, export, tmp_path / "run", task_name="fill_mask", max_seq_length=64)
    refused("has directionality=ltr and was trained without", export, tmp_path / "ltr", task_name="fill_mask")
    assert not (tmp_path / "model").exists()


def test_models_too_large_for_litert_are_refused(vocab_file, tmp_path):
    write_pretrained(tmp_path / "run", vocab_file)
    refused(
        r"cannot run this model \(it cannot express [A-Za-z0-9, ]+\); give --format=saved",
        export,
        tmp_path / "run",
        task_name="fill_mask",
        format="litert",
    )
    assert not (tmp_path / "model/1").exists()
