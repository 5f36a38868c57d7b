"""Defines the tasks of GLUE.

Paper: section 4.1 and appendix B.1.

`TASKS` has an entry for each task, with the task's files, columns, labels and metrics.
"""

import dataclasses

from bert_tf.tasks.classification.glue_task import GlueTask, SplitFile
from bert_tf.tasks.classification.tsv import ColumnNames

_NLI = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")
_BINARY = ("0", "1")


def _splits(
    columns: ColumnNames, index: str = "index", test: ColumnNames | None = None
) -> dict[str, tuple[SplitFile, ...]]:
    """Returns the splits of a task with the files train.tsv, dev.tsv and test.tsv.

    Args:
      columns: columns of train.tsv and dev.tsv.
      index: column of the ids in dev.tsv and test.tsv.
      test: columns of test.tsv; None for the same columns as in `columns`, without the label.
    """
    test = test or dataclasses.replace(columns, label=None)
    return {
        "train": (SplitFile(("train.tsv",), columns),),
        "dev": (SplitFile(("dev.tsv",), columns, index),),
        "test": (SplitFile(("test.tsv",), test, index),),
    }


def _mnli() -> GlueTask:
    columns = ColumnNames("sentence1", "sentence2", "gold_label")
    unlabeled = dataclasses.replace(columns, label=None)
    splits = {
        "train": (SplitFile(("train.tsv",), columns),),
        "dev": (
            SplitFile(("dev_matched.tsv",), columns, "index"),
            SplitFile(("dev_mismatched.tsv",), columns, "index", group="mismatched"),
        ),
        "test": (
            SplitFile(("test_matched.tsv",), unlabeled, "index", submission="MNLI-m"),
            SplitFile(("test_mismatched.tsv",), unlabeled, "index", group="mismatched", submission="MNLI-mm"),
        ),
    }
    return GlueTask("MNLI", splits, _NLI, ("accuracy",))


def _ax() -> GlueTask:
    """Returns MNLI's task with the diagnostic data as dev and test data.

    The files of the diagnostic data are in --data_dir, in a subfolder, or in a folder beside --data_dir.
    """
    folders = ("", "../AX/", "../diagnostic/", "AX/", "diagnostic/")
    names = ("diagnostic.tsv", "AX.tsv")
    full = ColumnNames("Premise", "Hypothesis", "Label")
    splits = {
        "train": (SplitFile(("train.tsv", "../MNLI/train.tsv", "MNLI/train.tsv"), _MNLI.splits["train"][0].columns),),
        "dev": (SplitFile(tuple(f"{folder}diagnostic-full.tsv" for folder in folders), full),),
        "test": (
            SplitFile(
                tuple(folder + name for folder in folders for name in names),
                ColumnNames("sentence1", "sentence2"), "index", submission="AX",
            ),
        ),
    }  # fmt: skip
    return dataclasses.replace(_MNLI, splits=splits, score_names=("matthews_correlation", "accuracy"))


_MNLI = _mnli()
TASKS = {
    "CoLA": GlueTask(
        "CoLA",
        _splits(ColumnNames("3", label="1", has_header=False), test=ColumnNames("sentence")),
        _BINARY,
        ("matthews_correlation", "accuracy"),
    ),
    "SST-2": GlueTask("SST-2", _splits(ColumnNames("sentence", label="label")), _BINARY, ("accuracy",)),
    "MRPC": GlueTask("MRPC", _splits(ColumnNames("#1 String", "#2 String", "Quality")), _BINARY, ("accuracy", "f1")),
    "QQP": GlueTask(
        "QQP",
        _splits(ColumnNames("question1", "question2", "is_duplicate"), "id"),
        _BINARY,
        ("accuracy", "f1"),
        skips_incomplete=True,  # the published files have a few incomplete lines
    ),
    "STS-B": GlueTask(
        "STS-B",
        _splits(ColumnNames("sentence1", "sentence2", "score")),
        (),
        ("pearson", "spearman"),
        score_range=(0.0, 5.0),
    ),
    "MNLI": _MNLI,
    "QNLI": GlueTask("QNLI", _splits(ColumnNames("question", "sentence", "label")), _ENTAILMENT, ("accuracy",)),
    "RTE": GlueTask("RTE", _splits(ColumnNames("sentence1", "sentence2", "label")), _ENTAILMENT, ("accuracy",)),
    # The paper submits the majority class, because no model was better than the majority class (appendix B.1).
    "WNLI": GlueTask(
        "WNLI",
        _splits(ColumnNames("sentence1", "sentence2", "label")),
        _BINARY,
        ("accuracy",),
        submits_majority=True,
    ),
    "AX": _ax(),
}
TASK_NAMES = tuple(TASKS)


def task(name: str, data_dir: str) -> GlueTask:
    """Returns the task with this name for the files in a folder."""
    return dataclasses.replace(TASKS[name], data_dir=data_dir)
