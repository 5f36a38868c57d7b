import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning import description
from bert_tf.finetuning.task import Split
from bert_tf.runs import run_record
from bert_tf.tasks.classification import multi_label
from bert_tf.tasks.classification.multi_label import best_thresholds, label_scores, set_scores
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.tasks_of_flags import find_task
from tests.kit import refused


def make(folder, content, end="csv", **changes):
    (folder / f"train.{end}").write_text(content, encoding="utf-8")
    required = {"output_dir": str(folder), "do_train": True, "do_eval": True, "multi_label": True}
    return find_task(ClassifierSettings(task_name="own", data_dir=str(folder), **{**required, **changes}))


@pytest.mark.parametrize("marks", ["1,0,0", "0,0,0"])
def test_each_column_of_marks_is_a_label(tmp_path, marks):
    task = make(tmp_path, f"text,c,a,b\nx,{marks}\n", label_column="c,a,b")
    assert task.labels == ("c", "a", "b"), "also a label that no example has, in the order of the flag"


@pytest.mark.parametrize(
    ("end", "content", "changes"),
    [
        ("csv", 'text,label\na,"x, y z"\nb,\nc,y z\n', {}),
        ("csv", "text,label\na,x|y z\nb, \nc,y z\n", {"label_separator": "|"}),
        ("csv", 'text,label\na,"[""x"", ""y z""]"\nb,[]\nc,y z\n', {}),
        ("csv", """text,label\na,"['x', 'y z']"\nb,[]\nc,['y z']\n""", {}),  # pandas: lists
        ("csv", """text,label\na,"('x', 'y z')"\nb,()\nc,"('y z',)"\n""", {}),
        ("csv", """text,label\na,"{'y z', 'x'}"\nb,set()\nc,{'y z'}\n""", {}),
        ("csv", """text,label\na,['x' 'y z']\nb,[]\nc,['y z']\n""", {}),  # NumPy: arrays
        ("jsonl", '{"text":"a","label":["x","y z"]}\n{"text":"b","label":[]}\n{"text":"c","label":"y z"}\n', {}),
        ("csv", "text,x,n,y z\na,1,5,1.0\nb,0,5,0.0\nc,False,5,True\n", {"label_column": "x,y z"}),
        (
            "jsonl",
            '{"text":"a","x":1,"y z":true}\n{"text":"b","x":0,"y z":false}\n{"text":"c","x":0.0,"y z":1}\n',
            {"label_column": "x,y z"},
        ),
    ],
)
def test_a_cell_has_any_number_of_labels(tmp_path, vocab_file, end, content, changes):
    task = make(tmp_path, content, end, **changes)
    assert (task.kind, task.labels) == ("multi_label", ("x", "y z"))
    examples = task.data.read("train")
    assert [example.label for example in examples] == [("x", "y z"), (), ("y z",)]
    columns = task.encode(examples, BertTokenizer(vocab_file), 8)
    np.testing.assert_array_equal(columns["label_ids"], [[1, 1], [0, 0], [0, 1]])


