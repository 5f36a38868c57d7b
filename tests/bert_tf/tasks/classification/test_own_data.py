import csv
import dataclasses
import decimal
import json
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


def settings(task_name="own", data_dir="d", **changes):
    required = {"bert_config_file": "b", "vocab_file": "v", "output_dir": "o", "do_train": True}
    return ClassifierSettings(task_name=task_name, data_dir=str(data_dir), **{**required, **changes})


def write(folder, text, split="train", end="tsv"):
    path = folder / f"{split}.{end}"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_users_file_is_read_by_column_names(tmp_path):
    write(tmp_path, "id\tbody\tkind\ttitle\n1\tlong\tsport \tshort\n2\tb\tart\ta\n3\tc\tsport\td\n")
    write(tmp_path, "title\tbody\nx\ty\n", "test")
    columns = {"text_a_column": "title", "text_b_column": "body", "label_column": "kind"}
    task = find_task(settings("own", tmp_path, **columns))
    assert (task.labels, task.has_pairs) == (("art", "sport"), True)
    assert task.data.read("train") == [
        Example("short", "long", "sport"), Example("a", "b", "art"), Example("d", "c", "sport"),
    ]  # fmt: skip
    assert task.data.read("test") == [Example("x", "y", None)]


def test_reads_columns_by_number_without_header(tmp_path):
    write(tmp_path, "yes\ta b\nno\tc\n")
    task = find_task(settings("OWN", tmp_path, has_header=False, text_a_column="1", label_column="0"))
    assert (task.labels, task.has_pairs) == (("no", "yes"), False)
    assert task.data.read("train") == [Example("a b", None, "yes"), Example("c", None, "no")]


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
    write(tmp_path, "\n".join(rows) + "\n", end=end)
    assert find_task(settings("own", tmp_path)).labels == tuple(map(str, range(12)))


def test_given_labels_come_first(tmp_path):
    write(tmp_path, "text\tlabel\na\tx\nb\ty\n")
    assert find_task(settings("own", tmp_path)).labels == ("x", "y")
    run = tmp_path / "run"
    run.mkdir()
    description.write(str(run), TaskDescription("classification", "own", ("y", "x", "z"), 8, {}))
    assert find_task(settings("own", tmp_path, output_dir=str(run))).labels == ("x", "y"), "nothing was trained"
    (run / "ckpt-3.index").touch()
    assert find_task(settings("own", tmp_path, output_dir=str(run))).labels == ("y", "x", "z")
    named = settings("own", tmp_path, labels="z, y,x", output_dir=str(run))
    assert find_task(named).labels == ("z", "y", "x")
    # with known labels, train.tsv is not needed, because the run may be a prediction elsewhere
    assert find_task(settings("own", tmp_path / "none", labels="0,1")).labels == ("0", "1")


@pytest.mark.parametrize("changes", [{}, {"labels": "x"}])
def test_fewer_than_two_labels_are_refused(tmp_path, changes):
    write(tmp_path, "text\tlabel\na\tx\nb\tx\n")
    with pytest.raises(InputError, match="needs at least two labels but has 1; list them in --labels"):
        find_task(settings("own", tmp_path, **changes))


def own(folder, text, **changes):
    write(folder, text)
    return find_task(settings("own", folder, **changes))


def test_quotes_are_read_as_the_flag_says(tmp_path):
    quoted = 'text\tlabel\n"a ""b"" c"\tx\n"two\tcells\nand lines"\ty\n'
    task = own(tmp_path, quoted, quoted=True)
    assert task.data.read("train") == [Example('a "b" c', None, "x"), Example("two\tcells\nand lines", None, "y")]
    plain = 'text\tlabel\n"a"\tx\n"b"\ty\n'
    with pytest.raises(InputError, match="every text is in double quotes; .* --quoted .*or --noquoted"):
        own(tmp_path, plain)
    assert own(tmp_path, plain, quoted=False).data.read("train")[0].text_a == '"a"'
    assert own(tmp_path, plain + "c\ty\n").data.read("train")[0].text_a == '"a"', "one text without quotes is enough"
    with pytest.raises(InputError, match=r"line 3: has 1 columns.*if cells are in double quotes, give --quoted"):
        own(tmp_path, quoted.replace("\tcells", ""))
    with pytest.raises(InputError, match="line 3: wrong quotes"):
        own(tmp_path, 'text\tlabel\n"a"\tx\n"b" c\tx\n', quoted=True)
    with pytest.raises(InputError, match="line 5: unknown label 'z'"):
        own(tmp_path, quoted + "d\tz\n", quoted=True, labels="x,y").data.read("train")


