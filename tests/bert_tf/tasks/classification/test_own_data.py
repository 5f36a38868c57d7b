import csv
import dataclasses
import decimal
import json
import re
import tempfile

import hypothesis
import numpy as np
import pandas
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.core.errors import InputError
from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.task import Split
from bert_tf.rows import files
from bert_tf.runs import run_record
from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.classification.memory_source import memory_source
from bert_tf.tasks.classification.settings import ClassifierSettings
from tests.bert_tf.tasks.reading import cells
from tests.bert_tf.tasks_of_flags import find_task
from tests.kit import refused, write

XY = "text\tlabel\na\tx\nb\ty\n"
QUOTED = 'text\tlabel\n"a ""b"" c"\tx\n"two\tcells\nand lines"\ty\n'
IN_QUOTES = 'text\tlabel\n"a"\tx\n"b"\ty\n'
AS_NUMBERS = {"has_header": False, "text_a_column": "1", "label_column": "0"}
COLUMNS = {"text_a_column": "title", "text_b_column": "body", "label_column": "kind"}


def settings(task_name="own", data_dir="d", **changes):
    required = {"bert_config_file": "b", "vocab_file": "v", "output_dir": "o", "do_train": True}
    return ClassifierSettings(task_name=task_name, data_dir=str(data_dir), **{**required, **changes})


def own(folder, text=None, end="tsv", **changes):
    """Returns the task of a folder, where `train` has this text."""
    if text is not None:
        write(folder / f"train.{end}", text)
    return find_task(settings("own", folder, **changes))


def scored(*labels):
    return "text\tlabel\n" + "".join(f"a\t{label}\n" for label in labels)


