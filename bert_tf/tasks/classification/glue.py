"""Defines the tasks of GLUE, and two tasks of natural language inference outside of GLUE: SNLI and SciTail.

Papers: section 4.1 and appendix B.1; S. Bowman et al., "A large annotated corpus for learning natural language
inference", 2015 (SNLI); T. Khot et al., "SciTaiL: A Textual Entailment Dataset from Science Question Answering", 2018.
OpenAI GPT (Radford et al., 2018) reports both.

`TASKS` and `INFERENCE_TASKS` have an entry for each task, with the task's files, columns, labels and metrics.
"""

import dataclasses

from bert_tf.tasks.classification.benchmark import Benchmark, SplitFile, benchmark_task
from bert_tf.tasks.classification.classes import Classes
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.regression import Regression

_NLI = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")
_BINARY = ("0", "1")
_ACCURACY, _ACCURACY_F1, _MATTHEWS = ("accuracy",), ("accuracy", "f1"), ("matthews_correlation", "accuracy")


def _columns(text_a: str, text_b: str = "", label: str = "", id: str = "") -> dict[str, str]:
    names = {"text_a": text_a, "text_b": text_b, "label": label, "id": id}
    return {name: column for name, column in names.items() if column}


def _splits(
    text_a: str, text_b: str, label: str, id: str = "index", test: str = "", has_header: bool = True
) -> dict[str, tuple[SplitFile, ...]]:
    """Returns the splits of a task with the files train.tsv, dev.tsv and test.tsv. The test file has no labels, and has
    a header; `test` is its column of texts, "" for `text_a`."""
    return {
        "train": (SplitFile(("train.tsv",), _columns(text_a, text_b, label), has_header),),
        "dev": (SplitFile(("dev.tsv",), _columns(text_a, text_b, label, id), has_header),),
        "test": (SplitFile(("test.tsv",), _columns(test or text_a, text_b, id=id)),),
    }


def _mnli() -> Benchmark:
    unlabeled = _columns("sentence1", "sentence2", id="index")
    columns = unlabeled | {"label": "gold_label"}
    train = _columns("sentence1", "sentence2", "gold_label")
    splits = {
        "train": (SplitFile(("train.tsv",), train),),
        "dev": (
            SplitFile(("dev_matched.tsv",), columns),
            SplitFile(("dev_mismatched.tsv",), columns, group="mismatched"),
        ),
        "test": (
            SplitFile(("test_matched.tsv",), unlabeled, submission="MNLI-m"),
            SplitFile(("test_mismatched.tsv",), unlabeled, group="mismatched", submission="MNLI-mm"),
        ),
    }
    return Benchmark("MNLI", splits, Classes(_NLI, _ACCURACY))


def _ax() -> Benchmark:
    """Returns MNLI's task with the diagnostic data as dev and test data. The files of the diagnostic data are in
    --data_dir, in a subfolder, or in a folder beside --data_dir."""
    folders = ("", "../AX/", "../diagnostic/", "AX/", "diagnostic/")
    names = ("diagnostic.tsv", "AX.tsv")
    full = _columns("Premise", "Hypothesis", "Label")
    splits = {
        "train": (SplitFile(("train.tsv", "../MNLI/train.tsv", "MNLI/train.tsv"), _MNLI.splits["train"][0].columns),),
        "dev": (SplitFile(tuple(f"{folder}diagnostic-full.tsv" for folder in folders), full),),
        "test": (
            SplitFile(
                tuple(folder + name for folder in folders for name in names),
                _columns("sentence1", "sentence2", id="index"), submission="AX",
            ),
        ),
    }  # fmt: skip
    return dataclasses.replace(_MNLI, splits=splits, answers=Classes(_NLI, _MATTHEWS))


_MNLI = _mnli()
TASKS = {
    "CoLA": Benchmark(
        "CoLA",
        _splits("3", "", "1", test="sentence", has_header=False),
        Classes(_BINARY, _MATTHEWS),
    ),
    "SST-2": Benchmark("SST-2", _splits("sentence", "", "label"), Classes(_BINARY, _ACCURACY)),
    "MRPC": Benchmark("MRPC", _splits("#1 String", "#2 String", "Quality"), Classes(_BINARY, _ACCURACY_F1)),
    "QQP": Benchmark(
        "QQP",
        _splits("question1", "question2", "is_duplicate", "id"),
        Classes(_BINARY, _ACCURACY_F1),
        skips_incomplete=True,  # the published files have a few incomplete lines
    ),
    "STS-B": Benchmark(
        "STS-B",
        _splits("sentence1", "sentence2", "score"),
        Regression(("pearson", "spearman"), 0.0, 5.0),
    ),
    "MNLI": _MNLI,
    "QNLI": Benchmark("QNLI", _splits("question", "sentence", "label"), Classes(_ENTAILMENT, _ACCURACY)),
    "RTE": Benchmark("RTE", _splits("sentence1", "sentence2", "label"), Classes(_ENTAILMENT, _ACCURACY)),
    # The paper submits the majority class, because no model was better than the majority class (appendix B.1).
    "WNLI": Benchmark(
        "WNLI",
        _splits("sentence1", "sentence2", "label"),
        Classes(_BINARY, _ACCURACY),
        submits_majority=True,
    ),
    "AX": _ax(),
}
TASK_NAMES = tuple(TASKS)


def _same_columns(
    pattern: str, columns: dict[str, str], id: str = "", has_header: bool = True
) -> dict[str, tuple[SplitFile, ...]]:
    """Returns the files of a task, which have the same columns in each split."""
    paths = {split: pattern.format(split) for split in ("train", "dev", "test")}
    return {
        split: (SplitFile((name, f"tsv_format/{name}"), columns | ({"id": id} if id and split != "train" else {}),
                          has_header),)
        for split, name in paths.items()
    }  # fmt: skip


_SNLI = _columns("sentence1", "sentence2", "gold_label")
_SCITAIL = _columns("0", "1", "2")
# The test files of these tasks have labels.
INFERENCE_TASKS = {
    "SNLI": Benchmark(
        "SNLI",
        _same_columns("snli_1.0_{}.txt", _SNLI, "pairID"),
        Classes(_NLI, _ACCURACY),
        undecided="-",
        has_server=False,
    ),
    "SciTail": Benchmark(
        "SciTail",
        _same_columns("scitail_1.0_{}.tsv", _SCITAIL, has_header=False),
        Classes(("entails", "neutral"), _ACCURACY),
        has_server=False,
    ),
}


def task(name: str, data_dir: str) -> ClassificationTask:
    return benchmark_task(TASKS[name], data_dir)
