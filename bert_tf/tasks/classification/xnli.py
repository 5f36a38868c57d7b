"""Defines the task XNLI, natural language inference in 15 languages. The files have the layout of XNLI's archives.

The training data is machine-translated MultiNLI, with one file per language (XNLI-MT-1.0). The dev data and the
test data are one file each, with all languages (XNLI-1.0).
"""

import dataclasses
import functools
import os
from collections.abc import Sequence

from bert_tf.core.errors import InputError
from bert_tf.finetuning.task_data import TaskData
from bert_tf.tasks.classification.benchmark import Benchmark, SplitFile, benchmark_task
from bert_tf.tasks.classification.classes import Classes
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.classification.tsv import ColumnNames

NAME = "XNLI"
LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
# The translated files spell one label differently.
_SPELLINGS = {"contradictory": "contradiction"}


def xnli_task(languages: str, data_dir: str) -> ClassificationTask:
    """Returns the task for some languages. If there are several languages, each language also has a score of its own.
    `languages`: comma-separated codes, or "all".
    `data_dir`: folder that contains the unpacked archives."""
    codes = LANGUAGES if languages == "all" else tuple(dict.fromkeys(map(str.strip, languages.split(","))))
    for code in codes:
        if code not in LANGUAGES:
            raise InputError(f"--xnli_language={languages}: {code!r} is unknown; known are {', '.join(LANGUAGES)}")
    pairs = ColumnNames("sentence1", "sentence2", "gold_label")
    translated = [f"multinli/multinli.train.{code}.tsv" for code in codes]
    splits = {
        "train": tuple(
            SplitFile((path, f"XNLI-MT-1.0/{path}", os.path.basename(path)), ColumnNames("premise", "hypo", "label"))
            for path in translated
        ),
        "dev": (SplitFile(("xnli.dev.tsv", "XNLI-1.0/xnli.dev.tsv"), pairs, "language"),),
        "test": (SplitFile(("xnli.test.tsv", "XNLI-1.0/xnli.test.tsv"), pairs, "language"),),
    }
    answers = Classes(("contradiction", "entailment", "neutral"), ("accuracy",), spellings=_SPELLINGS)
    benchmark = Benchmark(NAME, splits, answers, skips_incomplete=True, has_server=False, ids_differ=False)
    task = benchmark_task(benchmark, data_dir)
    return dataclasses.replace(task, data=_in_languages(task.data, codes))


def _in_languages(data: TaskData, languages: Sequence[str]) -> TaskData:
    """Returns data with only the dev and test examples in some languages; the id of an example is its language."""

    @functools.cache
    def load(split: str) -> list[Example]:
        examples = data.load(split)
        if split == "train":
            return examples
        there = dict.fromkeys(example.id for example in examples if example.id)
        for language in languages:
            if language not in there:
                found = ", ".join(sorted(there)) or "no column 'language'"
                raise InputError(f"--xnli_language={language}: not in {data.files(split)[0]}, which has {found}")
        kept = [example for example in examples if example.id in languages]
        groups = len(languages) > 1
        return [dataclasses.replace(example, id=None, group=example.id if groups else "") for example in kept]

    def titles(split: str) -> str:
        return data.title(split) if split == "train" else f"{data.title(split)} ({' '.join(languages)})"

    return dataclasses.replace(data, load=load, titles=titles, facts={"xnli_language": list(languages)})