ODD = [('a "quote", and\nlines', "very good"), ("b", "bad"), ("", "bad")]
READ = {
    "columns by name": (
        "tsv", "id\tbody\tkind\ttitle\n1\tlong\tsport \tshort\n2\tb\tart\ta\n", COLUMNS,
        [("short", "long", "sport"), ("a", "b", "art")]),
    "columns by number": ("tsv", "yes\ta b\nno\tc\n", AS_NUMBERS, [("a b", None, "yes"), ("c", None, "no")]),
    "quotes": ("tsv", QUOTED, {"quoted": True}, [('a "b" c', None, "x"), ("two\tcells\nand lines", None, "y")]),
    "quotes of the texts": ("tsv", IN_QUOTES, {"quoted": False}, [('"a"', None, "x"), ('"b"', None, "y")]),
    "one text without quotes": ("tsv", IN_QUOTES + "c\ty\n", {}, [('"a"', None, "x"), ('"b"', None, "y"),
                                                                   ("c", None, "y")]),
    "csv": ("csv", '\ufefftext,label\r\n"a ""quote"", and\nlines",very good\r\nb,"bad"\r\n,bad\r\n\r\n', {},
            [(text, None, label) for text, label in ODD]),
    "jsonl": ("jsonl", "".join(json.dumps({"label": label, "text": text}) + "\n\n" for text, label in ODD), {},
              [(text, None, label) for text, label in ODD]),
    "objects in json": ("json", "\ufeff" + "\r\n".join(json.dumps({"label": label, "text": text, "x": {}})
                                                       for text, label in ODD), {},
                        [(text, None, label) for text, label in ODD]),
    "labels of json": ("jsonl", "".join(f'{{"text": "a", "label": {x}}}\n' for x in ("true", 1, 1.0, 0.5)), {},
                       [("a", None, label) for label in ("True", "1", "1", "0.5")]),
    "whole floats": ("csv", "text,label\na,1\nb,1.0\nc,0.50\nd,v1.0\n", {"labels": "1.0,0.50,v1.0"},
                     [("a", None, "1"), ("b", None, "1"), ("c", None, "0.50"), ("d", None, "v1.0")]),
    "commas in classes": ("csv", "text;label\n1,5;1,2\n2,5;3,4\n", {}, [("1,5", None, "1,2"), ("2,5", None, "3,4")]),
    "decimal commas": ("csv", "text;label\n1,5;1,2\n2,5;3,4\n", {"regression": True},
                       [("1,5", None, 1.2), ("2,5", None, 3.4)]),
    "sets with commas": ("csv", "text;label\na;1,2\nb;2\n", {"multi_label": True},
                         [("a", None, ("1", "2")), ("b", None, ("2",))]),
    "scores": ("tsv", scored("-1e3", "0.5"), {"regression": True}, [("a", None, -1000.0), ("a", None, 0.5)]),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_users_file_is_read(tmp_path, name):
    end, text, changes, expected = READ[name]
    path = write(tmp_path / f"train.{end}", text)
    for source in ({"data_dir": tmp_path}, {"data_dir": "", "train_data_path": path}):
        task = find_task(settings(**changes, **source))
        assert [(one.text_a, one.text_b, one.label) for one in task.data.read("train")] == expected
    if isinstance(expected[0][2], str) and not changes.keys() & {"labels", "regression"}:
        assert task.labels == tuple(sorted({label for _, _, label in expected}))


def test_numbers_of_spreadsheets_are_read(tmp_path):
    numbers = pandas.Series([0.5, 3.25, 1000.0])
    frame = pandas.DataFrame({"text": ["a", "1,5 km", "c"], "label": numbers})
    frame.to_csv(tmp_path / "train.csv", sep=";", decimal=",")
    frame.assign(label=numbers.map(decimal.Decimal)).to_parquet(tmp_path / "dev.parquet")
    task = own(tmp_path, regression=True, do_eval=True)
    for split in ("train", "dev"):
        examples = task.data.read(split)
        assert [(one.text_a, float(one.label)) for one in examples] == list(zip(frame.text, numbers, strict=True))


def test_a_test_file_has_the_columns_without_labels(tmp_path):
    write(tmp_path / "test.tsv", "title\tbody\nx\ty\n")
    assert own(tmp_path, **COLUMNS, labels="0,1").data.read("test") == [Example("x", "y", None)]


@pytest.mark.parametrize("end", ["csv", "jsonl", "python"])
def test_classes_that_are_numbers_are_ordered_by_value(end, tmp_path):
    """So a model with twelve unnamed outputs keeps the meaning of its outputs."""
    numbers = [*range(11, -1, -1), *range(12)]
    if end == "python":
        texts = memory_source([f"text {number}" for number in numbers], list(map(str, numbers)), None)
        assert texts.data.source.class_names() == tuple(map(str, range(12)))
        return
    rows = [json.dumps({"text": f"text {number}", "label": number}) for number in numbers]
    rows = rows if end == "jsonl" else ["text,label", *(f"text {number},{number}" for number in numbers)]
    assert own(tmp_path, "\n".join(rows) + "\n", end).labels == tuple(map(str, range(12)))


def test_given_labels_come_first(tmp_path):
    assert own(tmp_path, XY).labels == ("x", "y")
    run = str(tmp_path / "run")
    (tmp_path / "run").mkdir()
    description.write(run, TaskDescription("classification", "own", ("y", "x", "z"), 8, {}))
    assert own(tmp_path, output_dir=run).labels == ("x", "y"), "nothing was trained"
    (tmp_path / "run/ckpt-3.index").touch()
    assert own(tmp_path, output_dir=run).labels == ("y", "x", "z")
    assert own(tmp_path, output_dir=run, labels="z, y,x").labels == ("z", "y", "x")
    # with known labels, train.tsv is not needed, because the run may be a prediction elsewhere
    assert own(tmp_path / "none", labels="0,1").labels == ("0", "1")
    named = write(tmp_path / "labels", "\ufeffred, green\n\n blue\nnone\n")
    assert own(tmp_path / "none", label_file=str(named)).labels == ("red, green", "blue", "none")


def test_the_name_of_the_task_is_that_of_the_folder(tmp_path):
    later = {"output_dir": str(tmp_path / "run"), "do_train": False, "do_predict": True}

    def found(name="", folder=tmp_path, **more):
        return find_task(settings(name, folder, **later, **more))

    refused("--task_name is empty, and --output_dir holds no run that names a task", found)
    task = own(tmp_path, XY)
    write(tmp_path / "run/ckpt-3.index", "")
    for name in ("own", "your texts", "MRPC"):
        described = dataclasses.replace(description.describe(task, 8), task_name=name)
        description.write(str(tmp_path / "run"), described)
        assert found().name == name
        refused("--task_name=RTE: .*run was trained with .*; leave the flag out", found, "RTE")
    refused("--test_data_path: the task MRPC reads the files in --data_dir", found, "", "", test_data_path="x.tsv")


def test_a_users_regression_takes_any_finite_number(tmp_path):
    task = own(tmp_path, scored("1600000000", "1600900000"), regression=True)
    assert task.kind == "regression" and task.answers.deviation == 450_000
    assert task.answers.score_names == ("pearson", "spearman", "r_squared")


def test_a_format_may_be_chosen_by_flag(tmp_path):
    path = str(write(tmp_path / "train.data", "text,label\na,x\nb,y\n"))
    message = "train.data: the extension is not one of .tsv, .csv, .jsonl, .json, .parquet"
    refused(message, own, "", train_data_path=path)
    assert own("", train_data_path=path, data_format="csv").labels == ("x", "y")
    write(tmp_path / "train.csv", "text,label\na,x\nb,y\n")
    assert own(tmp_path, "text\tlabel\na\tz\nb\tw\n", data_format="tsv").labels == ("w", "z")


@pytest.mark.parametrize(
    ("end", "text", "message"),
    [
        ("csv", "text,label\na,b,x\n", "line 2: has 3 columns, .*separate columns by single commas.*double quotes"),
        ("csv", 'text,label\n"a,x\n', "line 2: wrong quotes"),
        ("csv", "text;label\na;b;x\n", "line 2: has 3 columns, .*separate columns by single semicolons.*double quotes"),
        ("csv", "great film,1\n,0\n", "no column 'text'; the file has great film, 1; name the columns of your data"),
        ("csv", "text,label\na,\n", "line 2: the label is empty"),
        ("parquet", "text,label\na,\n", "is not a Parquet file, or is damaged"),
        ("csv", 'text,label\na,"x\ny"\n', r"line 2: the label 'x.ny' has the character U.000A"),
        ("csv", "text,label\n\n\n", "holds no example"),
        ("csv", "text,label\na,x\n".encode("utf-16"), "is UTF-16, not UTF-8; convert it"),
        ("csv", b"PK\x03\x04\x14\x00\x08\x00\n\xff", "is a workbook .*; save its text or table as UTF-8"),
        ("tsv", b"\xd0\xcf\x11\xe0\xa1\n", "is an Excel workbook or .*; save its text or table as UTF-8"),
        ("jsonl", '{"text": "a", "label": null}\n', "line 1: the label is empty; remove the line"),
        ("jsonl", '{"text": "a", "label": "x"}\n{"text": "a", "labels": "x"}\n', "line 2: .*no field 'label'"),
        ("jsonl", '{"text": 3, "label": "x"}\n', "line 1: the text is a number, not a string"),
        ("jsonl", '{"text": "a", "label": ["x"]}\n', "line 1: the label is a list.*give --multi_label"),
        ("jsonl", '{"text": "a", "label": 1e999}\n', "line 1: the label is a number beyond float64"),
        ("jsonl", '{"text": "\\ud800", "label": 1}\n', "line 1: has half of a surrogate pair"),
        ("jsonl", '{"text": "a", "label": 1}\n{"text": \n', "line 2: is not JSON"),
        ("json", '[["a", 1]]', "line 1: is a list, not an object; write one object per line"),
        ("json", '{\n  "text": "a"\n}\n', "line 1: there is no field 'label'; the line has text"),
        ("tsv", "\n \n\n", "line 1: is blank; remove blank lines"),
        ("tsv", '"text"\t"label"\na\tb\n', r"no column 'text'; .*; if cells are in double quotes, give --quoted"),
        ("tsv", "text,label\na\tb\n", "the file has text,label; separate columns by tabs, not commas"),
        ("tsv", "\ntext\tlabel\na\tx\n", "line 1: is blank; remove blank lines"),
        ("csv", "text,label\na,\"['x', 'y']\"\n", r"line 2: the label is the list \['x', 'y'\]; for several labels"),
        ("tsv", IN_QUOTES, "every text is in double quotes; .* --quoted .*or --noquoted"),
        ("tsv", QUOTED.replace("\tcells", ""), r"line 3: has 1 columns.*if cells are in double quotes, give --quoted"),
    ],
)  # fmt: skip
def test_bad_own_file_is_refused_with_its_path(tmp_path, end, text, message):
    refused(f"^{re.escape(str(tmp_path / 'train'))}.{end}.*{message}", own, tmp_path, text, end)


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        (scored("x", "x"), {}, "needs at least two labels but has 1; list them in --labels"),
        (XY, {"labels": "x"}, "needs at least two labels but has 1; list them in --labels"),
        (QUOTED + "d\tz\n", {"quoted": True, "labels": "x,y"}, "line 5: unknown label 'z'"),
        ('text\tlabel\n"a"\tx\n"b" c\tx\n', {"quoted": True}, "line 3: wrong quotes"),
        (scored(*(i % 51 for i in range(200))), {}, "'label' has 51 different values in 200 examples, .*--regression"),
        (scored(*(f"a text {i}" for i in range(40))), {}, "has 40 different values in 40 .*check --label_column"),
        (scored("inf"), {"regression": True}, "line 2: the label 'inf' is not a finite number"),
        (scored("1e31"), {"regression": True}, "line 2: the score 1e.31 is outside"),
        (scored("x"), {"regression": True}, "line 2: the label 'x' is not a number"),
        (scored("3", "3.0"), {"regression": True}, "every score is 3, so there is nothing to learn"),
        (XY, {"data_dir": ""}, "--data_dir is empty"),
        (XY, {"label_separator": ""}, "leave the flag out for a comma"),
        (XY, {"class_weights": "z=1"}, "unknown label 'z'; the labels are x, y"),
        (XY, {"class_weights": "x=-1"}, "weight '-1' of 'x' is not"),
        (XY, {"class_weights": "x=nan"}, "not a fin"),
        (XY, {"class_weights": "x"}, "write balanced, or label=weight"),
        (XY, {"class_weights": "{"}, "or a JSON object"),
        (XY, {"class_weights": "x=a"}, "weight 'a' of 'x'"),
        (XY, {"class_weights": "y=3"}, "no weight for x; give a weight for every class, or add other=1 for all other"),
    ],
)  # fmt: skip
def test_flags_that_do_not_fit_the_file_are_refused(tmp_path, text, changes, message):
    write(tmp_path / "train.tsv", text)
    refused(message, lambda: find_task(settings(**{"data_dir": tmp_path, **changes})).data.read("train"))


