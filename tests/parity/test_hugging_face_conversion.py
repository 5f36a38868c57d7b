"""transformers' Auto classes load folders that we convert, with our labels and outputs from raw text."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers

from bert_tf import checkpoints
from bert_tf.conversion import convert_checkpoint
from bert_tf.core.command_line import parse
from bert_tf.encoder import BertEncoder
from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.model import FineTunedBert
from bert_tf.modeling.heads import ClassificationHead, SpanHead
from bert_tf.settings import ConversionSettings
from bert_tf.text.packing import pack
from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.checkpoint_formats.models import CONFIG
from tests.bert_tf.reference import random_pretrainer, randomize

pytestmark = pytest.mark.torch

WORDS = ["The", "the", "man", "##s", "said", "well", "cafe", "Café", "##é", ",", "!", "A", "a"]
# [PAD] is neither first nor last.
VOCABULARY = [*WORDS[:4], "[MASK]", "[SEP]", "[PAD]", *WORDS[4:], "[UNK]", "[CLS]"]
# The last texts are truncated: single texts, and pairs whose longer text is the first, the second, or neither.
TEXTS = ["The mans said, a Café!", "A man", "well, the unknown said", "the", "a man said " * 6, "a", "well A " * 5]
SECOND_TEXTS = ["a man", "The Café said well", "A!", "man the", "the man", "the man said " * 6, "said, a " * 4]
# An odd length leaves an even number of tokens for a pair; transformers splits odd numbers differently.
LENGTH, POSITIONS = 11, 16


class Classifier(tf.Module):
    """Returns the encoder with a random classification head."""

    def __init__(self, config, num_outputs):
        super().__init__()
        tf.random.set_seed(1)
        self.config, self.encoder, self.head = config, BertEncoder(config), ClassificationHead(config, num_outputs)
        for variable in self.trainable_variables:
            variable.assign_add(tf.random.normal(variable.shape, stddev=0.2))

    def logits(self, tokenizer, texts, second_texts) -> np.ndarray:
        segments = [tokenizer.encode(t) if t else None for t in (texts, second_texts)]
        packed = pack(*segments, max_seq_length=LENGTH, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id)
        return self.head(self.encoder(packed)["pooled_output"]).numpy()


def save_run(folder, model, lower, labels=None):
    """Writes the files of a run's folder."""
    folder.mkdir()
    tf.train.Checkpoint(model=model, global_step=tf.Variable(3, dtype=tf.int64)).write(str(folder / "ckpt-3"))
    (folder / "bert_config.json").write_text(model.config.to_json_string())
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    if labels is not None:
        kind = "classification" if labels else "regression"
        description.write(str(folder), TaskDescription(kind, "own", labels, LENGTH, {}))
    return folder


def convert(source, target, format="hugging_face"):
    convert_checkpoint(parse(ConversionSettings, [f"--input={source}", f"--output={target}", f"--format={format}"]))
    return target


