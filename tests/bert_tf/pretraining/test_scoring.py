"""`score_text`: pseudo-log-likelihoods and guesses for [MASK]."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import load_encoder
from bert_tf.encoder import BertEncoder
from tests.bert_tf.pretraining.scored_texts import CONFIG, TEXTS, given, scored, write_checkpoint
from tests.bert_tf.reference import random_pretrainer
from tests.killable import KILLED_JOB
from tests.kit import refused

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def model():
    return random_pretrainer(CONFIG, seed=1, stddev=0.3)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, vocab_file, model):
    return write_checkpoint(tmp_path_factory.mktemp("scoring") / "pretrained", model, CONFIG, vocab_file)


def log_probabilities(model, ids, at) -> np.ndarray:
    """Returns log-probabilities of all tokens at a position of one row without padding, from a call of the model."""
    row = tf.constant([ids])
    inputs = {"input_ids": row, "input_mask": tf.ones_like(row), "segment_ids": tf.zeros_like(row)}
    logits = model(inputs | {"masked_lm_positions": tf.constant([[at]])})["masked_lm_logits"][0, 0]
    return tf.nn.log_softmax(logits).numpy()


def expected(model, tokenizer, text, hides_rest=False) -> list[tuple[str, float]]:
    ids = [tokenizer.cls_id, *tokenizer.encode([text]).to_list()[0], tokenizer.sep_id]
    found = []
    for at in range(1, len(ids) - 1):
        masked = list(ids)
        masked[at] = tokenizer.mask_id
        for rest in range(at + 1, len(ids)):
            if not (hides_rest and tokenizer.vocabulary[ids[rest]].startswith("##")):
                break
            masked[rest] = tokenizer.mask_id
        found.append((tokenizer.vocabulary[ids[at]], log_probabilities(model, masked, at)[ids[at]]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--batch_size=5"], ["--hide_rest_of_word"]])
def test_each_token_is_masked_in_turn_in_any_batch(checkpoint, model, tokenizer, tmp_path, flags):
    entries = scored(checkpoint, tmp_path, TEXTS, *flags)
    assert [entry["line"] for entry in entries] == [1, 2, 4], "blank lines are left out"
    for entry in entries:
        right = expected(model, tokenizer, TEXTS[entry["line"] - 1], "--hide_rest_of_word" in flags)
        assert entry["text"] == TEXTS[entry["line"] - 1]
        assert [token["token"] for token in entry["tokens"]] == [token for token, _ in right]
        values = [value for _, value in right]
        np.testing.assert_allclose([token["log_probability"] for token in entry["tokens"]], values, atol=1e-4)
        assert entry["pseudo_log_likelihood"] == pytest.approx(sum(values), abs=1e-3)
        assert entry["pseudo_perplexity"] == pytest.approx(np.exp(-np.mean(values)), rel=1e-3)
    assert any(token["token"].startswith("##") for entry in entries for token in entry["tokens"])
    entries = json.loads((tmp_path / "out.jsonl.manifest.json").read_text())
    assert entries["settings"]["mode"] == "likelihood"
    assert os.path.dirname(entries["settings"]["init_checkpoint"]) == str(checkpoint)
    assert (entries["lines"], entries["texts"]) == (4, 3) and not (tmp_path / "out.jsonl.work").exists()


@pytest.mark.parametrize("direction", ["ltr", "rtl"])
def test_one_directional_models_predict_from_the_past(direction, vocab_file, tokenizer, tmp_path):
    """The expected values come from calls of the model on the tokens that it may see, one call for each token."""
    config = dataclasses.replace(CONFIG, directionality=direction)
    model = random_pretrainer(config, seed=1, stddev=0.3)
    folder = write_checkpoint(tmp_path / "pretrained", model, config, vocab_file)
    texts = [*TEXTS, *(f"the man {'was ' * count}there" for count in range(16))]
    for entry in scored(folder, tmp_path, texts):
        ids = [tokenizer.cls_id, *tokenizer.encode([entry["text"]]).to_list()[0], tokenizer.sep_id]
        values = []
        for at in range(1, len(ids) - 1):
            if direction == "ltr":
                values.append(log_probabilities(model, ids[:at], at - 1)[ids[at]])
            else:  # other tokens before the predicted one change nothing, but keep the positions
                values.append(log_probabilities(model, [tokenizer.mask_id] * (at + 1) + ids[at + 1 :], at + 1)[ids[at]])
        found = [token["log_probability"] for token in entry["tokens"]]
        np.testing.assert_allclose(found, values, atol=1e-4)
        assert entry["log_likelihood"] == pytest.approx(sum(values), abs=1e-3)
        assert entry["perplexity"] == pytest.approx(np.exp(-np.mean(values)), rel=1e-3)
        assert not any(key.startswith("pseudo") for key in entry)


def test_blanks_get_the_most_probable_tokens(checkpoint, model, tokenizer, tmp_path):
    text = "the [MASK] was [MASK]"
    (entry,) = scored(checkpoint, tmp_path, [text], "--mode=fill_mask", "--num_guesses=3")
    the, was = tokenizer.encode(["the was"]).to_list()[0]
    ids = [tokenizer.cls_id, the, tokenizer.mask_id, was, tokenizer.mask_id, tokenizer.sep_id]
    assert entry["text"] == text and len(entry["blanks"]) == 2
    for at, guesses in zip((2, 4), entry["blanks"], strict=True):
        values = log_probabilities(model, ids, at)[: len(tokenizer.vocabulary)]
        best = np.argsort(-values)[:3]
        assert [guess["token"] for guess in guesses] == [tokenizer.vocabulary[i] for i in best]
        np.testing.assert_allclose([guess["probability"] for guess in guesses], np.exp(values[best]), rtol=1e-3)


@pytest.mark.parametrize(
    ("lines", "flags", "message"),
    [
        (["the man", "the [MASK]"], [], r"in.txt, line 2: contains \[MASK\]; give --mode=fill_mask"),
        (["the man"], ["--mode=fill_mask"], r"in.txt, line 1: contains \[MASK\] 0 times"),
        (["the", "the " * 23], [], "line 2: has 25 tokens, more than 24; split the text"),
        (["the man was"], ["--max_seq_length=4"], "line 1: has 5 tokens, more than 4"),
        (["the"], ["--max_seq_length=25"], "max_seq_length=25 is beyond max_position_embeddings=24"),
        (["the", "\u200b"], [], "line 2: has no token; remove the line"),
        (["", " "], [], "in.txt: contains no text"),
        (["the"], ["--vocab_file=nowhere.txt"], "nowhere.txt: no such file"),
        (["the"], ["--input_file=nowhere.txt"], "--input_file: nowhere.txt: no such file"),
        (["the"], ["--input_file=in.jsonl"], "--input_file=in.jsonl: each line is one text"),
        (["the"], ["--output_file=x.npz@2"], "--output_file=x.npz@2: .npz is not a supported format; use .jsonl"),
    ],
)
def test_unscorable_input_is_refused_first(checkpoint, tmp_path, lines, flags, message):
    refused(message, scored, checkpoint, tmp_path, lines, *flags)
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_a_model_that_cannot_fill_in_is_refused(vocab_file, tmp_path, model):
    encoder = tf.Module()
    encoder.encoder = model.encoder
    for name, one, config, message in [
        ("encoder", encoder, CONFIG, "has no masked-LM head and cannot predict tokens"),
        ("ltr", model, dataclasses.replace(CONFIG, directionality="ltr"), "has directionality=ltr and was trained"),
    ]:
        folder = write_checkpoint(tmp_path / name, one, config, vocab_file)
        refused(message, scored, folder, tmp_path, ["the [MASK]"], "--mode=fill_mask")
    assert isinstance(load_encoder(tmp_path / "encoder"), BertEncoder)


@pytest.mark.slow
def test_a_killed_command_resumes_to_the_same_bytes(checkpoint, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS) * 800)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def command(name, how=("-m",)):
        flags = given(checkpoint, tmp_path, f"--output_file={tmp_path}/{name}@9", "--num_workers=2")
        return [sys.executable, *how, "bert_tf.score_text", *flags]

    # returns only after the workers have ended too
    how = ("-c", KILLED_JOB, str(tmp_path / "out-*-of-00009"))
    killed = subprocess.run(command("out", how), env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out-*-of-00009")}
    assert 2 <= len(kept) < 9
    log = subprocess.run(command("out"), env=environment, check=True, capture_output=True, text=True).stderr
    assert "resuming the unfinished run" in log and "pseudo-perplexity" in log
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "finished shards are not made again"
    subprocess.run(command("whole"), env=environment, check=True, capture_output=True)
    for shard in range(9):
        killed, whole = ((tmp_path / f"{name}-{shard:05d}-of-00009").read_bytes() for name in ("out", "whole"))
        assert killed == whole
    lines = [json.loads(line)["line"] for path in sorted(tmp_path.glob("out-*")) for line in path.open()]
    assert lines == [number for number in range(1, 3201) if TEXTS[(number - 1) % 4].strip()]
