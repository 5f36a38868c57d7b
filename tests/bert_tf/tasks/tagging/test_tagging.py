"""Sentences to rows and back, the loss, and stored features."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from official.nlp.data import tagging_data_lib
from official.nlp.tools import tokenization as original

from bert_tf.finetuning import activations, batches
from bert_tf.finetuning.model import FineTunedBert, FineTuningObjective
from bert_tf.finetuning.task import encoded_split
from bert_tf.tasks.tagging import word_rows
from bert_tf.tasks.tagging.conll_files import Sentence
from bert_tf.tasks.tagging.tagging_task import NOT_LABELED
from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.finetuning.test_packed_finetuning import measured
from tests.bert_tf.tagging import ODD_WORDS, make_task, sentences
from tests.small_configs import small_config

CONFIG = small_config(400, 32, 2, 4, dropout=0.0, max_position_embeddings=48, initializer_range=0.3)


def odd_sentences(count=20):
    rng = np.random.default_rng(3)
    found = []
    for number in range(count):
        words = rng.choice(np.array(ODD_WORDS, object), rng.integers(1, 7)).tolist()
        tags = [rng.choice(["O", "B-PER", "B-LOC"]) for _ in words]
        found.append(Sentence(tuple(words), tuple(map(str, tags)), 1 + 10 * number))
    return found


@pytest.mark.parametrize("lower", [True, False])
def test_alignment_is_that_of_tf_models_official(vocab_file, lower):
    """Sentences that fit into a row; the reference also labels first tokens, and gives -1 to other tokens."""
    tokenizer, task = BertTokenizer(vocab_file, lower), make_task()
    reference = original.FullTokenizer(vocab_file, do_lower_case=lower)
    found = [*sentences(tokenizer.vocabulary, 20), *odd_sentences()]
    columns = task.encode(found, tokenizer, 400)
    for number, sentence in enumerate(found):
        words, labels = list(sentence.words), [task.labels.index(tag) for tag in sentence.tags]
        example = tagging_data_lib.InputExample(number, 0, words, labels)
        (expected,) = tagging_data_lib._tokenize_example(example, 400, reference)
        assert tokenizer.to_tokens(columns["tokens"][number].numpy()) == expected.words
        padding = tagging_data_lib._PADDING_LABEL_ID
        labels = [NOT_LABELED if label == padding else label for label in expected.label_ids]
        assert columns["token_labels"][number].numpy().tolist() == labels


@pytest.mark.parametrize("document_context", [False, True])
@pytest.mark.parametrize("length", [5, 12, 400])
@pytest.mark.parametrize("scheme", ["iob1", "iob2", "bioes"])
def test_every_word_is_labeled_once(tokenizer, scheme, length, document_context):
    task = make_task(scheme=scheme, document_context=document_context)
    found = [*sentences(tokenizer.vocabulary, 25, longest=40, documents_of=4), *odd_sentences()]
    split = encoded_split(task, found, tokenizer, length)
    assert split.lengths.max() <= length and (length == 400) <= (len(split) == len(found))
    inputs = task.model_inputs(split.columns, tokenizer, length)
    tags = task.predicted_tags(split, inputs["label_ids"].numpy())
    if scheme == "iob2":
        assert tags == [list(sentence.tags) for sentence in found]
    assert task.evaluation(split, inputs["label_ids"].numpy()).scores["f1"] == 1.0
    assert [len(t) for t in tags] == [len(s.words) for s in found]


@pytest.mark.parametrize("scheme", ["iob1", "bioes"])
def test_predictions_keep_the_scheme_of_training(tokenizer, tmp_path, scheme):
    task, found = make_task(scheme=scheme), sentences(tokenizer.vocabulary, 25)
    split = encoded_split(task, found, tokenizer, 400)
    labels = task.model_inputs(split.columns, tokenizer, 400)["label_ids"].numpy()
    labels[::3] = 0
    task.write_evaluation(str(tmp_path), split, labels, 1)
    rows = [line.split() for line in (tmp_path / "dev_predictions.txt").read_text().splitlines() if line]
    known, predicted = ([row[column] for row in rows if row[0] != "-DOCSTART-"] for column in (1, 2))
    equal = sum(a == b for a, b in zip(known, predicted, strict=True))
    assert 100 * equal / len(known) == pytest.approx(100 * task.scores(split, labels)["accuracy"])
    assert known != [tag for sentence in found for tag in sentence.tags]


class Span(NamedTuple):
    """A row labels the words from `first` to `last` and has the words from `begin` to `end`; the ends are exclusive."""

    sentence: int
    first: int
    last: int
    begin: int
    end: int


def spans_of(counts, room, documents=None):
    """The rows of sentences with `counts` words. Each word has one token, whose id is the word's index."""
    words = tf.RaggedTensor.from_row_lengths(tf.range(sum(counts)), np.ones(sum(counts), np.int64))
    documents = None if documents is None else tf.constant(documents, tf.int64)
    rows = word_rows.make_rows(words, tf.constant(np.cumsum([0, *counts])), room, documents)
    for sentence, tokens, places in zip(rows.sentences.numpy(), rows.tokens, rows.words, strict=True):
        begin, end = tokens.numpy()[[0, -1]] + [0, 1]
        first, last = places.numpy()[[0, -1]] + [begin - 1, begin]
        yield Span(sentence, first, last, begin, end)


