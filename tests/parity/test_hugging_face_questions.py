"""transformers loads a question answerer that we convert, and we load theirs."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers

from bert_tf import checkpoints
from bert_tf.conversion import convert_checkpoint
from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.model import FineTunedBert
from bert_tf.modeling.heads import SpanHead
from bert_tf.settings import ConversionSettings
from tests.bert_tf.checkpoint_formats.models import CONFIG

pytestmark = pytest.mark.torch


@pytest.fixture
def model():
    made = FineTunedBert(dataclasses.replace(CONFIG, hidden_act="gelu"), SpanHead)
    for variable in made.trainable_variables:
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.2))
    return made


def logits_of(model, ids) -> np.ndarray:
    return model({"input_ids": tf.constant(ids)})["logits"].numpy()


def test_spans_are_equal_there_and_back(model, tmp_path):
    folder, theirs = tmp_path / "run", tmp_path / "theirs"
    folder.mkdir()
    tf.train.Checkpoint(model=model, global_step=tf.Variable(3, dtype=tf.int64)).write(str(folder / "ckpt-3"))
    (folder / "bert_config.json").write_text(model.config.to_json_string())
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *(f"w{i}" for i in range(model.config.vocab_size - len(special)))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    parameters = {"version_2_with_negative": False}
    description.write(str(folder), TaskDescription("questions", "squad", (), 8, parameters))
    convert_checkpoint(ConversionSettings(input=str(folder), output=str(theirs), format="hugging_face", vocab_file=""))
    ids = np.random.default_rng(0).integers(5, model.config.vocab_size, [3, 8])
    expected = logits_of(model, ids)
    converted = transformers.AutoModelForQuestionAnswering.from_pretrained(theirs).eval()
    assert type(converted) is transformers.BertForQuestionAnswering
    with torch.no_grad():
        found = converted(torch.tensor(ids))
    for side, logits in enumerate((found.start_logits, found.end_logits)):
        np.testing.assert_allclose(logits.numpy(), expected[:, :, side], atol=2e-5)
    again = FineTunedBert(model.config, SpanHead)
    checkpoints.initialize(again, str(theirs))
    np.testing.assert_allclose(logits_of(again, ids), expected, atol=2e-5)
