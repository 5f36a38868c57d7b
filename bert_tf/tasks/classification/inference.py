"""Defines two tasks of natural language inference outside of GLUE: SNLI and SciTail. Their test files have labels.

Papers: S. Bowman et al., "A large annotated corpus for learning natural language inference", 2015 (SNLI); T. Khot et
al., "SciTaiL: A Textual Entailment Dataset from Science Question Answering", 2018. OpenAI GPT (Radford et al., 2018)
reports both.
"""

from bert_tf.tasks.classification.benchmark import Benchmark, SplitFile
from bert_tf.tasks.classification.classes import Classes
from bert_tf.tasks.classification.tsv import ColumnNames

_SPLITS = ("train", "dev", "test")


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
    "SNLI": Benchmark(
        "SNLI",
        _splits("snli_1.0_{}.txt", _SNLI, "pairID"),
        Classes(("contradiction", "entailment", "neutral"), ("accuracy",)),
        undecided="-",
        has_server=False,
    ),
    "SciTail": Benchmark(
        "SciTail",
        _splits("scitail_1.0_{}.tsv", _SCITAIL),
        Classes(("entails", "neutral"), ("accuracy",)),
        has_server=False,
    ),
}