CELLS = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(st.tuples(CELLS, st.sampled_from(["x", "a, b", "ü"])), min_size=1, max_size=5))
@hypothesis.example([(" a", "x"), (" ", "x")])
@hypothesis.settings(deadline=None, max_examples=60)
def test_any_text_survives_csv_and_json_lines(rows):
    """Only spaces at the beginning of a CSV cell without quotes are removed."""
    with tempfile.TemporaryDirectory() as folder:
        for name, quoting in (("a.csv", csv.QUOTE_ALL), ("b.csv", csv.QUOTE_MINIMAL)):
            with open(f"{folder}/{name}", "w", encoding="utf-8", newline="") as file:
                csv.writer(file, quoting=quoting).writerows([("text", "label"), *rows])
        with open(f"{folder}/a.jsonl", "w", encoding="utf-8") as file:
            file.writelines(
                json.dumps({"text": text, "label": label}, ensure_ascii=False) + "\n" for text, label in rows
            )
        found = {}
        for name in ("a.csv", "b.csv", "a.jsonl"):
            found[name] = cells(f"{folder}/{name}", "text", "label")
        assert found["a.csv"] == found["a.jsonl"] == rows
        without = [[(text.lstrip(" "), label) for text, label in side] for side in (found["b.csv"], rows)]
        assert without[0] == without[1]


