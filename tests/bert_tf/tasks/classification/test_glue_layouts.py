"""The files of GLUE's tasks, XNLI, SNLI and SciTail, the scores, and the files for GLUE's server."""

import logging
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.description import describe
from bert_tf.finetuning.task import Split
from bert_tf.tasks.classification import glue, scores, xnli
from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.classification.settings import ClassifierSettings
from tests.bert_tf.tasks.classification import glue_files
from tests.bert_tf.tasks.classification.glue_files import FILES, MNLI, MNLI_DEV, QQP, XNLI, mnli, write_files, xnli_line
from tests.bert_tf.tasks_of_flags import find_task
from tests.kit import refused

COLA = [Example('One "quoted word.', None, "1"), Example("Is bad this.", None, "0")]
MRPC = [Example("He came .", "Came he .", "1"), Example("A", "B", "0")]
SST_2 = [Example("charming . ", None, "1"), Example("dull", None, "0")]
STS_B = [("A man.", "The man.", 4.6), ("A", "B", 0.0)]
SCITAIL = [Example("Pluto rotates.", "Pluto turns.", "entails"), Example('A "quote" stays.', "b", "neutral")]
EXPECTED = {
    "CoLA": (COLA, COLA, [Example("Bill left.", None, None, "0"), Example("Who?", None, None, "1")]),
    "MRPC": (MRPC, MRPC, [Example("C 's", "D", None, "0")]),
    "SST-2": (SST_2, SST_2, [Example("uneasy .", None, None, "0")]),
    "STS-B": (
        [Example(*texts) for texts in STS_B],
        [Example(*texts, str(number)) for number, texts in enumerate(STS_B)],
        [Example("C", "D", None, "0")],
    ),
    "SNLI": tuple(
        [Example("a", "b", label, one), Example("a", "b", "neutral", other)]
        for label, one, other in (
            ("contradiction", None, None),
            ("entailment", "0.jpg#0r1n", "2.jpg#0r1n"),
            ("neutral", "0.jpg#0r1n", "2.jpg#0r1n"),
        )
    ),
    "SciTail": (SCITAIL, SCITAIL, SCITAIL),
    "MNLI": (
        [Example('He said " no .', "b", "neutral")],
        [Example("a", "b", "entailment", "0"), Example("c", "d", "contradiction", "0", "mismatched")],
        [Example("e", "f", None, "7"), Example("g", "h", None, "8", "mismatched")],
    ),
    "QNLI": (
        [Example('Who "?', "It .", "not_entailment")],
        [Example("a", "b", "entailment", "5")],
        [Example("c", "d", None, "9")],
    ),
    "RTE": (
        [Example("a", "b", "entailment")],
        [Example("a", "b", "not_entailment", "0")],
        [Example("c", "d", None, "0")],
    ),
    "WNLI": (
        [Example("a", "b", "1"), Example("a", "b", "0"), Example("a", "b", "1")],
        [Example("a", "b", "0", "0")],
        [Example("c", "d", None, "0")],
    ),
    "QQP": ([Example("a", "b", "1")], [Example("a", "b", "0", "4")], [Example("c", "d", None, "0")]),
    "AX": ([Example("a", "b", "neutral")], [Example("a", "b", "contradiction")], [Example("c", "d", None, "0")]),
    "XNLI": ([Example("a", "b", "contradictory")], [Example("a", "b", "entailment")], [Example("c", "d", "neutral")]),
}


def task_of(name, folder="d", **changes):
    required = {"output_dir": "o", "do_train": True}
    return find_task(ClassifierSettings(task_name=name, data_dir=str(folder), **{**required, **changes}))


@pytest.mark.parametrize("name", FILES)
def test_each_task_reads_its_files_in_their_own_layout(tmp_path, name):
    folder = tmp_path / name
    write_files(folder, name)
    task = task_of(name, folder)
    assert (task.data.read("train"), task.data.read("dev"), task.data.read("test")) == EXPECTED[name]
    assert all(
        path.startswith(str(tmp_path)) and ".." not in path
        for split in SPLITS
        for path in task.data.source.files(split)
    )


