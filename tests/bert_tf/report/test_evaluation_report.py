"""The sections of a report about the last evaluation in fine-tuning."""

import json
import math
import re

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax
from sklearn import metrics

from bert_tf.finetuning import description
from bert_tf.finetuning.task import Split, encoded_split
from bert_tf.report import evaluation
from bert_tf.tasks import evaluation_file
from bert_tf.tasks.classification import multi_label, scores
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.classification.kind import class_table
from bert_tf.tasks.questions import squad_results
from bert_tf.tasks.questions.squad_answers import Candidate, SpanAnswers
from bert_tf.tasks.questions.squad_file import Answer, Question
from tests.bert_tf.classification import make_task
from tests.bert_tf.report.pages import check_stands_alone


@pytest.mark.parametrize("never", [None, 2])
def test_metrics_of_classes_are_scikit_learns(never):
    rng = np.random.default_rng(0)
    labels, predictions = rng.integers(0, 4, 200), rng.integers(0, 4, 200)
    if never is not None:
        labels[labels == never], predictions[predictions == never + 1] = 0, 0  # a class without labels and predictions
    one_hot = np.eye(4, dtype=bool)
    *rows, mean = class_table(one_hot[labels], one_hot[predictions], "abcd", is_exclusive=True).rows
    expected = metrics.precision_recall_fscore_support(labels, predictions, labels=range(4), zero_division=0)
    for name, row, (*values, support) in zip("abcd", rows, np.transpose(expected), strict=True):
        assert row == [name, *(f"{value:.3f}" for value in values), f"{support:.0f}"]
    assert mean[3:] == [f"{metrics.f1_score(labels, predictions, average='macro'):.3f}", "200"]


def test_the_mean_of_the_classes_is_macro_f1(tokenizer, tmp_path):
    examples = [Example("the man", None, label) for label in "001"]  # class 2 is in neither labels nor predictions
    logits = np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0], [0.0, 1.0, -1.0]], np.float32)
    expected = metrics.f1_score([0, 0, 1], [0, 1, 1], average="macro")
    assert scores.compute(["macro_f1"], np.array([0, 0, 1]), np.array([0, 1, 1])) == {"macro_f1": expected}
    page = evaluation.sections(folder_of(tmp_path, tokenizer, 3, examples, logits))
    row = page[page.index("mean of the 2 classes that occur") :].split("</tr>")[0]
    assert f">{expected:.3f}<" in row, "not the mean of three"


def test_multi_label_metrics_equal_scikit_learn():
    targets, answers = np.random.default_rng(1).random((2, 50, 3)) > 0.6
    *rows, mean = class_table(targets, answers, "abc").rows
    expected = [metrics.f1_score(*columns) for columns in zip(targets.T, answers.T, strict=True)]
    assert [row[3] for row in (*rows, mean)] == [f"{value:.3f}" for value in (*expected, np.mean(expected))]
    assert [row[4] for row in rows] == [str(count) for count in targets.sum(axis=0)]


def test_the_most_confused_pairs_have_shares():
    matrix = np.zeros([30, 30], int)
    matrix[3, 3], matrix[3, 7], matrix[7, 7] = 6, 2, 90
    page = evaluation.confusions(matrix, [f"class{number}" for number in range(30)])
    assert re.findall(r"<td[^>]*>(.*?)</td>", page) == ["class3", "class7", "2", "25.0%"]


def folder_of(tmp_path, tokenizer, num_labels, examples, logits):
    task = make_task(num_labels, has_pairs=examples[0].text_b is not None)
    task.write_evaluation(str(tmp_path), encoded_split(task, examples, tokenizer, 16), logits, 1)
    description.write(str(tmp_path), description.describe(task, 16))
    return str(tmp_path)


def test_a_classifiers_answers_are_kept_and_shown(tokenizer, tmp_path):
    texts = ["the <b>man</b>", "x" * 400, "you & me"]
    examples = [Example(text, "other", label) for text, label in zip(texts, "010", strict=True)]
    logits = np.array([[-3.0, 3.0], [1.0, 0.0], [2.0, 0.0]], np.float32)
    folder = folder_of(tmp_path, tokenizer, 2, examples, logits)
    lines = [json.loads(line) for line in (tmp_path / "dev_predictions.jsonl").read_text().splitlines()]
    assert [line["index"] for line in lines] == [0, 1, 2] and [line["prediction"] for line in lines] == ["1", "0", "0"]
    np.testing.assert_allclose([line["probabilities"] for line in lines], softmax(logits, axis=-1), rtol=1e-6)
    assert lines[0]["loss"] == pytest.approx(math.log1p(math.exp(6)))
    page = evaluation.sections(folder)
    check_stands_alone(page)
    assert "the &lt;b&gt;man&lt;/b&gt;" in page and "x" * 299 + "…" in page and "x" * 300 not in page
    assert "2 of 3 answers are wrong" in page and "you &amp; me" not in page, "only errors are listed"
    assert page.index("&lt;b&gt;") < page.index("xxx"), "the highest loss comes first"
    for heading in ("Confusion matrix", "Classes", "Worst errors"):
        assert f"<h2>{heading}</h2>" in page


