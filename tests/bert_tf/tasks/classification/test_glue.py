import dataclasses
import re

import pytest

from bert_tf.core.errors import InputError
from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.classification.settings import ClassifierSettings
from tests.bert_tf.tasks_of_flags import find_task

STS_B = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
FILES = {
    "CoLA": {
        "train": 'gj04\t1\t\tOne "quoted word.\ngj04\t0\t*\tIs bad this.\n',
        "test": "index\tsentence\n0\tBill left.\n1\tWho?\n",
    },
    "MRPC": {
        "train": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
        "1\t17\t18\tHe came .\tCame he .\r\n0\t2\t3\tA\tB\r\n",
        "test": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t4\t5\tC 's\tD\n",
    },
    "SST-2": {"train": "sentence\tlabel\ncharming . \t1\ndull\t0", "test": "index\tsentence\n0\tuneasy .\n"},
    "STS-B": {
        "train": f"{STS_B}\tscore\n0\tg\tf\t2012\t00\tnone\tnone\tA man.\tThe man.\t4.600\n"
        "1\tg\tf\t2012\t01\tn\tn\tA\tB\t0\n",
        "test": f"{STS_B}\n0\tg\tf\t2012\t00\tnone\tnone\tC\tD\n",
    },
}
EXPECTED = {
    "CoLA": (
        [Example('One "quoted word.', None, "1"), Example("Is bad this.", None, "0")],
        [Example("Bill left.", None, None, "0"), Example("Who?", None, None, "1")],
    ),
    "MRPC": ([Example("He came .", "Came he .", "1"), Example("A", "B", "0")], [Example("C 's", "D", None, "0")]),
    "SST-2": ([Example("charming . ", None, "1"), Example("dull", None, "0")], [Example("uneasy .", None, None, "0")]),
    "STS-B": ([Example("A man.", "The man.", "4.600"), Example("A", "B", "0")], [Example("C", "D", None, "0")]),
}


def settings(task_name, data_dir="d", **changes):
    required = {"bert_config_file": "b", "vocab_file": "v", "output_dir": "o", "do_train": True}
    return ClassifierSettings(task_name=task_name, data_dir=str(data_dir), **{**required, **changes})


def read(folder, task_name, split="train"):
    return find_task(settings(task_name, folder)).data.read(split)


def write(folder, text, split="train"):
    path = folder / f"{split}.tsv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("task_name", FILES)
def test_each_task_reads_its_files_in_glues_layout(tmp_path, task_name):
    for split, text in (("train", FILES[task_name]["train"]), ("test", FILES[task_name]["test"])):
        write(tmp_path, text, split)
    train, test = EXPECTED[task_name]
    assert read(tmp_path, task_name) == train
    assert read(tmp_path, task_name, "test") == test
    write(tmp_path, FILES[task_name]["train"], "dev")
    dev = read(tmp_path, task_name, "dev")
    assert [dataclasses.replace(example, id=None) for example in dev] == train
    assert [example.id for example in dev] == (["0", "1"] if task_name == "STS-B" else [None, None])


@pytest.mark.parametrize(
    "task_name, outputs, pairs, label, value, metrics",
    [
        ("cola", 2, False, "1", 1, ["matthews_correlation", "accuracy"]),
        ("Mrpc", 2, True, "0", 0, ["accuracy", "f1"]),
        ("SST-2", 2, False, "1", 1, ["accuracy"]),
        ("sts-b", 1, True, "4.600", 4.6, ["pearson", "spearman"]),
    ],
)
def test_each_task_has_its_labels_and_metrics(task_name, outputs, pairs, label, value, metrics):
    task = find_task(settings(task_name))
    assert (len(task.labels) or 1, task.has_pairs, list(task.answers.score_names)) == (outputs, pairs, metrics)
    assert task.answers.target(label) == value
    assert (task.kind == "regression") == (outputs == 1)


@pytest.mark.parametrize(
    "task_name, text, message",
    [
        ("SST-2", "sentence\tlabel\na\t1\nb\tc\t0\n", ", line 3: has 3 columns, the first line has 2"),
        ("CoLA", "gj04\t1\t\ta\ngj04\t1\ta\n", ", line 2: has 3 columns, the first line has 4"),
        ("SST-2", "sentence\tlabel\na\t1\nb\t2\n", ", line 3: unknown label '2'; the task's labels are 0, 1"),
        ("MRPC", FILES["MRPC"]["train"] + "\t1\t2\ta\tb\n", ", line 4: the label is empty; remove the line"),
        ("STS-B", FILES["STS-B"]["train"].replace("4.600", "5.001"), ", line 2: the score 5.001 is outside 0 to 5"),
        (
            "STS-B",
            FILES["STS-B"]["train"].replace("4.600", "nan"),
            ", line 2: the score 'nan' is not a finite number; fix or remove the line",
        ),
        ("SST-2", b"sentence\tlabel\na\t1\ncaf\xe9\t0\n", ", line 3: not UTF-8"),
        ("SST-2", "text\tlabel\na\t1\n", ", line 1: there is no column 'sentence'; the file has text, label"),
        ("CoLA", "a\t1\nb\t0\n", ", line 1: there is no column '3'; the file has 2 columns, counted from 0"),
        (
            "SST-2",
            "sentence\tsentence\tlabel\na\tb\t1\n",
            ", line 1: 2 columns are named 'sentence'; give the column's number",
        ),
        ("SST-2", "sentence\tlabel\n", ": holds no example"),
        ("CoLA", "\n \n", ", line 1: is blank; remove blank lines, and add a line for each text"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_line(tmp_path, task_name, text, message):
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=re.escape(f"{path}{message}")):
        read(tmp_path, task_name)


@pytest.mark.real
@pytest.mark.parametrize("task_name", [*FILES, "WNLI"])
def test_real_glue_files_load_line_by_line(data_dir, task_name):
    folder = data_dir / "glue" / task_name
    task = find_task(settings(task_name, folder))
    for split in ("train", "dev", "test"):
        examples = task.data.read(split)
        lines = (folder / f"{split}.tsv").read_bytes().rstrip(b"\n").count(b"\n") + 1
        assert len(examples) == lines - (task_name != "CoLA" or split == "test")
        assert all(example.text_a for example in examples)
        assert {example.text_b is None for example in examples} == {not task.has_pairs}
        assert {example.label is None for example in examples} == {split == "test"}
        if split != "test" and task.kind != "regression":
            assert {example.label for example in examples} == {"0", "1"}
