"""`TextClassifier`, the classifier for Python programs."""

import io
import json
import pickle

import numpy as np
import pandas
import pytest
import tensorflow as tf

from bert_tf.classifier import TextClassifier
from bert_tf.embedder import TextEmbedder
from bert_tf.runs import checkpoint_folder
from bert_tf.runs.checkpoint_folder import step_of
from bert_tf.tasks.classification import glue
from bert_tf.tasks.classification.memory_source import memory_source
from bert_tf.tasks.classification.multi_label import evaluated_thresholds
from bert_tf.tasks.classification.settings import IN_MEMORY, ClassifierSettings
from bert_tf.training import metrics_file
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.bert_tf.tasks_of_flags import find_task
from tests.conftest import WORDS
from tests.export.exports import put_together
from tests.kit import refused

PAIRS = [
    pair
    for word in WORDS[:10]
    for pair in ((f"the man {word}", "who said so"), (f"all of you {word}", 'a "tab\t" and\nline'))
]
LABELS = [7, 10] * 10


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, vocab_file):
    folder = tmp_path_factory.mktemp("pretrained")
    write_pretrained(folder, vocab_file, num_hidden_layers=1)
    return folder


OPTIONS = {
    "max_seq_length": 16, "train_batch_size": 6, "num_train_epochs": 8.0, "learning_rate": 5e-3, "pooling": "mean",
    "long_text": "window", "dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(checkpoint, tmp_path_factory):
    output = tmp_path_factory.mktemp("classifier")
    return TextClassifier.train(PAIRS, LABELS, checkpoint, output, **OPTIONS), output


@pytest.mark.parametrize("kind", [TextClassifier, TextEmbedder])
def test_pickling_a_loaded_model_names_the_remedy(kind):
    message = f"a loaded {kind.__name__} cannot be pickled; .*call {kind.__name__}.load"
    refused(message, pickle.dumps, kind.__new__(kind))


@pytest.mark.slow
def test_pairs_are_learned_and_predicted(trained, monkeypatch, caplog):
    model, output = trained
    assert model.labels == ("7", "10") and model.scores["accuracy"] == 1.0
    texts = [*PAIRS[:3], ("very " * 40, "long " * 40)]
    assert model.predict(texts[:3]) == ["7", "10", "7"]
    refused("was trained on pairs", model.predict, ["the man"])
    expected = model.probabilities(texts)
    assert expected.shape == (4, 2)
    np.testing.assert_allclose(expected.sum(axis=1), 1, rtol=1e-6)
    monkeypatch.setattr("bert_tf.core.progress_bar.SECONDS_BETWEEN_LINES", -1.0)
    with caplog.at_level("INFO"):
        again = TextClassifier.load(output).probabilities(texts, batch_size=1)
    np.testing.assert_allclose(again, expected, atol=1e-5)
    assert "predicting: 3 of 4 texts" in caplog.text
    page = (output / "report.html").read_text()
    assert "Confusion matrix" in page
    assert len((output / "dev_predictions.jsonl").read_text().splitlines()) == 2, "a tenth of 20 texts"


@pytest.mark.slow
def test_saved_model_is_equal_without_training_state(trained, checkpoint, tmp_path):
    model, output = trained
    model.save(tmp_path / "saved")
    names = {path.name for path in (tmp_path / "saved").iterdir()}
    step = max(map(step_of, checkpoint_folder.prefixes(str(output))))
    assert names == {
        "bert_config.json", "vocab.txt", "tokenizer_config.json", "task.json", "run.json", "evaluations.json",
        "eval_results.txt", "checkpoint", f"ckpt-{step}.index", f"ckpt-{step}.data-00000-of-00001",
    }  # fmt: skip
    again = TextClassifier.load(tmp_path / "saved")
    assert again.scores == TextClassifier.load(output).scores == pytest.approx(model.scores)
    np.testing.assert_array_equal(again.probabilities(PAIRS[:2]), model.probabilities(PAIRS[:2]))
    assert again.export(tmp_path / "served/1") == str(tmp_path / "served/1")
    serve = tf.saved_model.load(str(tmp_path / "served/1")).signatures["serving_default"]
    first, second = map(list, zip(*PAIRS[:2], strict=True))
    answers = serve(text_a=tf.constant(first), text_b=tf.constant(second))["probabilities"]
    np.testing.assert_allclose(answers, model.probabilities(PAIRS[:2]), atol=1e-5)
    metrics_file.write_results(str(tmp_path / "saved"), {"eval_accuracy": 0.75, "global_step": step + 1})
    assert TextClassifier.load(tmp_path / "saved").scores == {}, "they are of another checkpoint"
    refused("saved: the folder is not empty; give a new folder", model.save, tmp_path / "saved")
    given = (PAIRS, LABELS, checkpoint, tmp_path / "saved")
    refused("holds a saved model, whose training cannot continue", TextClassifier.train, *given, **OPTIONS)


@pytest.mark.slow
def test_texts_with_labels_are_evaluated(trained):
    model, _ = trained
    assert model.evaluate(PAIRS, LABELS) == {"accuracy": 1.0, "macro_f1": 1.0}
    assert model.evaluate(PAIRS[:4], ["7", "7", "7", "10"])["accuracy"] == 0.75
    refused(r"texts\[1\]: unknown label '8'; the task's labels are 7, 10", model.evaluate, PAIRS[:2], [7, 8])
    refused("labels: are for regression, but the model is for classification", model.evaluate, PAIRS[:2], [7.0, 8.5])
    refused("2 texts, but 1 labels", model.evaluate, PAIRS[:2], [7])


@pytest.mark.slow
def test_numbers_are_evaluated(checkpoint, tmp_path):
    texts, stars = ["the man", "who said so", "all of you"] * 4, [100.0, 200.0, 300.5] * 4
    options = {"max_seq_length": 16, "num_train_epochs": 1.0, "train_batch_size": 6, "dev_share": 0}
    model = TextClassifier.train(texts, stars, checkpoint, tmp_path, **options)
    assert model.scores == TextClassifier.load(tmp_path).scores == {}
    found = model.evaluate(texts, [round(number) for number in stars])
    expected = np.corrcoef(model.predict(texts), np.round(stars))[0, 1]
    assert found.keys() == {"pearson", "spearman", "r_squared"} and found["pearson"] == pytest.approx(expected, 1e-4)

    def again(count):
        dev = {"dev_texts": texts[:count], "dev_labels": stars[:count]}
        return TextClassifier.train(texts, stars, checkpoint, tmp_path, **dev, **options)

    scores = again(4).scores  # its first dev texts are the run's
    assert scores and scores == pytest.approx(TextClassifier.load(tmp_path).scores)
    refused("dev_texts: .* was evaluated on other texts .*; give the same texts, or call", again, 5)


@pytest.mark.slow
def test_the_same_call_is_done_and_other_texts_refused(trained, checkpoint):
    _, output = trained
    assert TextClassifier.train(PAIRS, LABELS, checkpoint, output, **OPTIONS).scores["accuracy"] == 1.0
    refused("holds a run with other data", TextClassifier.train, PAIRS[::-1], LABELS, checkpoint, output, **OPTIONS)
    for other in ({"dev_texts": PAIRS[:2], "dev_labels": LABELS[:2]}, {"dev_share": 0}):
        message = "holds out the share 0.1 of its texts; give dev_share=0.1,"
        refused(message, TextClassifier.train, PAIRS, LABELS, checkpoint, output, **other, **OPTIONS)


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ("a text", ["a"], "texts: is of type str; give a list"),
        (np.array([["a", "b"], ["c", "d"]]), ["x", "y"], "texts: is a table; give a list"),
        (["a", "b"], np.array([[0, 1], [1, 0]]), "labels: is a table; give a list"),
        ([{"text": "a", "y": 0}, {"text": "b"}], "y", "labels: row 1 has no column 'y'; it has text"),
        (pandas.DataFrame({"body": ["a", "b"]}), ["x", "y"], "name the columns of the texts text, or text_a and"),
        ({"text": ["a", "b"], "y": ["x"]}, "y", "values are lists of one length; give such lists, or a list"),
        ({"text": "a"}, ["x"], "values are lists of one length"),
        ({"a", "b"}, ["x", "y"], "texts: is of type set; give a list"),
        (["a", "b"], {"x": 1, "y": 2}, "labels: is of type dict; give a list"),
        (["a", "b"], None, "labels: is of type NoneType; give a list"),
        ([], [], "texts: is empty"),
        (["a", 3], ["x", "y"], r"texts\[1\]: is 3; give a string, or a pair of strings"),
        (["a", ("b", "c")], ["x", "y"], r"texts\[1\]: single texts and pairs are mixed"),
        (["a", "b"], ["x", "x "], "all labels are 'x'; a classifier needs at least two classes"),
        (["a", "b", "c"], ["x", "y", None], r"the labels mix other values and strings, such as labels\[2\], which is"),
        (["a", "b"], [None, None], r"texts\[0\]: the label is empty"),
        (["a", "b"], [["x"], [{}]], r"texts\[1\]: the label is an object"),
        (["a", "b"], [[], ()], "no text has a label"),
        (["a", "b"], [1.0, float("nan")], r"texts\[1\]: the label is empty"),
        (["a", "b"], ["x", 1], "the labels mix integers and strings"),
        (["a", "b"], ["x", "y"], "a dev share of 0.9 holds out none of 2 examples"),
    ],
)
def test_bad_input_is_refused_before_any_work(texts, labels, message, tmp_path):
    refused(message, TextClassifier.train, texts, labels, "nowhere", tmp_path / "out", dev_share=0.9)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"random_seed": "x"}, "--random_seed='x': must be an integer"),
        ({"dev_share": "0.1"}, "dev_share='0.1': must be"),
        ({"dev_texts": ["a"]}, "dev_texts and dev_labels: give both or neither"),
        ({"dev_texts": ["a"], "dev_labels": [1.5]}, "dev_labels: are for regression, but the labels are for class"),
        ({"dev_texts": [("a", "b")], "dev_labels": ["x"]}, "texts and dev_texts must both be single texts or both be"),
        ({"regression": True}, "labels: are for classification, but regression=True is given; give labels for"),
        ({"multi_label": True}, "labels: are for classification, but multi_label=True is given"),
        ({"text_a_column": "body"}, "--text_a_column is for files; name a table's columns of texts text, or text_a"),
        ({"data_dir": "folder"}, "--data_dir and texts in memory are two data sets"),
        ({"tfds_name": "glue/mrpc"}, "--tfds_name and texts in memory are two data sets"),
    ],
)
def test_refuses_settings_unfit_for_texts_in_memory(more, message, tmp_path):
    given = {"checkpoint": "nowhere", "output_dir": tmp_path, **more}
    refused(message, TextClassifier.train, ["a", "b"], ["x", "y"], **given)