def their_logits(model, tokenizer, texts, second_texts) -> np.ndarray:
    inputs = tokenizer(texts, second_texts, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        return model(**inputs).logits.numpy()


@pytest.mark.parametrize(
    ("lower", "second_texts", "labels", "act"),
    [
        (True, None, ["negative", "neutral", "positive"], "gelu"),
        (False, None, ["0", "1"], "gelu_erf"),
        (False, SECOND_TEXTS, ["entailment", "widersprüchlich", "neutral"], "gelu"),
        (True, SECOND_TEXTS, [], "gelu"),
    ],
    ids=["uncased", "cased", "cased pairs", "uncased pairs, regression"],
)
def test_a_converted_classifier_keeps_its_answers(tmp_path, lower, second_texts, labels, act):
    config = dataclasses.replace(
        CONFIG, vocab_size=len(VOCABULARY) + 1, hidden_act=act, max_position_embeddings=POSITIONS
    )
    ours = Classifier(config, len(labels) or 1)
    run = save_run(tmp_path / "run", ours, lower, labels)
    expected = ours.logits(BertTokenizer(str(run / "vocab.txt"), lower), TEXTS, second_texts)
    for folder in (convert(run, tmp_path / "once"), convert(convert(run, tmp_path / "tf1", "tf1"), tmp_path / "again")):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
        assert theirs.config.pad_token_id == tokenizer.pad_token_id == VOCABULARY.index("[PAD]")
        outputs = their_logits(theirs, tokenizer, TEXTS, second_texts)
        if not labels:
            assert theirs.config.problem_type == "regression"
            np.testing.assert_allclose(outputs, expected, atol=1e-5)
            continue
        assert theirs.config.problem_type == "single_label_classification"
        probabilities = tf.nn.softmax(expected).numpy()
        np.testing.assert_allclose(tf.nn.softmax(outputs).numpy(), probabilities, atol=1e-5)
        assert np.ptp(probabilities, axis=0).max() > 0.01, "the texts matter"
        assert [theirs.config.id2label[i] for i in outputs.argmax(1)] == [labels[i] for i in expected.argmax(1)]
        assert theirs.config.label2id == {label: i for i, label in enumerate(labels)}


def test_converted_pretraining_run_fills_masks_equally(tmp_path):
    config = dataclasses.replace(CONFIG, vocab_size=len(VOCABULARY))
    ours = random_pretrainer(config)
    folder = convert(save_run(tmp_path / "run", ours, False), tmp_path / "theirs")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer("The [MASK] said", "a Café!", return_tensors="pt")
    tokens = ["[CLS]", "The", "[MASK]", "said", "[SEP]", "a", "Café", "!", "[SEP]"]
    assert tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]) == tokens
    batch = {
        "input_ids": [[VOCABULARY.index(token) for token in tokens]], "input_mask": [[1] * 9],
        "segment_ids": [[0] * 5 + [1] * 4], "masked_lm_positions": [[2]],
    }  # fmt: skip
    expected = ours({name: tf.constant(value) for name, value in batch.items()})
    with torch.no_grad():
        both = transformers.AutoModelForPreTraining.from_pretrained(folder).eval()(**inputs)
        masked = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()(**inputs)
        encoder = transformers.AutoModel.from_pretrained(folder).eval()(**inputs)
    masked_lm_logits = tf.reshape(expected["masked_lm_logits"], [-1])
    np.testing.assert_allclose(both.prediction_logits[0, 2], masked_lm_logits, atol=1e-5)
    np.testing.assert_allclose(masked.logits[0, 2], masked_lm_logits, atol=1e-5)
    np.testing.assert_allclose(both.seq_relationship_logits, expected["next_sentence_logits"], atol=1e-5)
    np.testing.assert_allclose(encoder.last_hidden_state, expected["sequence_output"], atol=1e-5)


def test_a_converted_question_answerer_keeps_its_spans(tmp_path):
    ours = FineTunedBert(dataclasses.replace(CONFIG, vocab_size=len(VOCABULARY), hidden_act="gelu"), SpanHead)
    run = save_run(tmp_path / "run", randomize(ours), True)
    parameters = {"version_2_with_negative": False}
    description.write(str(run), TaskDescription("questions", "squad", (), 8, parameters))
    folder = convert(run, tmp_path / "theirs")
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    ids = np.random.default_rng(0).integers(0, len(VOCABULARY), [3, 8])
    expected = ours({"input_ids": tf.constant(ids)})["logits"]
    with torch.no_grad():
        found = theirs(torch.tensor(ids), attention_mask=torch.ones([3, 8]))
    np.testing.assert_allclose(np.stack([found.start_logits, found.end_logits], -1), expected, atol=2e-5)
    again = FineTunedBert(ours.config, SpanHead)
    checkpoints.initialize(again, str(folder))
    np.testing.assert_allclose(again({"input_ids": tf.constant(ids)})["logits"], expected, atol=2e-5)