@given(st.binary(max_size=60), st.sampled_from(list(files.EXTENSIONS)), st.booleans())
@hypothesis.settings(deadline=None, max_examples=150)
def test_any_bytes_are_read_or_refused_in_one_line(content, name, quoted):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/a", "wb") as file:
            file.write(b"text,label\n" + content if name == "csv" else content)
        try:
            cells(f"{folder}/a", "text", format=name, quoted=quoted)
        except InputError as error:
            assert str(error).startswith(f"{folder}/a") and len(str(error).splitlines()) == 1


@pytest.mark.parametrize("multi_label", [False, True])
def test_predictions_may_have_the_texts(tmp_path, multi_label):
    given = {"predictions_with_texts": True, "text_b_column": "other", "id_column": "id", "multi_label": multi_label}
    texts = [("a", "b c"), ('"a" b', "tab\tand\nline"), ('say "a"', "")]
    task = own(tmp_path, labels="x,y", **given)
    split = Split([Example(*pair, None, f"r{n}") for n, pair in enumerate(texts)], {}, np.arange(3))
    task.write_predictions(str(tmp_path), split, np.zeros([3, 2], np.float32))
    with open(tmp_path / "test_predictions.tsv", newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file, delimiter="\t")
    assert header[0] == "id" and header[-2:] == ["text_a", "text_b"]
    assert [tuple(row[-2:]) for row in rows] == texts and [row[0] for row in rows] == ["r0", "r1", "r2"]


