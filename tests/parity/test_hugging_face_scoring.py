"""Scores of texts against transformers' BertForMaskedLM with the same weights, one masked row at a time."""

import dataclasses

import pytest
import torch
import transformers

from bert_tf.checkpoints import variables_by_path
from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.pretraining.scored_texts import CONFIG, TEXTS, scored, write_checkpoint
from tests.bert_tf.reference import random_pretrainer
from tests.parity.hugging_face import hugging_face

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_erf"])
def test_scores_and_guesses_are_those_of_transformers(tmp_path, vocab_file, hidden_act):
    config = dataclasses.replace(CONFIG, hidden_act=hidden_act)
    model = random_pretrainer(config, seed=2, stddev=0.3)
    theirs = hugging_face(transformers.BertForMaskedLM, config, variables_by_path(model), "eager")
    folder, tokenizer = write_checkpoint(tmp_path / "model", model, config, vocab_file), BertTokenizer(vocab_file)

    def log_probabilities(ids: list[int], at: int) -> torch.Tensor:
        with torch.no_grad():
            logits = theirs(torch.tensor([ids]), attention_mask=torch.ones([1, len(ids)])).logits
        return torch.log_softmax(logits[0, at], dim=-1)

    for entry in scored(folder, tmp_path, TEXTS, "--batch_size=7"):
        ids = [tokenizer.cls_id, *tokenizer.encode([entry["text"]]).to_list()[0], tokenizer.sep_id]
        for at, token in enumerate(entry["tokens"], 1):
            masked = [*ids[:at], tokenizer.mask_id, *ids[at + 1 :]]
            assert token["log_probability"] == pytest.approx(float(log_probabilities(masked, at)[ids[at]]), abs=1e-4)

    (entry,) = scored(folder, tmp_path, ["[MASK] man said"], "--mode=fill_mask", "--num_guesses=4")
    ids = [tokenizer.cls_id, tokenizer.mask_id, *tokenizer.encode(["man said"]).to_list()[0], tokenizer.sep_id]
    values, best = torch.topk(torch.exp(log_probabilities(ids, 1))[: len(tokenizer.vocabulary)], 4)
    (guesses,) = entry["blanks"]
    assert [guess["token"] for guess in guesses] == [tokenizer.vocabulary[i] for i in best]
    assert [guess["probability"] for guess in guesses] == pytest.approx(values.tolist(), rel=1e-3)