def task_of(texts, labels, dev=None, wanted="", **settings):
    source = memory_source(texts, labels, dev, wanted)
    return find_task(ClassifierSettings(task_name=IN_MEMORY, output_dir="none", do_train=True, **settings), source)


@pytest.mark.parametrize(
    ("count", "given", "told"),
    [
        (40, {}, "36 training texts: using train_batch_size=8, num_train_epochs=45 for"),
        (800, {}, "720 training texts: using train_batch_size=8, num_train_epochs=3 for"),
        (40, {"train_batch_size": None, "num_train_epochs": None}, "using train_batch_size=8, num_train_epochs=45 for"),
        (1112, {}, ""),
        (40, {"num_train_epochs": 2.0}, "using train_batch_size=8 for"),
        (40, {"train_batch_size": 4}, "using num_train_epochs=23 for"),
        (40, {"train_batch_size": 32, "num_train_epochs": 3.0}, ""),
        (40, {"sweep": True}, ""),
    ],
)
def test_few_texts_get_enough_steps(tmp_path, caplog, count, given, told):
    texts, labels = [f"text {number}" for number in range(count)], ["a", "b", "b", "b"] * (count // 4)
    refused("nowhere: no such checkpoint", TextClassifier.train, texts, labels, "nowhere", tmp_path / "out", **given)
    assert told in caplog.text and ("training texts: using " in caplog.text) == bool(told)


def test_floats_are_a_standardized_regression():
    task = task_of(["a", "b"], [0.5, np.float32(4e9)], (["c"], [-7.0]))
    assert task.labels == () and (task.answers.mean, task.answers.deviation) == pytest.approx((2e9, 2e9))
    assert [example.label for example in task.data.read("dev")] == [-7.0]
    assert task.prediction(tf.constant([[1.0]]), {}).numpy() == pytest.approx(4e9)
    assert task.data.fingerprint("train") != task_of(["a", "b"], [0.5, 4e8]).data.fingerprint("train")
    for flag in ("class_weights", "label_file"):
        refused(f"--{flag} is for classes", task_of, ["a", "b"], [0.5, 1.5], **{flag: "balanced"})


def test_integers_are_numbers_with_regression():
    task = task_of({"text": ["a\ud83d", "b"], "stars": [1, 3]}, "stars", (["c"], [2]), wanted="regression")
    assert task.answers.mean == 2.0 and [example.label for example in task.data.read("dev")] == [2.0]
    assert [example.text_a for example in task.data.read("train")] == ["a", "b"]


def test_integers_are_classes_in_order():
    task = task_of(["a", "b", "c"], [10, np.int64(2), 10], (["d"], [3]), class_weights="balanced")
    assert task.labels == ("2", "10") and task.answers.weights == pytest.approx((1.5, 0.75))
    refused(r"dev_texts\[0\]: unknown label '3'; the task's labels are 2, 10", task.data.read, "dev")
    for booleans in ([True, False], np.array([True, False])):
        assert task_of(["a", "b"], booleans).labels == ("False", "True")


def test_sets_are_any_number_of_labels():
    task = task_of(["a", "b", "c"], [{"y", "x"}, [], ("z",)])
    assert task.kind == "multi_label" and task.labels == ("x", "y", "z")
    np.testing.assert_array_equal(task.targets(task.data.read("train")), [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    frame = pandas.DataFrame({"text": ["a", "b"], "label": [["x"], ["y", "x"]]}).to_parquet()
    read = pandas.read_parquet(io.BytesIO(frame))  # the cells are arrays
    assert memory_source(read, "label", None).data.read("train")[1].label == ("y", "x")


@pytest.mark.slow
def test_predicts_labels_above_thresholds_of_run(checkpoint, tmp_path):
    texts, labels = ["the man", "who said so", "all of you"] * 6, [{"a"}, set(), {"a", "b"}] * 6
    options = {"max_seq_length": 16, "train_batch_size": 6, "num_train_epochs": 10.0, "learning_rate": 5e-3}
    model = TextClassifier.train(texts, labels, checkpoint, tmp_path / "out", dev_texts=texts, dev_labels=labels,
                                 class_weights="balanced", tune_thresholds=True, **options)  # fmt: skip
    assert {"micro_f1", "subset_accuracy"} < model.scores.keys()
    found = model.probabilities(texts[:3])
    thresholds = json.loads((tmp_path / "out/thresholds.json").read_text())["thresholds"]
    expected = [tuple(name for name, p in zip("ab", row, strict=True) if p > thresholds[name]) for row in found]
    assert model.predict(texts[:3]) == expected
    found = model.evaluate(texts, labels)
    assert {name: model.scores[name] for name in found} == pytest.approx(found)
    model.save(tmp_path / "saved")
    assert TextClassifier.load(tmp_path / "saved").predict(texts[:3]) == expected
    assert evaluated_thresholds(str(tmp_path / "saved")) == pytest.approx(list(thresholds.values()))
    (tmp_path / "out/thresholds.json").write_text('{"step": null, "thresholds": {"a": 0.0, "b": 1.0}}')
    assert model.predict(texts[:3]) == [("a",)] * 3


def test_a_run_of_glue_is_evaluated_with_its_scores(tmp_path, vocab_file):
    put_together(tmp_path / "run", vocab_file, glue.task("CoLA", ""), spread=0.3)
    model = TextClassifier.load(str(tmp_path / "run"))
    assert model.predict([]) == [] and model.probabilities(pandas.Series([], dtype=str)).shape == (0, 2)
    found = model.evaluate(["the man", "he said"], ["0", "1"])
    assert list(found) == ["matthews_correlation", "accuracy"]