@pytest.mark.parametrize(
    ("end", "text", "column", "changes", "name"),
    [
        ("tsv", " key \ttext\nr1\ta\n", "key", {}, "key"),
        ("csv", 'text,"the\nkey"\na,r1\n', "the\nkey", {}, "the\nkey"),
        ("tsv", "a\tr1\n", "1", {"has_header": False}, "index"),
        ("tsv", "text\na\n", "", {}, "index"),
    ],
)
def test_predictions_name_the_ids_as_the_flag_does(tmp_path, end, text, column, changes, name):
    path = str(write(tmp_path / f"ids.{end}", text))
    columns = {"text_a_column": "0", "label_column": "1"} if changes else {}
    task = own(tmp_path, test_data_path=path, id_column=column, labels="x,y", **columns, **changes)
    assert header_of(task, tmp_path)[0] == name


def header_of(task, folder):
    """Predicts the test file; returns the first line of the predictions."""
    examples = task.data.read("test")
    split = Split(examples, {}, np.arange(len(examples)))
    _, path = task.write_predictions(str(folder), split, np.zeros([len(examples), 2], np.float32))
    with open(path, newline="", encoding="utf-8") as file:
        return next(csv.reader(file, delimiter="\t"))


@pytest.mark.parametrize(
    ("end", "content", "line"),
    [
        ("tsv", "id\ttext\n1\ta\n\tb\n", 3),  # its number would be 1
        ("jsonl", '{"id": 1, "text": "a"}\n{"id": null, "text": "b"}\n', 2),
        ("csv", "text\na\nb\n", 2),
    ],
)
def test_an_example_without_an_id_is_named(tmp_path, end, content, line):
    write(tmp_path / f"test.{end}", content)
    task = own(tmp_path, XY, id_column="id")  # only test needs ids
    refused(f"test.{end}, line {line}: has no id in the column 'id'; check --id_column", task.data.read, "test")


def predicting(folder, **given):
    """The task of a prediction in the folder of a run that had the ids in the column `id`."""
    trained = settings("own", folder, id_column="id")
    description.write(str(folder), description.describe(own(folder, XY, id_column="id"), 8))
    write(folder / "ckpt-3.index", "")
    run_record.write(str(folder), [run_record.TrainingRecord(dataclasses.asdict(trained), {}, {}, {})])
    return own(folder, output_dir=str(folder), do_train=False, do_predict=True, **given)


@pytest.mark.parametrize(("given", "name"), [({}, "id"), ({"id_column": ""}, "index"), ({"id_column": "text"}, "text")])
def test_a_prediction_takes_the_id_column_of_its_run(tmp_path, given, name):
    write(tmp_path / "test.tsv", "text\tid\na\tr1\n")
    assert header_of(predicting(tmp_path, **given), tmp_path)[0] == name


def test_predictions_without_ids_are_numbered(tmp_path, caplog):
    write(tmp_path / "test.tsv", "text\na\n")
    task = predicting(tmp_path)
    assert header_of(task, tmp_path)[0] == "index" and [example.id for example in task.data.read("test")] == [None]
    assert "predictions have numbers instead of ids; " in caplog.text
    assert f"test.tsv has no id in the column 'id' of {tmp_path}" in caplog.text


