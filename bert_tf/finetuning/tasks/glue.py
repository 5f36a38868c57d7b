"""GLUE's tasks.

Paper: section 4.1 and appendix B.1.

A task is a row of a table: where its columns are, what its labels are, how it is scored.
"""

from bert_tf.finetuning.tasks.tsv import Columns
from bert_tf.finetuning.tasks.tsv_task import TsvTask

TASKS = (
    TsvTask(
        "CoLA",
        Columns("3", label="1", has_header=False),
        Columns("sentence"),
        labels=("0", "1"),
        score_names=("matthews_correlation", "accuracy"),
    ),
    TsvTask(
        "MRPC",
        Columns("#1 String", "#2 String", "Quality"),
        Columns("#1 String", "#2 String"),
        labels=("0", "1"),
        score_names=("accuracy", "f1"),
    ),
    TsvTask(
        "SST-2",
        Columns("sentence", label="label"),
        Columns("sentence"),
        labels=("0", "1"),
        score_names=("accuracy",),
    ),
    TsvTask(
        "STS-B",
        Columns("sentence1", "sentence2", "score"),
        Columns("sentence1", "sentence2"),
        labels=(),
        score_names=("pearson", "spearman"),
        score_range=(0.0, 5.0),
    ),
)
TASK_NAMES = tuple(task.name for task in TASKS)
