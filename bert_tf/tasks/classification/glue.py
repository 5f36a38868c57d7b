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


def _columns(text_a: str, text_b: str = "", label: str = "", id: str = "index") -> dict[str, str]:
    names = {"text_a": text_a, "text_b": text_b, "label": label, "id": id}
    return {name: column for name, column in names.items() if column}


def _files(
    columns: dict[str, str], pattern: str = "{}.tsv", has_header: bool = True, **others: SplitFile
) -> dict[str, tuple[SplitFile, ...]]:
    """Returns the files of the splits, which have the same columns, except for the splits in `others`."""
    names = {split: pattern.format(split) for split in ("train", "dev", "test")}
    files = {split: SplitFile((name, f"tsv_format/{name}"), columns, has_header) for split, name in names.items()}
    return {split: (file,) for split, file in (files | others).items()}


_PAIR = _columns("sentence1", "sentence2", "label")
_MNLI_COLUMNS = _columns("sentence1", "sentence2", "gold_label")
_MNLI = Benchmark(
    "MNLI",
    {
        "train": (SplitFile(("train.tsv",), _MNLI_COLUMNS),),
        "dev": (
            SplitFile(("dev_matched.tsv",), _MNLI_COLUMNS),
            SplitFile(("dev_mismatched.tsv",), _MNLI_COLUMNS, group="mismatched"),
        ),
        "test": (
            SplitFile(("test_matched.tsv",), _MNLI_COLUMNS, submission="MNLI-m"),
            SplitFile(("test_mismatched.tsv",), _MNLI_COLUMNS, group="mismatched", submission="MNLI-mm"),
        ),
    },
    Classes(_NLI, _ACCURACY),
)


def _ax() -> Benchmark:
    """Returns MNLI's task with the diagnostic data as dev and test data. The files of the diagnostic data are in
    --data_dir, in a subfolder, or in a folder beside --data_dir."""
    folders = ("", "../AX/", "../diagnostic/", "AX/", "diagnostic/")
    names = {"dev": ("diagnostic-full.tsv",), "test": ("diagnostic.tsv", "AX.tsv")}
    paths = {split: tuple(folder + name for folder in folders for name in names[split]) for split in names}
    files = _files(
        {},
        train=SplitFile(("train.tsv", "../MNLI/train.tsv", "MNLI/train.tsv"), _MNLI_COLUMNS),
        dev=SplitFile(paths["dev"], _columns("Premise", "Hypothesis", "Label")),
        test=SplitFile(paths["test"], _MNLI_COLUMNS, submission="AX"),
    )
    return dataclasses.replace(_MNLI, splits=files, answers=Classes(_NLI, _MATTHEWS))


TASKS = {
    "CoLA": Benchmark(
        "CoLA",
        _files(_columns("3", label="1"), has_header=False, test=SplitFile(("test.tsv",), _columns("sentence"))),
        Classes(_BINARY, _MATTHEWS),
    ),
    "SST-2": Benchmark("SST-2", _files(_columns("sentence", label="label")), Classes(_BINARY, _ACCURACY)),
    "MRPC": Benchmark("MRPC", _files(_columns("#1 String", "#2 String", "Quality")), Classes(_BINARY, _ACCURACY_F1)),
    "QQP": Benchmark(
        "QQP",
        _files(_columns("question1", "question2", "is_duplicate", "id")),
        Classes(_BINARY, _ACCURACY_F1),
        skips_incomplete=True,  # the published files have a few incomplete lines
    ),
    "STS-B": Benchmark(
        "STS-B",
        _files(_columns("sentence1", "sentence2", "score")),
        Regression(("pearson", "spearman"), 0.0, 5.0),
    ),
    "MNLI": _MNLI,
    "QNLI": Benchmark("QNLI", _files(_columns("question", "sentence", "label")), Classes(_ENTAILMENT, _ACCURACY)),
    "RTE": Benchmark("RTE", _files(_PAIR), Classes(_ENTAILMENT, _ACCURACY)),
    # The paper submits the majority class, because no model was better than the majority class (appendix B.1).
    "WNLI": Benchmark("WNLI", _files(_PAIR), Classes(_BINARY, _ACCURACY), submits_majority=True),
    "AX": _ax(),
}
TASK_NAMES = tuple(TASKS)
# The test files of these tasks have labels.
INFERENCE_TASKS = {
    "SNLI": Benchmark(
        "SNLI",
        _files(_columns("sentence1", "sentence2", "gold_label", "pairID"), "snli_1.0_{}.txt"),
        Classes(_NLI, _ACCURACY),
        undecided="-",
        has_server=False,
    ),
    "SciTail": Benchmark(
        "SciTail",
        _files(_columns("0", "1", "2"), "scitail_1.0_{}.tsv", has_header=False),
        Classes(("entails", "neutral"), _ACCURACY),
        has_server=False,
    ),
}


def task(name: str, data_dir: str) -> ClassificationTask:
    return benchmark_task(TASKS[name], data_dir)