def test_an_evaluation_needs_no_train_file(tmp_path):
    later = {"output_dir": str(tmp_path), "do_train": False, "do_eval": True}
    write(tmp_path / "ckpt-3.index", "")
    train = write(tmp_path / "train.tsv", scored(0, 1000, 1000))
    tasks = [
        own(tmp_path, regression=True),
        own(tmp_path, class_weights="balanced"),
        own(tmp_path, multi_label=True, label_separator="|", class_weights="0=2,other=1"),
    ]
    train.unlink()
    for task in tasks:
        description.write(str(tmp_path), description.describe(task, 8))
        assert description.describe(own(tmp_path, **later), 8) == description.describe(task, 8)


def checked(folder, train, dev=(), **changes):
    task = own(folder, "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in train), **changes)
    splits = {"train": task.data.read("train"), "dev": [Example(text, None, label) for text, label in dev]}
    task.check_examples(splits)


def test_doubtful_examples_are_counted(tmp_path, caplog):
    train = [("a", "x"), ("a", "y"), ("", "x"), ("c", "y")]
    checked(tmp_path, train, [("a", "x"), ("d", "z")], labels="x,y,z")
    assert "train: 1 of 4 examples have an empty text" in caplog.text
    assert "no example of train has the label z; 1 examples of dev have such a label" in caplog.text
    assert "look at macro_f1" not in caplog.text
    checked(tmp_path, [("a", "x")] * 19 + [("b", "y")])
    assert "train: 95.0% of the examples have the label 'x'; look at macro_f1 rather than accuracy" in caplog.text
    refused("every example has the label 'x'; add examples of another", checked, tmp_path, train[:1] * 3, labels="x,y")


def test_class_weights_keep_the_mean_of_the_loss(tmp_path):
    rows = "text\tlabel\n" + "a\tx\n" * 6 + "b\ty\n" * 2
    balanced = own(tmp_path, rows, class_weights="balanced")
    assert balanced.answers.weights == pytest.approx((8 / 12, 2.0))  # n / (C n_c)
    given = own(tmp_path, rows, class_weights="x=1,y=3")
    assert given.answers.weights == pytest.approx((8 / 12, 2.0)), "only the ratio counts"
    assert own(tmp_path, rows, class_weights='{"y": 6, "other": 2}').answers == given.answers
    assert balanced.parameters["class_weights"] == list(balanced.answers.weights)
    assert balanced.answers.score_names == ("macro_f1", "accuracy")
    assert own(tmp_path, rows).answers.score_names == ("accuracy", "macro_f1")
    logits, batch = tf.constant([[0.0, 0.0], [0.0, 0.0]]), {"label_ids": tf.constant([0.0, 1.0])}
    np.testing.assert_allclose(balanced.losses(logits, batch)["loss"], np.log(2) * np.array([8 / 12, 2.0]), rtol=1e-6)


def test_scores_of_any_size_are_learned(tmp_path):
    task = own(tmp_path, scored(0, 1000), regression=True)
    assert (task.answers.mean, task.answers.deviation) == (500.0, 500.0) and task.parameters["mean"] == 500.0
    logits = tf.constant([[1.0], [0.5]])
    batch = {"label_ids": tf.constant([1000.0, 1000.0])}
    np.testing.assert_allclose(task.losses(logits, batch)["loss"], [0.0, 0.25])
    np.testing.assert_allclose(task.prediction(logits, batch), [[1000.0], [750.0]])
    split = Split([Example("a", None, "0")] * 2, {"label_ids": tf.constant([1000.0, 700.0])}, np.arange(2))
    assert task.scores(split, np.array([[1000.0], [700.0]]))["r_squared"] == 1.0


@pytest.mark.parametrize(
    ("labels", "warned"),
    [
        (["Good", "good", "bad"], "'Good' and 'good'"),
        (["caf\u00e9", "cafe\u0301", "bar"], r"'cafe\u0301' and 'caf\xe9'"),
        (["nan", "None", "\\N", "x"], r"None; \N; nan"),
        (["good", "bad"], ""),
    ],
)
def test_doubtful_names_of_classes_are_told(labels, warned, tmp_path, caplog):
    assert len(own(tmp_path, scored(*labels)).labels) == len(labels)
    assert ("these classes may be one class in two spellings" in caplog.text) is bool(warned) and warned in caplog.text


def test_a_separator_that_splits_no_cell_is_told(tmp_path, caplog):
    own(tmp_path, scored("Drama|War", "War", "Drama"), multi_label=True)
    assert "no text has two labels; check --label_separator=," in caplog.text