def test_report_shows_worst_answers_to_questions(tmp_path):
    context = "the " * 100 + "<b>old</b> man said " + "so " * 200
    spoken = Answer("old", context.index("old"))
    questions = [
        Question("good", "who ?", context, (spoken,)),
        Question("near", "which ?", context, (Answer("old man", spoken.start), spoken)),
        Question("wrong", "what & why ?", context, (spoken, spoken)),
        Question("surely wrong", "when ?", context, (spoken,)),
        Question("none", "where ?", context, (), is_impossible=True),
    ]
    told = [("old", 3.0), ("man", 2.0), ("so", 1.0), ("so", 5.0), ("old", 1.0)]
    answers = [SpanAnswers((Candidate(text, score, 0.0), Candidate("", 0.0, 0.0)), -score) for text, score in told]
    squad_results.write_answers(str(tmp_path), questions, answers, 0.0, has_unanswerable=True)
    lines = [json.loads(line) for line in (tmp_path / "dev_predictions.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["good", "near", "wrong", "surely wrong", "none"]
    assert [line["exact_match"] for line in lines] == [1, 0, 0, 0, 0]
    assert [line["f1"] for line in lines] == pytest.approx([1, 2 / 3, 0, 0, 0])
    assert lines[0]["probability"] == pytest.approx(1 / (1 + math.exp(-3))) and lines[0]["null_odds"] == -3
    assert lines[1]["label"] == ["old man", "old"] and lines[2]["label"] == ["old"] and lines[4]["label"] == []
    assert "<b>old</b> man" in lines[0]["context"] and len(lines[0]["context"]) < len(context)

    description.write(str(tmp_path), description.TaskDescription("questions", "SQuAD", (), 16, {}))
    page = evaluation.sections(str(tmp_path))
    check_stands_alone(page)
    assert "The answers to 4 of 5 questions are not an exact match" in page and "who ?" not in page
    order = [page.index(text) for text in ("when ?", "what &amp; why ?", "where ?", "which ?")]
    assert order == sorted(order), "the lowest F1 comes first, and of equal ones the surest answer"
    assert "<td>old man | old</td>" in page and "<td>(no answer)</td>" in page and "&lt;b&gt;old" in page

    diverged = [SpanAnswers((Candidate("a", math.nan, 0.0),), 0.0)] * 5
    squad_results.write_answers(str(tmp_path), questions, diverged, 0.0, has_unanswerable=True)
    assert evaluation.sections(str(tmp_path)) == page, "what diverged is not kept"


def test_label_sets_show_the_counts_of_each_label(tmp_path):
    examples = [Example("one", None, ("a",)), Example("two", None, ()), Example("three", None, ("a", "b"))]
    targets = tf.constant([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    logits = np.array([[2.0, -3.0], [1.0, -1.0], [-0.5, 3.0]], np.float32)
    split = Split(examples, {"label_ids": targets}, np.arange(3))
    multi_label.THRESHOLDS.write(str(tmp_path), np.array([0.2, 0.5], np.float32), None, ("a", "b"))
    task = ClassificationTask("own", multi_label.LabelSets(("a", "b"), run_folder=str(tmp_path)))
    task.write_evaluation(str(tmp_path), split, logits, None)
    description.write(str(tmp_path), description.TaskDescription("multi_label", "own", ("a", "b"), 16, {}))
    lines = evaluation_file.read(str(tmp_path))
    assert [line["prediction"] for line in lines] == [["a"], ["a"], ["a", "b"]]
    expected = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(targets, logits), axis=1)
    np.testing.assert_allclose([line["loss"] for line in lines], expected, rtol=1e-6)
    np.testing.assert_allclose([line["probabilities"] for line in lines], tf.sigmoid(logits), rtol=1e-6)
    page = evaluation.sections(str(tmp_path))
    check_stands_alone(page)
    cells = "".join(f'<td class="number">{count}</td>' for count in (2, 0, 1, 0))
    assert f"<td>a</td>{cells}" in page and "1 of 3 examples have a wrong label" in page and page.count("two") == 1


def test_sentences_with_most_wrong_entities_are_first(tmp_path):
    lines = [
        "New B-LOC B-PER", "York I-LOC O", "<b> O O", "", "all O O", "right B-PER B-PER", "",
        "a O B-LOC", "man O O", "so O O", "",
    ]  # fmt: skip
    (tmp_path / "dev_predictions.txt").write_text("\n".join(lines) + "\n")
    labels = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    description.write(str(tmp_path), description.TaskDescription("tagging", "NER", labels, 16, {}))
    page = evaluation.sections(str(tmp_path))
    check_stands_alone(page)
    assert "2 of 3 sentences have a wrong entity" in page and "all right" not in page
    cells = ("2", "New York (LOC)", "New (PER)", "New York &lt;b&gt;")
    first, second = page.index("<td>" + "</td><td>".join(cells)), page.index("<td>1</td><td></td><td>a (LOC)</td>")
    assert first < second


def test_regression_shows_correlations_and_diagrams(tokenizer, tmp_path):
    examples = [Example("a", None, score) for score in (1.0, 2.0, 5.0)]
    folder = folder_of(tmp_path, tokenizer, 0, examples, np.array([[1.0], [2.5], [2.0]], np.float32))
    page = evaluation.sections(folder)
    check_stands_alone(page)
    assert page.count("<svg") == 1 and "Pearson" in page and page.index("-3") < page.index("+0.5")