def test_the_name_of_the_task_is_that_of_the_folder(tmp_path):
    later = {"output_dir": str(tmp_path / "run"), "do_train": False, "do_predict": True}
    with pytest.raises(InputError, match="--task_name is empty, and --output_dir holds no run that names a task"):
        find_task(settings("", tmp_path, **later))
    task = own(tmp_path, "text\tlabel\na\tx\nb\ty\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ckpt-3.index").touch()
    for name in ("own", "your texts", "MRPC"):
        described = dataclasses.replace(description.describe(task, 8), task_name=name)
        description.write(str(tmp_path / "run"), described)
        assert find_task(settings("", tmp_path, **later)).name == name
        with pytest.raises(InputError, match="--task_name=RTE: .*run was trained with .*; leave the flag out"):
            find_task(settings("RTE", tmp_path, **later))
    with pytest.raises(InputError, match="--test_data_path: the task MRPC reads the files in --data_dir"):
        find_task(settings("", "", **later, test_data_path="x.tsv"))


def test_numbers_and_texts_are_not_taken_for_classes(tmp_path):
    numbers = "text\tlabel\n" + "".join(f"a\t{i % 51}\n" for i in range(200))
    with pytest.raises(InputError, match=r"'label' has 51 different values in 200 examples, .*give --regression"):
        own(tmp_path, numbers)
    assert len(own(tmp_path, numbers, labels=",".join(map(str, range(51)))).labels) == 51
    texts = "text\tlabel\n" + "".join(f"a\ta text {i}\n" for i in range(40))
    with pytest.raises(InputError, match="has 40 different values in 40 examples, .*check --label_column"):
        own(tmp_path, texts)


def test_a_users_regression_takes_any_finite_number(tmp_path):
    task = own(tmp_path, "text\tlabel\na\t-1e3\nb\t0.5\n", regression=True)
    assert task.kind == "regression"
    assert [task.answers.target(example.label) for example in task.data.read("train")] == [-1000.0, 0.5]
    assert task.answers.score_names == ("pearson", "spearman", "r_squared")
    with pytest.raises(InputError, match="line 2: the label 'inf' is not a finite number"):
        own(tmp_path, "text\tlabel\na\tinf\n", regression=True)
    for label, message in (
        ("1e31", "line 2: the score 1e.31 is outside"),
        ("x", "line 2: the label 'x' is not a number"),
    ):
        with pytest.raises(InputError, match=message):  # the scale of train uses the same parser
            own(tmp_path, f"text\tlabel\na\t{label}\n", regression=True)
    assert own(tmp_path, "text\tlabel\na\t1600000000\nb\t1600900000\n", regression=True).answers.deviation == 450_000
    with pytest.raises(InputError, match="every score is 3, so there is nothing to learn"):
        own(tmp_path, "text\tlabel\na\t3\nb\t3.0\n", regression=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_dir": ""}, "--data_dir is empty"),
        ({"label_separator": ""}, "leave the flag out for a comma"),
    ],
)
def test_flags_that_contradict_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        settings(**{"task_name": "own", **changes})


ROWS = [('a "quote", and\nlines', "very good"), ("b", "bad"), ("", "bad")]


def test_numbers_of_spreadsheets_are_read(tmp_path):
    numbers = pandas.Series([0.5, 3.25, 1000.0])
    frame = pandas.DataFrame({"text": ["a", "1,5 km", "c"], "label": numbers})
    frame.to_csv(tmp_path / "train.csv", sep=";", decimal=",")
    frame.assign(label=numbers.map(decimal.Decimal)).to_parquet(tmp_path / "dev.parquet")
    task = find_task(settings("own", tmp_path, regression=True, do_eval=True))
    for split in ("train", "dev"):
        examples = task.data.read(split)
        assert [(one.text_a, float(one.label)) for one in examples] == list(zip(frame.text, numbers, strict=True))
    write(tmp_path, "text;label\na;1,2\nb;2\n", end="csv")
    sets = find_task(settings("own", tmp_path, multi_label=True)).data.read("train")
    assert [one.label for one in sets] == [("1", "2"), ("2",)]


def test_the_formats_give_the_same_examples(tmp_path):
    content = {
        "csv": '\ufefftext,label\r\n"a ""quote"", and\nlines",very good\r\nb,"bad"\r\n,bad\r\n\r\n',
        "jsonl": "".join(json.dumps({"label": label, "text": text}) + "\n\n" for text, label in ROWS),
        "json": "\ufeff" + "\r\n".join(json.dumps({"label": label, "text": text, "x": {}}) for text, label in ROWS),
    }
    for end, text in content.items():
        folder = tmp_path / end
        folder.mkdir()
        path = write(folder, text, end=end)
        for changes in ({}, {"data_dir": "", "train_data_path": str(path)}):
            task = find_task(settings(**{"task_name": "own", "data_dir": folder, **changes}))
            assert task.labels == ("bad", "very good")
            assert task.data.read("train") == [Example(text, None, label) for text, label in ROWS], end


