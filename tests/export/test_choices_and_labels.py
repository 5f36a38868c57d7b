"""Served choices and sets of labels compared with the trainer's."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from bert_tf.classifier import TextClassifier
from bert_tf.finetuning.task import encoded_split
from bert_tf.tasks.choice.choice_files import ChoiceExample
from bert_tf.tasks.choice.choice_task import ChoiceTask
from bert_tf.tasks.classification import multi_label
from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.classification import make_task
from tests.export.exports import CONFIG, PAIRS, ask, export, padded, put_together

# The quick tests of exports use classifiers, questions and entities.
pytestmark = pytest.mark.slow

EXAMPLES = [
    ChoiceExample("the man said", "he", ("was there", "is", "they had all of it"), None),
    ChoiceExample("", "", ("very " * 40, "a"), None),
    ChoiceExample("long " * 40, "", ("very " * 40, "Ünïcödé 中文", "x", "\u200b", " "), None),
    *(ChoiceExample(a, b, (b or "x", a or "y"), None) for a, b in PAIRS),
]


@pytest.fixture(scope="module", params=["bert", "gpt"])
def chooser(vocab_file, tmp_path_factory, request):
    """An export, and the trainer's scores and probabilities of EXAMPLES."""
    folder, task = tmp_path_factory.mktemp("choice"), ChoiceTask()
    tokenizer = BertTokenizer(vocab_file)
    gpt = {"directionality": "ltr", "extract_token_id": tokenizer.mask_id} if request.param == "gpt" else {}
    config = dataclasses.replace(CONFIG, **gpt)
    model = put_together(folder / "run", vocab_file, task, spread=0.3, config=config)
    split = encoded_split(task, EXAMPLES, tokenizer, 24)
    scores = model(task.model_inputs(split.columns, tokenizer, 24))["logits"].numpy()[:, 0]
    ends = np.cumsum([len(example.choices) for example in EXAMPLES])[:-1]
    return export(folder / "run"), [special.softmax(row) for row in np.split(scores, ends)], split, tokenizer


def columns(examples):
    return {
        "context": [example.context for example in examples],
        "start": [example.start for example in examples],
        "choices": padded([example.choices for example in examples]),
    }


def test_choices_have_the_trainers_probabilities(chooser):
    model, expected, *_ = chooser
    answers = ask(model, **columns(EXAMPLES))
    assert answers.keys() == {"probabilities", "choice"}
    for number, row in enumerate(expected):
        np.testing.assert_allclose(answers["probabilities"][number, : len(row)], row, atol=1e-5)
        assert not answers["probabilities"][number, len(row) :].any()
        assert answers["choice"][number] == np.argmax(row)
        alone = ask(model, **columns(EXAMPLES[number : number + 1]))
        np.testing.assert_allclose(alone["probabilities"][0], row, atol=1e-5)
    assert np.ptp([row[0] for row in expected]) > 0.1


def test_answers_empty_choices_and_empty_batches(chooser):
    model = chooser[0]
    answers = ask(model, context=["a", "a"], start=["", ""], choices=[["x", ""], ["", ""]])
    np.testing.assert_array_equal(answers["probabilities"], [[1, 0], [0, 0]])
    assert answers["choice"].tolist() == [0, -1]
    for shape in ((0, 3), (2, 0), (0, 0)):
        texts = [""] * shape[0]
        answers = ask(model, context=texts, start=texts, choices=np.zeros(shape, "S"))
        assert answers["probabilities"].shape == shape and answers["choice"].tolist() == [-1] * shape[0]


def test_tokens_are_chosen_among_as_texts_are(chooser):
    model, expected, split, tokenizer = chooser
    inputs = ChoiceTask().model_inputs(split.columns, tokenizer, 24)
    rows = {name: tf.stack([value[:3], tf.pad(value[3:5], [[0, 1], [0, 0]])]) for name, value in inputs.items()}
    answers = model.signatures["tokens"](**rows)
    np.testing.assert_allclose(answers["probabilities"][0], expected[0], atol=1e-5)
    np.testing.assert_allclose(answers["probabilities"][1], [*expected[1], 0], atol=1e-5)


TEXTS = ["the man said", "word", "all of you", "", "they had 中文"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory, vocab_file):
    """The trained model and its export; each threshold is between the probabilities of two texts."""
    run = tmp_path_factory.mktemp("sets") / "run"
    put_together(run, vocab_file, make_task(3, has_pairs=False), spread=0.3)
    described = json.loads((run / "task.json").read_text())
    described |= {"kind": multi_label.MULTI_LABEL, "labels": ["old", "élan", "kind"]}
    (run / "task.json").write_text(json.dumps(described))
    ranked = np.sort(TextClassifier.load(str(run)).probabilities(TEXTS), axis=0)
    multi_label.THRESHOLDS.write(str(run), (ranked[1:4] + ranked[2:5]).diagonal() / 2, 1, described["labels"])
    return TextClassifier.load(str(run)), export(run)


def test_answers_are_the_trainers_and_name_the_labels(pair):
    trained, served = pair
    answers = ask(served, text_a=TEXTS)
    np.testing.assert_allclose(answers["probabilities"], trained.probabilities(TEXTS), atol=1e-6)
    named = [tuple(name.decode() for name in row if name) for row in answers["labels"]]
    assert named == trained.predict(TEXTS)
    assert len({len(row) for row in named}) > 1, "rows are padded"
    assert [tuple(np.array(trained.labels)[row]) for row in answers["predicted"]] == named
