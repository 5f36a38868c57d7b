"""Served answers to questions compared with the trainer's, on texts that are hard to align."""

import dataclasses
import json
import random

import numpy as np
import pytest

from bert_tf.core.errors import InputError
from bert_tf.finetuning import description
from bert_tf.finetuning.task import encoded_split
from bert_tf.runs import run_record
from bert_tf.tasks.questions import squad_results
from bert_tf.tasks.questions.squad_answers import Decoding
from bert_tf.tasks.questions.squad_file import Question
from bert_tf.tasks.questions.squad_task import SquadTask
from bert_tf.tokenization import BertTokenizer
from export.kinds.questions import ServedQuestions
from export.settings import ExportSettings
from tests.bert_tf.tasks.questions.hard_texts import HARD
from tests.conftest import WORDS
from tests.export.exports import ask, export, put_together
from tests.kit import refused

LENGTH, STRIDE, QUERY, THRESHOLD = 32, 8, 10, -0.5
LONG = " ".join(random.Random(3).choices(WORDS, k=3500))
CONTEXTS = [*(context for context, _ in HARD), LONG, "the " * 100, "", " \t", "x", "naïve\tcafé\n"]
QUESTIONS = [(question, context) for context in CONTEXTS for question in ("what said ?", "", "very " * 40)]


def served(run, vocab_file, has_unanswerable, bilstm_head=False, **settings):
    """An export and the trainer's answers to QUESTIONS."""
    sizes = settings.get("n_best_size", 20), settings.get("max_answer_length", 30)
    task = SquadTask(Decoding(*sizes, has_unanswerable, exact_offsets=True), STRIDE, QUERY)
    model = put_together(run, vocab_file, task, LENGTH, bilstm_head, spread=0.6)
    tokenizer = BertTokenizer(vocab_file)
    questions = [Question(str(number), *pair, ()) for number, pair in enumerate(QUESTIONS)]
    split = encoded_split(task, questions, tokenizer, LENGTH)
    inputs = task.model_inputs(split.columns, tokenizer, LENGTH)
    logits = task.prediction(model(inputs)["logits"], inputs).numpy()
    return export(run, **settings), task.by_example(split, logits)[1]


@pytest.fixture(scope="module", params=[pytest.param(False, marks=pytest.mark.slow), True], ids=["v1", "v2"])
def pair(request, vocab_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("questions")
    (folder / "run").mkdir()
    threshold = {"step": 1, "null_score_diff_threshold": THRESHOLD}
    (folder / "run/null_threshold.json").write_text(json.dumps(threshold))
    return served(folder / "run", vocab_file, request.param)


def columns(pairs):
    return dict(zip(("question", "context"), zip(*pairs, strict=True), strict=True))


def assert_equal(answers, expected, pairs=QUESTIONS):
    for number, found in enumerate(expected):
        text = found.text(THRESHOLD)
        candidate = next(each for each in found.candidates if each.text == text)
        assert answers["answer"][number].decode() == text
        assert (answers["start"][number], answers["end"][number]) == (candidate.offsets or (-1, -1))
        if text:
            assert pairs[number][1][answers["start"][number] : answers["end"][number]] == text
        np.testing.assert_allclose(answers["score"][number], candidate.score, rtol=1e-5, atol=1e-5)
        probability = found.probabilities[found.candidates.index(candidate)]
        np.testing.assert_allclose(answers["probability"][number], probability, atol=1e-5)
        if found.null_odds is not None:
            np.testing.assert_allclose(answers["null_odds"][number], found.null_odds, rtol=1e-5, atol=1e-5)


@pytest.mark.core
def test_answers_are_the_trainers_with_exact_offsets(pair):
    model, expected = pair
    answers = ask(model, **columns(QUESTIONS))
    assert_equal(answers, expected)
    assert ("null_odds" in answers) == (expected[0].null_odds is not None)
    found = [found.text(THRESHOLD) for found in expected]
    assert sum(map(bool, found)) > 15 and "" in found and len(set(found)) > 10


def test_offsets_count_valid_characters(pair):
    broken = b"the \xffm\xe4\xb8an \xed\xa0\x80said \xf0\x9f\x98\x80 caf\xc3\xa9 t\xc3 they"
    text = broken.decode("utf-8", "ignore")
    answers, clean = (ask(pair[0], question=[b"wh\xffat ?"], context=[context]) for context in (broken, text))
    for name, value in clean.items():
        if value.dtype == object:
            assert answers[name] == value
        else:
            np.testing.assert_allclose(answers[name], value, atol=1e-6)
    assert text[answers["start"][0] : answers["end"][0]] == answers["answer"][0].decode()


@pytest.mark.slow
def test_a_bilstm_and_given_settings_are_served(vocab_file, tmp_path):
    (tmp_path / "run").mkdir()
    flags = {"null_score_diff_threshold": THRESHOLD, "n_best_size": 4, "max_answer_length": 7}
    model, expected = served(tmp_path / "run", vocab_file, True, bilstm_head=True, **flags)
    assert_equal(ask(model, **columns(QUESTIONS)), expected)


def test_answers_are_chosen_as_in_training(tmp_path):
    def chosen(decoding, **flags):
        task = SquadTask(decoding, STRIDE, QUERY)
        description.write(str(tmp_path), description.describe(task, LENGTH))
        settings = ExportSettings(checkpoint_dir=str(tmp_path), export_dir=f"{tmp_path}/1", **flags)
        parameters = ServedQuestions.completed(settings, description.read(str(tmp_path)), str(tmp_path), 1).parameters
        return parameters["n_best_size"], parameters["max_answer_length"]

    own = Decoding(5, 12)
    assert chosen(Decoding()) == (20, 30) and chosen(own) == (5, 12)
    assert chosen(own, max_answer_length=9) == (5, 9) and chosen(own, n_best_size=1) == (1, 12)
    own = dataclasses.replace(own, has_unanswerable=True)
    assert chosen(own, max_answer_length=9) == (5, 9)
    squad_results.NULL_THRESHOLD.write(str(tmp_path), -1.5, 1)
    assert chosen(own, max_answer_length=12) == (5, 12)
    refused(r"--max_answer_length=9: the threshold in .* was tuned with 12", chosen, own, max_answer_length=9)
    assert chosen(own, max_answer_length=9, null_score_diff_threshold=0.5) == (5, 9)


def test_a_lost_threshold_is_refused(tmp_path):
    settings = ExportSettings(checkpoint_dir=str(tmp_path), export_dir=f"{tmp_path}/1")
    task = SquadTask(Decoding(has_unanswerable=True), STRIDE, QUERY)
    described = description.describe(task, LENGTH)
    assert ServedQuestions.completed(settings, described, str(tmp_path), 7).parameters["null_threshold"] == 0.0
    squad_results.NULL_THRESHOLD.write(str(tmp_path), -1.5, 7)
    assert ServedQuestions.completed(settings, described, str(tmp_path), 7).parameters["null_threshold"] == -1.5
    phase = run_record.TrainingRecord({"tune_null_threshold": True}, {}, {}, {})
    (tmp_path / "ckpt-7.index").touch()
    run_record.write(str(tmp_path), [phase])
    (tmp_path / squad_results.NULL_THRESHOLD.name).unlink()
    with pytest.raises(InputError, match=r"null_threshold.json: no such file, although the run has tuned thresholds"):
        ServedQuestions.completed(settings, described, str(tmp_path), 7)
    given = dataclasses.replace(settings, null_score_diff_threshold=0.5)
    assert ServedQuestions.completed(given, described, str(tmp_path), 7).parameters["null_threshold"] == 0.5