def test_a_format_may_be_chosen_by_flag(tmp_path):
    path = write(tmp_path, "text,label\na,x\nb,y\n", end="data")
    with pytest.raises(InputError, match="train.data: the extension is not one of .tsv, .csv, .jsonl, .json, .parquet"):
        find_task(settings("own", "", train_data_path=str(path)))
    assert find_task(settings("own", "", train_data_path=str(path), data_format="csv")).labels == ("x", "y")
    write(tmp_path, "text,label\na,x\nb,y\n", end="csv")
    write(tmp_path, "text\tlabel\na\tz\nb\tw\n", end="tsv")
    assert find_task(settings("own", tmp_path, data_format="tsv")).labels == ("w", "z")


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
    ],
)  # fmt: skip
def test_bad_own_file_is_refused_with_its_path(tmp_path, end, text, message):
    path = write(tmp_path, text, end=end)
    with pytest.raises(InputError, match=message) as refused:
        find_task(settings("own", tmp_path))
    assert str(refused.value).startswith(str(path)) and "\n" not in str(refused.value)


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


def test_labels_of_json_may_be_booleans_and_numbers(tmp_path):
    write(tmp_path, "".join(f'{{"text": "a", "label": {label}}}\n' for label in ("true", 1, 1.0, 0.5)), end="jsonl")
    assert [e.label for e in find_task(settings("own", tmp_path)).data.read("train")] == ["True", "1", "1", "0.5"]


def test_whole_floats_are_integer_labels(tmp_path):
    write(tmp_path, "text,label\na,1\nb,1.0\nc,0.50\nd,v1.0\n", end="csv")
    task = find_task(settings("own", tmp_path, labels="1.0,0.50,v1.0"))
    assert [e.label for e in task.data.read("train")] == ["1", "1", "0.50", "v1.0"]
    write(tmp_path, """text,label\na,"['x', 'y']"\nb,x\n""", end="csv")
    with pytest.raises(InputError, match=r"line 2: the label is the list \['x', 'y'\]; for several labels"):
        find_task(settings("own", tmp_path))


def test_labels_with_commas_come_from_a_file(tmp_path):
    write(tmp_path, 'text,label\na,"red, green"\nb,blue\n', end="csv")
    (tmp_path / "labels").write_text("\ufeffred, green\n\n blue\nnone\n")
    task = find_task(settings("own", tmp_path, label_file=str(tmp_path / "labels")))
    assert task.labels == ("red, green", "blue", "none")


@pytest.mark.parametrize("multi_label", [False, True])
def test_predictions_may_have_the_texts(tmp_path, multi_label):
    given = {"predictions_with_texts": True, "text_b_column": "other", "id_column": "id", "multi_label": multi_label}
    texts = [("a", "b c"), ('"a" b', "tab\tand\nline"), ('say "a"', "")]
    task = own(tmp_path, "text\tother\tlabel\na\tb\tx\nb\tc\ty\n", **given)
    write(tmp_path, "id of it\ttext\tother\nr0\ta\tb c\n", "test")
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
    path = tmp_path / f"ids.{end}"
    path.write_text(text)
    columns = {"text_a_column": "0", "label_column": "1"} if changes else {}
    given = settings("own", tmp_path, test_data_path=str(path), id_column=column, labels="x,y", **columns, **changes)
    assert title_of(find_task(given), tmp_path) == name


def title_of(task, folder):
    examples = task.data.read("test")
    split = Split(examples, {}, np.arange(len(examples)))
    _, path = task.write_predictions(str(folder), split, np.zeros([len(examples), 2], np.float32))
    with open(path, newline="", encoding="utf-8") as file:
        return next(csv.reader(file, delimiter="\t"))[0]


def test_ids_must_be_unique_and_name_the_predictions(tmp_path):
    task = own(tmp_path, "text\tlabel\na\tx\nb\ty\n", id_column="id")  # only test needs ids
    write(tmp_path, "id\ttext\nr1\ta\nr2\tb\n", "test")
    examples = task.data.read("test")
    assert [example.id for example in examples] == ["r1", "r2"]
    task.write_predictions(str(tmp_path), Split(examples, {}, np.arange(2)), np.zeros([2, 2], np.float32))
    lines = (tmp_path / "test_predictions.tsv").read_text().splitlines()
    assert lines[0].startswith("id\tlabel\tprob") and lines[1].startswith("r1\tx\t0.5")