SPLITS = ("train", "dev", "test")


@pytest.mark.parametrize(
    "task_name, outputs, pairs, label, value, metrics",
    [
        ("cola", 2, False, "1", 1, ["matthews_correlation", "accuracy"]),
        ("Mrpc", 2, True, "0", 0, ["accuracy", "f1"]),
        ("SST-2", 2, False, "1", 1, ["accuracy"]),
        ("sts-b", 1, True, 4.6, 4.6, ["pearson", "spearman"]),
    ],
)
def test_each_task_has_its_labels_and_metrics(task_name, outputs, pairs, label, value, metrics):
    task = task_of(task_name)
    assert (len(task.labels) or 1, task.has_pairs, list(task.answers.score_names)) == (outputs, pairs, metrics)
    assert task.answers.target(label) == value
    assert (task.kind == "regression") == (outputs == 1)


def test_ax_is_a_test_of_mnlis_model():
    assert describe(task_of("AX"), 8) == describe(task_of("MNLI"), 8), "so a run of MNLI predicts it"
    assert "XNLI" not in glue.TASK_NAMES and len(glue.TASK_NAMES) == 10


@pytest.mark.parametrize(
    ("name", "path", "text", "message"),
    [
        ("MNLI", "train.tsv", f"{MNLI}\tlabel1\tgold_label\n" + mnli(0, "a", "b", "neutral", "-"),
         ", line 2: unknown label '-'; the task's labels are contradiction, entailment, neutral"),
        ("MNLI", "dev_mismatched.tsv", MNLI_DEV + mnli(0, "a", "b", *["neutral"] * 6) * 2,
         ", line 3: the id '0' is also the id of line 2; give each example a unique id"),
        ("QQP", "train.tsv", f"{QQP}1\t2\n", ": holds no example; add a line"),
        ("QNLI", "dev.tsv", "", ": holds no example"),
        ("CoLA", "train.tsv", "gj04\t1\t\ta\ngj04\t1\ta\n", ", line 2: has 3 columns, the first line has 4"),
        ("CoLA", "train.tsv", "a\t1\nb\t0\n", ", line 1: there is no column '3'; the file has 2 columns"),
        ("SST-2", "train.tsv", "sentence\tlabel\na\t1\ncaf\udce9\t0\n", ", line 3: not UTF-8"),
        ("SST-2", "train.tsv", "sentence\tsentence\tlabel\na\tb\t1\n",
         ", line 1: 2 columns are named 'sentence'; give the column's number"),
        ("STS-B", "dev.tsv", glue_files.STS_B.replace("4.600", "5.001"), ", line 2: the score 5.001 is outside 0 to 5"),
        ("XNLI", "multinli/multinli.train.zh.tsv", "premise\thypo\tlabel\na\tb\n", ": holds no example; add a line"),
        ("XNLI", "xnli.dev.tsv", XNLI + xnli_line("de", "neutral", "x", "y"), ", which has de"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_by_file_and_line(tmp_path, name, path, text, message):
    write_files(tmp_path, name, **{path: text})
    split = next(split for split in SPLITS if split in path)
    refused(re.escape(f"{tmp_path / path}{message}"), lambda: task_of(name, tmp_path).data.read(split))


def test_an_example_of_glue_may_have_no_id(tmp_path):
    write_files(tmp_path, "MNLI", **{"test_matched.tsv": f"{MNLI}\n" + mnli("", "e", "f") * 2})
    assert [example.id for example in task_of("MNLI", tmp_path).data.read("test")] == [None, None, "8"]


def test_qqp_incomplete_lines_are_counted_and_skipped(tmp_path, caplog):
    text = f"{QQP}1\t1\t2\ta\tb\t1\n2\t1\t2\tmissing\n3\t1\t2\tc\td\t\n4\t1\t2\te\tf\t0\n"
    write_files(tmp_path, "QQP", **{"train.tsv": text})
    with caplog.at_level(logging.WARNING, "absl"):
        assert [e.text_a for e in task_of("QQP", tmp_path).data.read("train")] == ["a", "e"]
    assert f"{tmp_path}/train.tsv: skipped 2 lines that lack cells or a label: line 3, 4" in caplog.text


def test_xnli_reads_several_languages(tmp_path):
    train = "premise\thypo\tlabel\n{}\tb\tneutral\n"
    for code in ("de", "zh"):
        path = tmp_path / f"XNLI-MT-1.0/multinli/multinli.train.{code}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(train.format(code))
    (tmp_path / "XNLI-1.0").mkdir()
    (tmp_path / "XNLI-1.0/xnli.dev.tsv").write_text(FILES["XNLI"]["xnli.dev.tsv"])
    task = task_of("XNLI", tmp_path, xnli_language="zh,de")
    assert [e.text_a for e in task.data.read("train")] == ["zh", "de"]
    dev = task.data.read("dev")
    assert [e.group for e in dev] == ["de", "zh"]
    split = make_split(task, dev)
    right_and_wrong = np.array([[0, 0, 1.0], [1, 0, 0]])
    assert task.scores(split, right_and_wrong) == {"accuracy": 0.5, "accuracy_zh": 0.0, "accuracy_de": 1.0}
    assert task_of("XNLI", xnli_language="all").data.facts == {"xnli_language": list(xnli.LANGUAGES)}
    assert len(xnli.LANGUAGES) == 15
    refused("'xx' is unknown; known are ar, bg", task_of, "XNLI", xnli_language="zh,xx")


def make_split(task, examples):
    labels = [task.answers.target(e.label) if e.label else 0.0 for e in examples]
    return Split(examples, {"label_ids": tf.constant(labels, tf.float32)}, np.arange(len(examples)))


def test_mnli_scores_and_files_of_both_test_sets(tmp_path):
    write_files(tmp_path, "MNLI")
    task = task_of("MNLI", tmp_path)
    dev, test = task.data.read("dev"), task.data.read("test")
    split = make_split(task, dev)
    assert task.scores(split, np.array([[0, 1.0, 0], [0, 1, 0]])) == {"accuracy": 1.0, "accuracy_mismatched": 0.0}
    paths = task.write_predictions(str(tmp_path), make_split(task, test), np.array([[0, 0, 1.0], [0, 1, 0]]))
    assert [path.rpartition("/")[2] for path in paths[2:]] == ["MNLI-m.tsv", "MNLI-mm.tsv"]
    assert (tmp_path / "MNLI-m.tsv").read_text() == "index\tprediction\n7\tneutral\n"
    assert (tmp_path / "MNLI-mm.tsv").read_text() == "index\tprediction\n8\tentailment\n"
    assert len((tmp_path / "test_results.tsv").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "predictions", "content"),
    [
        ("QNLI", [[0.1, 2.0]], "9\tnot_entailment"),
        ("RTE", [[3.0, 2.0]], "0\tentailment"),
        ("QQP", [[0.0, 2.0]], "0\t1"),
        ("AX", [[0.0, 0.0, 2.0]], "0\tneutral"),
        ("WNLI", [[5.0, 2.0]], "0\t1"),  # the majority of train.tsv, not what the model predicts
    ],
)
def test_predictions_for_glues_server(tmp_path, name, predictions, content):
    write_files(tmp_path / name, name)
    task = task_of(name, tmp_path / name)
    task.write_predictions(str(tmp_path), make_split(task, task.data.read("test")), np.array(predictions))
    assert (tmp_path / f"{name}.tsv").read_text() == f"index\tprediction\n{content}\n"


def test_wnli_prediction_requires_training_data(tmp_path):
    write_files(tmp_path, "WNLI")
    (tmp_path / "train.tsv").unlink()
    refused("train.tsv: no such file", task_of("WNLI", tmp_path).data.read, "test")


def test_sts_b_predictions_are_clipped_and_rounded(tmp_path):
    examples = [Example("a", "b", None, str(i)) for i in (4, 2, 9)]
    task, predictions = task_of("STS-B"), np.array([[-0.1], [5.01], [2.34567]], np.float32)
    task.write_predictions(str(tmp_path), make_split(task, examples), predictions)
    assert (tmp_path / "STS-B.tsv").read_text() == "index\tprediction\n4\t0.000\n2\t5.000\n9\t2.346\n"


def test_xnlis_test_file_has_labels_so_it_is_scored(tmp_path):
    write_files(tmp_path, "XNLI")
    task = task_of("XNLI", tmp_path)
    test = task.data.read("test")
    assert task.is_labeled(test) and not task_of("MNLI").is_labeled([Example("a", "b", None)])
    assert task.scores(make_split(task, test), np.array([[0, 0, 1.0]])) == {"accuracy": 1.0}
    assert task.data.title("test") == "xnli.test.tsv (zh)", "other languages are other data"


@pytest.mark.filterwarnings("ignore:A single label")
def test_class_scores_equal_those_computed_by_hand():
    labels, predictions = np.repeat([1, 0, 1, 0], [3, 2, 1, 2]), np.repeat([1, 1, 0, 0], [3, 2, 1, 2])
    f1 = 2 * 3 / (2 * 3 + 2 + 1)
    expected = {
        "accuracy": 5 / 8, "f1": f1, "macro_f1": (f1 + 2 * 2 / (2 * 2 + 1 + 2)) / 2,
        "matthews_correlation": (3 * 2 - 2 * 1) / np.sqrt((3 + 2) * (3 + 1) * (2 + 2) * (2 + 1)),
    }  # fmt: skip
    assert scores.compute(expected, labels, predictions) == pytest.approx(expected)
    # in columns and in tasks, ids are in float32 and float64
    as_floats = scores.compute(expected, labels.astype(np.float32), predictions.astype(np.float64))
    assert as_floats == pytest.approx(expected)
    one_class = scores.compute(["f1", "matthews_correlation"], np.zeros(3), np.zeros(3))
    assert one_class == {"f1": 0.0, "matthews_correlation": 0.0}


def test_correlations_equal_those_computed_by_hand():
    names, labels, predictions = ("pearson", "spearman"), np.array([1.0, 2.5, 3, 5]), np.array([2.0, 2, 1, 9])
    ranks = [1, 2, 3, 4], [2.5, 2.5, 1, 4]
    expected = dict(zip(names, (np.corrcoef(*each)[0, 1] for each in ((labels, predictions), ranks)), strict=True))
    assert scores.compute(names, labels, predictions) == pytest.approx(expected)
    for constant in (np.full(4, 2.5), np.full(4, 0.0)):
        for pair in ((labels, constant), (constant, labels)):
            assert scores.compute(names, *pair) == {"pearson": 0.0, "spearman": 0.0}


@pytest.mark.parametrize(("name", "logits"), [("RTE", [[1.0, 0], [np.nan, 0]]), ("STS-B", [[1.0], [np.nan]])])
def test_nan_prediction_makes_every_score_nan(name, logits):
    task = task_of(name)
    examples = [Example("a", "b", task.labels[0] if task.labels else 1.0)] * 2
    found = task.scores(make_split(task, examples), np.array(logits))
    assert list(found) == list(task.answers.score_names) and all(np.isnan(value) for value in found.values())


@pytest.mark.real
@pytest.mark.parametrize("task_name", ["CoLA", "MRPC", "SST-2", "STS-B", "WNLI"])
def test_real_glue_files_load_line_by_line(data_dir, task_name):
    folder = data_dir / "glue" / task_name
    task = task_of(task_name, folder)
    for split in ("train", "dev", "test"):
        examples = task.data.read(split)
        lines = (folder / f"{split}.tsv").read_bytes().rstrip(b"\n").count(b"\n") + 1
        assert len(examples) == lines - (task_name != "CoLA" or split == "test")
        assert all(example.text_a for example in examples)
        assert {example.text_b is None for example in examples} == {not task.has_pairs}
        assert {example.label is None for example in examples} == {split == "test"}
        if split != "test" and task.kind != "regression":
            assert {example.label for example in examples} == {"0", "1"}