def test_the_document_fills_rows_on_both_sides():
    counts = np.random.default_rng(4).integers(1, 12, 30).tolist()
    room, bounds = 20, np.cumsum([0, *counts])
    for span in spans_of(counts, room, [0, 10, 20, 30]):
        document = span.sentence // 10
        low, high = bounds[10 * document], bounds[10 * document + 10]
        assert (span.first, span.last) == (bounds[span.sentence], bounds[span.sentence + 1])
        assert low <= span.begin <= span.first and span.last <= span.end <= high
        assert span.end - span.begin == min(room, high - low), "the row is as full as the document allows"
        left, right = span.first - span.begin, span.end - span.last
        assert abs(left - right) <= 1 or span.begin == low or span.end == high
    assert all((span.begin, span.end) == (span.first, span.last) for span in spans_of(counts, room))


def test_words_at_cut_have_context_on_both_sides():
    spans = list(spans_of([20], 8))
    assert [(s.first, s.last) for s in spans] == [(0, 4), (4, 8), (8, 12), (12, 16), (16, 20)]
    assert [(s.begin, s.end) for s in spans] == [(0, 8), (2, 10), (6, 14), (10, 18), (12, 20)]


@pytest.mark.slow
def test_the_loss_is_the_mean_over_first_tokens(tokenizer):
    task = make_task()
    found = sentences(tokenizer.vocabulary, 24)
    split = encoded_split(task, found, tokenizer, 32)
    objective = FineTuningObjective(FineTunedBert(CONFIG, task.head), task)
    *_, batch = measured(objective, task, tokenizer, split, packed=False)
    logits = objective.model(batch)["logits"].numpy()
    losses = []
    for row, number in enumerate(batch["row_ids"].numpy()):
        labels = [NOT_LABELED, *split.columns["token_labels"][number].numpy()]
        for place, label in enumerate(labels):
            if label != NOT_LABELED:
                losses.append(np.logaddexp.reduce(logits[row, place]) - logits[row, place, label])
    numerators, denominators = objective.numerators(batch, training=False, seed=None), objective.denominators(batch)
    np.testing.assert_allclose(objective.loss(numerators["loss"], denominators["loss"]), np.mean(losses), rtol=1e-5)
    assert len(losses) == sum(len(sentence.words) for sentence in found)


def test_features_equal_encoder_output_of_first_tokens(tokenizer):
    config = dataclasses.replace(CONFIG, num_hidden_layers=4)
    found = sentences(tokenizer.vocabulary, 6)
    for features, layers in {"concat_last_four": (1, 2, 3, 4), "embeddings": (0,)}.items():
        task = make_task(features=features, lstm_size=5, activations_dir="unused")
        split = encoded_split(task, found, tokenizer, 32)
        inputs = task.model_inputs(split.columns, tokenizer, 32)
        model = FineTunedBert(config, task.head)
        outputs = model.encoder(inputs)
        hidden = [outputs["embedding_output"], *outputs["encoder_outputs"]]
        got = model.activations(inputs).numpy()
        assert got.shape == (len(split), 32, len(layers), 32)
        for row in range(len(split)):
            places = 1 + np.flatnonzero(split.columns["token_labels"][row].numpy() != NOT_LABELED)
            for number, layer in enumerate(layers):
                expected = hidden[layer].numpy()[row, places]
                np.testing.assert_allclose(got[row, : len(places), number], expected, atol=1e-5)
        logits = model(inputs)["logits"]
        stored = model(inputs | {"activations": got[:, : int(split.lengths.max())]})["logits"]
        mask = inputs["read_mask"].numpy()[:, :, np.newaxis]
        np.testing.assert_allclose(stored * mask, logits * mask, atol=1e-5)


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