@pytest.mark.parametrize(
    ("end", "content", "changes", "message"),
    [
        ("csv", "text,label\na,x\nb,z\n", {"labels": "x,y"}, "line 3: unknown label 'z'; the task's labels are x, y"),
        ("csv", 'text,label\na,"x,,y"\n', {}, r"line 2: one of the labels 'x,,y' is empty; remove a separator"),
        ("csv", "text,label\na,x|y|\n", {"label_separator": "|"}, r"'x\|y\|' is empty; remove a separator \('\|'\)"),
        ("jsonl", '{"text": "a", "label": ["x", ""]}', {}, "line 1: the label is empty"),
        ("csv", "text,label\na,\nb,\n", {}, "check --label_column and --label_separator"),
        ("jsonl", '{"text": "a", "label": null}', {}, "line 1: the labels are null; give a list of strings"),
        ("jsonl", '{"text": "a", "label": [["x"]]}', {}, "line 1: the label is a list"),
        ("csv", "text,label\na,x\n", {}, "at least two labels but has 1"),
        ("csv", 'text,label\na,"[1, 0, 1]"\n', {}, "line 2: .* which are 0 or 1 for each label"),
        ("csv", "text,label\na,1 0 1\n", {}, "line 2: the labels are '1 0 1', which are 0 or 1 for each label"),
        ("jsonl", '{"text": "a", "label": [1.0, 0.0, 1.0]}', {}, "line 1: .* which are 0 or 1 for each label"),
        ("csv", "text,label\na,[1 0 0 1]\n", {}, "line 2: .* which are 0 or 1 for each label"),
        ("csv", 'text,label\na,"[sport, money]"\n', {}, r"line 2: the list of labels \[sport, money\] cannot be read"),
        ("csv", """text,label\na,"['x', nan]"\n""", {}, r"line 2: the list of labels \['x', nan\] cannot be read"),
        ("csv", "text,x,y\na,1,0\nb,0,1\n", {"label_column": "x"}, "if each label has a column, give all of them"),
        ("csv", "text,x,y\na,1,2\n", {"label_column": "x,y"}, "line 2: y is '2', but with several columns of labels"),
    ],
)
def test_bad_label_sets_are_refused(tmp_path, end, content, changes, message):
    refused(message, lambda: make(tmp_path, content, end, **changes).data.read("train"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a,[1 3]\nb,[]\nc,[ 3. 12.]\n", [("1", "3"), (), ("3", "12")]),  # `Dataset.to_csv` with lists of classes
        ('a,"[x], [y]"\nb,[x]\n', [("[x]", "[y]"), ("[x]",)]),
    ],
)
def test_labels_of_numpy_and_labels_in_brackets(tmp_path, content, expected):
    task = make(tmp_path, f"text,label\n{content}")
    assert [example.label for example in task.data.read("train")] == expected


CONTENT = "text,label\na,x\nb,y\nc,\nd,y\n"


def test_loss_is_mean_of_label_cross_entropies(tmp_path):
    logits = np.array([[2.0, -1.0], [0.0, 3.0]], np.float32)
    labels = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    batch = {"label_ids": tf.constant(labels)}
    p = 1 / (1 + np.exp(-logits.astype(np.float64)))
    positive, negative = -labels * np.log(p), -(1 - labels) * np.log(1 - p)
    values = make(tmp_path, CONTENT).losses(tf.constant(logits), batch)
    np.testing.assert_allclose(values["loss"], (positive + negative).mean(axis=1), rtol=1e-5)
    np.testing.assert_array_equal(values["subset_accuracy"], [1.0, 1.0])
    # 1 of 4 examples has x, and 2 of 4 have y: 3/1 and 2/2 examples without the label for each example with it
    weighted = make(tmp_path, CONTENT, class_weights="balanced")
    assert weighted.answers.weights == (3.0, 1.0)
    values = weighted.losses(tf.constant(logits), batch)
    np.testing.assert_allclose(values["loss"], (positive * [3.0, 1.0] + negative).mean(axis=1), rtol=1e-5)


def test_the_scores_are_what_the_definitions_give():
    labels = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0]], bool)
    predictions = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 0]], bool)
    # x: 2 hits, no error; y: 1 hit, 1 false, 1 missed; z: neither in the data nor predicted
    found = set_scores(labels, predictions)
    assert found == pytest.approx({"micro_f1": 6 / 8, "macro_f1": (1 + 0.5 + 0) / 3, "subset_accuracy": 0.5})
    np.testing.assert_allclose(label_scores(labels, predictions), [[1, 1, 1, 2], [0.5, 0.5, 0.5, 2], [0, 0, 0, 0]])


def f1_of(labels, probabilities, thresholds):
    predicted = probabilities > thresholds
    return 2 * np.sum(predicted & labels, axis=0) / (np.sum(predicted, axis=0) + np.sum(labels, axis=0))


def test_the_tuned_threshold_has_the_best_f1_of_all():
    generator = np.random.default_rng(0)
    for decimals in (1, 6):
        probabilities = generator.random([40, 200]).astype(np.float32).round(decimals)
        labels = generator.random([40, 200]) < probabilities * 0.7
        chosen = best_thresholds(labels, probabilities)
        reached = f1_of(labels, probabilities, chosen)
        every = [f1_of(labels, probabilities, threshold) for threshold in np.linspace(-0.001, 0.999, 1001)]
        assert np.all(reached >= np.max(every, axis=0) - 1e-9)


def with_folder(task, folder):
    return dataclasses.replace(task, answers=dataclasses.replace(task.answers, run_folder=folder))


