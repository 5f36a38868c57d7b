"""Defines two tasks of natural language inference outside of GLUE: SNLI and SciTail. Their test files have labels.

Papers: S. Bowman et al., "A large annotated corpus for learning natural language inference", 2015 (SNLI); T. Khot et
al., "SciTaiL: A Textual Entailment Dataset from Science Question Answering", 2018. OpenAI GPT (Radford et al., 2018)
reports both.
"""

import dataclasses

import numpy as np

from bert_tf.finetuning.task import Split
from bert_tf.tasks.classification.glue_task import GlueTask, SplitFile
from bert_tf.tasks.classification.tsv import ColumnNames

_SPLITS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True)
class LabeledTask(GlueTask):
    """A task whose test files have labels, so there is no server that computes scores."""

    def benchmark_files(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        """Writes nothing."""
        return []


def _splits(pattern: str, columns: ColumnNames, id_column: str | None = None) -> dict[str, tuple[SplitFile, ...]]:
    """Returns the files of a task, which have the same columns in each split.

    Args:
      pattern: name of a split's file, with {} for the split.
      columns: columns of the files.
      id_column: column of the ids.
    """
    folders = ("", "tsv_format/")
    return {
        split: (SplitFile(tuple(folder + pattern.format(split) for folder in folders), columns, id_column),)
        for split in _SPLITS
    }


_SNLI = ColumnNames("sentence1", "sentence2", "gold_label")
_SCITAIL = ColumnNames("0", "1", "2", has_header=False)
TASKS = {
    "SNLI": LabeledTask(
        "SNLI",
        _splits("snli_1.0_{}.txt", _SNLI, "pairID"),
        ("contradiction", "entailment", "neutral"),
        ("accuracy",),
        undecided="-",
    ),
    "SciTail": LabeledTask("SciTail", _splits("scitail_1.0_{}.tsv", _SCITAIL), ("entails", "neutral"), ("accuracy",)),
}
