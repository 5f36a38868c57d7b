"""GLUE's tasks with special files, XNLI, the scores, and the files for GLUE's server."""

import logging
import re

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats
from sklearn import metrics

from bert_tf.core.errors import InputError
from bert_tf.finetuning.description import describe
from bert_tf.finetuning.task import Split
from bert_tf.tasks.classification import glue, scores, xnli
from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.classification.settings import ClassifierSettings
from tests.bert_tf.tasks.classification.glue_files import FILES, MNLI, MNLI_DEV, QQP, XNLI, mnli, write_files, xnli_line
from tests.bert_tf.tasks_of_flags import find_task

EXPECTED = {
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
        path.startswith(str(tmp_path)) and ".." not in path for split in SPLITS for path in task.data.files(split)
    )


SPLITS = ("train", "dev", "test")


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
        ("QQP", "train.tsv", f"{QQP}1\t2\n", ": all 1 lines lack cells or a label"),
        ("QNLI", "dev.tsv", "", ": holds no example"),
        ("XNLI", "multinli/multinli.train.zh.tsv", "premise\thypo\tlabel\na\tb\n", ": all 1 lines lack cells"),
        ("XNLI", "xnli.dev.tsv", XNLI + xnli_line("de", "neutral", "x", "y"), ", which has de"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_by_file_and_line(tmp_path, name, path, text, message):
    write_files(tmp_path, name, **{path: text})
    split = next(split for split in SPLITS if split in path)
    with pytest.raises(InputError, match=re.escape(f"{tmp_path / path}{message}")):
        task_of(name, tmp_path).data.read(split)


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
    with pytest.raises(InputError, match="'xx' is unknown; known are ar, bg"):
        task_of("XNLI", xnli_language="zh,xx")


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
    with pytest.raises(InputError, match="train.tsv: no such file"):
        task_of("WNLI", tmp_path).data.read("test")


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


def cases():
    """Labels and predictions: random, of one class, constant, all wrong, with ties."""
    rng = np.random.default_rng(0)
    for classes in (2, 3):
        for n in (1, 2, 7, 50):
            random = rng.integers(0, classes, n), rng.integers(0, classes, n)
            yield from (random, (random[0], np.zeros(n, int)), (np.ones(n, int), random[1]), (random[0], random[0]))
            yield np.zeros(n, int), np.zeros(n, int)
            yield np.ones(n, int), np.ones(n, int)
            yield np.ones(n, int), np.zeros(n, int)


@pytest.mark.filterwarnings("ignore")
def test_class_scores_equal_scikit_learns():
    for labels, predictions in cases():
        for found in scores_of(labels, predictions):
            assert found["accuracy"] == metrics.accuracy_score(labels, predictions)
            assert found["matthews_correlation"] == pytest.approx(metrics.matthews_corrcoef(labels, predictions))
            if max(labels.max(), predictions.max()) > 1:
                continue
            tp = np.sum((labels == 1) & (predictions == 1))
            wrong = np.sum(labels != predictions)
            assert found["f1"] == pytest.approx(2 * tp / (2 * tp + wrong) if tp + wrong else 0.0)
            tn = len(labels) - wrong - tp
            fp, fn = np.sum(predictions > labels), np.sum(predictions < labels)
            product = float((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
            mcc = (tp * tn - fp * fn) / product**0.5 if product else 0.0
            assert found["matthews_correlation"] == pytest.approx(mcc, abs=1e-12)


def scores_of(labels, predictions):
    """Computes the scores from ids in float32 and float64, as in columns and in tasks."""
    names = ["accuracy", "matthews_correlation"] + (["f1"] if max(labels.max(), predictions.max()) < 2 else [])
    yield scores.compute(names, labels, predictions)
    yield scores.compute(names, labels.astype(np.float32), predictions.astype(np.float64))


def test_correlations_equal_scipys():
    rng = np.random.default_rng(1)
    names = ("pearson", "spearman")
    for n in (2, 3, 50):
        labels, predictions = rng.uniform(0, 5, n), rng.uniform(-1, 7, n)
        ties = np.round(predictions)
        ties[0] = ties[1] + 1  # never constant
        for other in (predictions, ties):
            found = scores.compute(names, labels, other)
            assert found["pearson"] == pytest.approx(stats.pearsonr(labels, other).statistic)
            assert found["spearman"] == pytest.approx(stats.spearmanr(labels, other).statistic)
            ranks = stats.rankdata(labels), stats.rankdata(other)
            assert found["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])
        for constant in (np.full(n, 2.5), np.full(n, 0.0)):
            assert scores.compute(names, labels, constant) == {"pearson": 0.0, "spearman": 0.0}
            assert scores.compute(names, constant, labels) == {"pearson": 0.0, "spearman": 0.0}
    assert scores.compute(names, np.array([1.0]), np.array([3.0])) == {"pearson": 0.0, "spearman": 0.0}


@pytest.mark.parametrize(("name", "logits"), [("RTE", [[1.0, 0], [np.nan, 0]]), ("STS-B", [[1.0], [np.nan]])])
def test_nan_prediction_makes_every_score_nan(name, logits):
    task = task_of(name)
    examples = [Example("a", "b", task.labels[0] if task.labels else "1")] * 2
    found = task.scores(make_split(task, examples), np.array(logits))
    assert list(found) == list(task.answers.score_names) and all(np.isnan(value) for value in found.values())