def test_tuned_thresholds_decide_predictions(tmp_path):
    task = make(tmp_path, CONTENT, tune_thresholds=True)
    labels = np.array([[1, 0], [0, 1], [0, 0], [0, 1]], np.float32)
    logits = np.array([[-1.0, -3.0], [-2.0, 1.0], [-2.0, 0.5], [-2.0, 2.0]], np.float32)
    dev = Split(task.data.read("train"), {"label_ids": tf.constant(labels)}, np.arange(4))
    assert task.scores(dev, logits) == {"micro_f1": 1.0, "macro_f1": 1.0, "subset_accuracy": 1.0}
    task.write_evaluation(str(tmp_path), dev, logits, 5)
    chosen = json.loads((tmp_path / "thresholds.json").read_text())["thresholds"]
    assert 0.12 < chosen["x"] < 0.27 and 0.62 < chosen["y"] < 0.74
    header, *rows = (tmp_path / "eval_labels.tsv").read_text().splitlines()
    assert header == "label\tthreshold\tprecision\trecall\tf1\texamples"
    assert [row.split("\t")[2:] for row in rows] == [["1.0", "1.0", "1.0", "1"], ["1.0", "1.0", "1.0", "2"]]
    plain = make(tmp_path, CONTENT)
    assert plain.scores(dev, logits)["subset_accuracy"] == 1.0, "a later evaluation uses them"
    plain = with_folder(plain, "of a sweep, whose best trial predicts")
    plain.write_predictions(str(tmp_path), dev, logits)
    predicted = [row.split("\t")[1] for row in (tmp_path / "test_predictions.tsv").read_text().splitlines()]
    assert predicted == ["labels", '["x"]', '["y"]', "[]", '["y"]']
    plain.check_checkpoint(str(tmp_path), 5)
    task.check_checkpoint(str(tmp_path), 6)  # tunes the thresholds again
    refused("tuned on the checkpoint of step 5, not of step 6", plain.check_checkpoint, str(tmp_path), 6)
    _assert_an_edited_threshold_is_shown_as_it_is(plain, dev, logits, tmp_path)
    for values in ('{"x": 1}', '{"x": 1, "y": 1.5}', '{"x": NaN, "y": 0.5}'):
        (tmp_path / "thresholds.json").write_text(f'{{"step": 5, "thresholds": {values}}}')
        message = r"thresholds.json: is damaged .*evaluate with --tune_thresholds again"
        refused(message, multi_label.THRESHOLDS.read, str(tmp_path), labels=("x", "y"))
    (tmp_path / "thresholds.json").unlink()
    _assert_lost_thresholds_are_refused(plain, task, tmp_path)


def _assert_an_edited_threshold_is_shown_as_it_is(task, dev, logits, folder):
    (folder / "thresholds.json").write_text('{"step": 5, "thresholds": {"x": 0.99, "y": 0.3}}')
    with_folder(task, str(folder)).write_evaluation(str(folder), dev, logits, 5)
    rows = (folder / "eval_labels.tsv").read_text().splitlines()[1:]
    assert [row.split("\t")[1] for row in rows] == ["0.99", "0.3"]
    chosen = multi_label.THRESHOLDS.read(str(folder), labels=("x", "y"))
    multi_label.THRESHOLDS.write(str(folder), chosen, 5, ("x", "y"))
    assert json.loads((folder / "thresholds.json").read_text())["thresholds"] == {"x": 0.99, "y": 0.3}


def _assert_lost_thresholds_are_refused(plain, tuning, folder):
    phase = run_record.TrainingRecord(
        {"tune_thresholds": True}, {}, {}, {"num_train_steps": 5, "num_schedule_steps": 5}
    )
    described = description.describe(plain, 8)
    plain.check_checkpoint(str(folder), 5)  # 0.5 for each label, as without tuning
    (folder / "ckpt-5.index").touch()
    (folder / run_record.NAME).write_text(json.dumps({"phases": [dataclasses.asdict(phase)]}))
    message = r"thresholds.json: no such file.*again with --do_eval --tune_thresholds"
    refused(message, plain.check_checkpoint, str(folder), 5)
    refused(r"thresholds.json: no such file", multi_label.with_thresholds, described, str(folder), 5)
    tuning.check_checkpoint(str(folder), 5)