@pytest.mark.parametrize(
    ("end", "content", "line"),
    [
        ("tsv", "id\ttext\n1\ta\n\tb\n", 3),  # its number would be 1
        ("jsonl", '{"id": 1, "text": "a"}\n{"id": null, "text": "b"}\n', 2),
        ("csv", "text\na\nb\n", 2),
    ],
)
def test_an_example_without_an_id_is_named(tmp_path, end, content, line):
    write(tmp_path, content, "test", end)
    task = own(tmp_path, "text\tlabel\na\tx\nb\ty\n", id_column="id")
    with pytest.raises(InputError, match=f"test.{end}, line {line}: has no id in the column 'id'; check --id_column"):
        task.data.read("test")


def predicting(folder, **given):
    """The task of a prediction in the folder of a run that had the ids in the column `id`."""
    write(folder, "text\tlabel\na\tx\nb\ty\n")
    trained = settings("own", folder, id_column="id")
    description.write(str(folder), description.describe(find_task(trained), 8))
    (folder / "ckpt-3.index").touch()
    run_record.write(str(folder), [run_record.TrainingRecord(dataclasses.asdict(trained), {}, {}, {})])
    return find_task(settings("own", folder, output_dir=str(folder), do_train=False, do_predict=True, **given))


@pytest.mark.parametrize(("given", "name"), [({}, "id"), ({"id_column": ""}, "index"), ({"id_column": "text"}, "text")])
def test_a_prediction_takes_the_id_column_of_its_run(tmp_path, given, name):
    write(tmp_path, "text\tid\na\tr1\n", "test")
    assert title_of(predicting(tmp_path, **given), tmp_path) == name


def test_predictions_without_ids_are_numbered(tmp_path, caplog):
    write(tmp_path, "text\na\n", "test")
    task = predicting(tmp_path)
    assert title_of(task, tmp_path) == "index" and [example.id for example in task.data.read("test")] == [None]
    assert "predictions have numbers instead of ids; " in caplog.text
    assert f"test.tsv has no id in the column 'id' of {tmp_path}" in caplog.text


def test_an_evaluation_needs_no_train_file(tmp_path):
    later = {"output_dir": str(tmp_path), "do_train": False, "do_eval": True}
    (tmp_path / "ckpt-3.index").touch()
    train = write(tmp_path, "text\tlabel\na\t0\nb\t1000\nc\t1000\n")
    tasks = [
        find_task(settings("own", tmp_path, regression=True)),
        find_task(settings("own", tmp_path, class_weights="balanced")),
        find_task(settings("own", tmp_path, multi_label=True, label_separator="|", class_weights="0=2,other=1")),
    ]
    train.unlink()
    for task in tasks:
        description.write(str(tmp_path), description.describe(task, 8))
        again = find_task(settings("own", tmp_path, **later))
        assert description.describe(again, 8) == description.describe(task, 8)


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
    with pytest.raises(InputError, match="every example has the label 'x'; add examples of another"):
        checked(tmp_path, [("a", "x")] * 3, labels="x,y")


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


@pytest.mark.parametrize(
    ("text", "message"),
    [("z=1", "unknown label 'z'; the labels are x, y"), ("x=-1", "weight '-1' of 'x' is not"), ("x=nan", "not a fin"),
     ("x", "write balanced, or label=weight"), ("{", "or a JSON object"), ("x=a", "weight 'a' of 'x'"),
     ("y=3", "no weight for x; give a weight for every class, or add other=1 for all other classes")],
)  # fmt: skip
def test_bad_class_weights_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        own(tmp_path, "text\tlabel\na\tx\nb\ty\n", class_weights=text)


def test_scores_of_any_size_are_learned(tmp_path):
    task = own(tmp_path, "text\tlabel\na\t0\nb\t1000\n", regression=True)
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
    write(tmp_path, "text\tlabel\n" + "".join(f"a\t{label}\n" for label in labels))
    assert len(find_task(settings("own", tmp_path)).labels) == len(labels)
    assert ("these classes may be one class in two spellings" in caplog.text) is bool(warned) and warned in caplog.text


def test_a_separator_that_splits_no_cell_is_told(tmp_path, caplog):
    write(tmp_path, "text\tlabel\na\tDrama|War\nb\tWar\nc\tDrama\n")
    find_task(settings("own", tmp_path, multi_label=True))
    assert "no text has two labels; check --label_separator=," in caplog.text


def test_a_decimal_comma_is_a_number_only_in_scores(tmp_path):
    write(tmp_path, "text;label\n1,5;1,2\n2,5;3,4\n", end="csv")
    assert [(one.text_a, one.label) for one in find_task(settings("own", tmp_path)).data.read("train")] == [
        ("1,5", "1,2"), ("2,5", "3,4"),
    ]  # fmt: skip
    scores = find_task(settings("own", tmp_path, regression=True)).data.read("train")
    assert [(one.text_a, one.label) for one in scores] == [("1,5", 1.2), ("2,5", 3.4)]
