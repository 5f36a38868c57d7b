"""Defines the task XNLI, natural language inference in 15 languages. The files have the layout of XNLI's archives.

The training data is machine-translated MultiNLI, with one file per language (XNLI-MT-1.0). The dev data and the
test data are one file each, with all languages (XNLI-1.0).
"""

import dataclasses
import os
from collections.abc import Sequence

from bert_tf.core.errors import InputError
from bert_tf.finetuning.task_data import TaskData
from bert_tf.tasks.classification.benchmark import Benchmark, SplitFile, benchmark_task
from bert_tf.tasks.classification.classes import Classes
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.example import Example

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
    pairs = {"text_a": "sentence1", "text_b": "sentence2", "label": "gold_label", "group": "language"}
    machine_translated = {"text_a": "premise", "text_b": "hypo", "label": "label"}
    translated = [f"multinli/multinli.train.{code}.tsv" for code in codes]
    splits = {
        "train": tuple(
            SplitFile((path, f"XNLI-MT-1.0/{path}", os.path.basename(path)), machine_translated) for path in translated
        ),
        "dev": (SplitFile(("xnli.dev.tsv", "XNLI-1.0/xnli.dev.tsv"), pairs),),
        "test": (SplitFile(("xnli.test.tsv", "XNLI-1.0/xnli.test.tsv"), pairs),),
    }
    answers = Classes(("contradiction", "entailment", "neutral"), ("accuracy",), spellings=_SPELLINGS)
    benchmark = Benchmark(NAME, splits, answers, skips_incomplete=True, has_server=False, chosen=" ".join(codes))
    task = benchmark_task(benchmark, data_dir)
    return dataclasses.replace(task, data=_in_languages(task.data, codes))


def _in_languages(data: TaskData, languages: Sequence[str]) -> TaskData:
    """Returns data with only the dev and test examples in some languages. An example is in the group of its language if
    there are several languages."""

    def step(split: str, examples: Sequence[Example]) -> Sequence[Example]:
        if split == "train":
            return examples
        there = dict.fromkeys(example.group for example in examples if example.group)
        for language in languages:
            if language not in there:
                have = ", ".join(sorted(there)) or "no column 'language'"
                raise InputError(f"--xnli_language={language}: not in {data.source.files(split)[0]}, which has {have}")
        chosen = [example for example in examples if example.group in languages]
        return chosen if len(languages) > 1 else [dataclasses.replace(example, group="") for example in chosen]

    return dataclasses.replace(data.then(step), facts={"xnli_language": list(languages)})
