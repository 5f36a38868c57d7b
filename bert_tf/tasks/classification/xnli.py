"""Defines the task XNLI, natural language inference in 15 languages. The files have the layout of XNLI's archives.

The training data is machine-translated MultiNLI, with one file per language (XNLI-MT-1.0). The dev data and the
test data are one file each, with all languages (XNLI-1.0).
"""

import dataclasses
import os
from typing import Any, ClassVar

import numpy as np

from bert_tf.core.errors import InputError
from bert_tf.finetuning.task import Split
from bert_tf.tasks.classification import scores
from bert_tf.tasks.classification.classification_task import Example
from bert_tf.tasks.classification.glue_task import SplitFile
from bert_tf.tasks.classification.inference import LabeledTask
from bert_tf.tasks.classification.tsv import ColumnNames

NAME = "XNLI"
LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
# The translated files spell one label differently.
_SPELLINGS = {"contradictory": "contradiction"}


@dataclasses.dataclass(frozen=True)
class XnliTask(LabeledTask):
    """XNLI in one or several of its languages.

    Attributes:
      languages: codes in `LANGUAGES`. Training reads the data of all these languages. If there are several languages,
        each language also has a score of its own.
    """

    languages: tuple[str, ...] = ()
    ids_differ: ClassVar[bool] = False

    def data_facts(self) -> dict[str, Any]:
        """See `Task`. Adds the languages."""
        return super().data_facts() | {"xnli_language": list(self.languages)}

    def label_value(self, text: str) -> float:
        return super().label_value(_SPELLINGS.get(text, text))

    def read_files(self, split: str) -> list[Example]:
        """Reads the examples in the task's languages.

        Raises:
          InputError: see `GlueTask.read_files`; or the dev file or test file lacks a language.
        """
        examples = super().read_files(split)
        if split == "train":
            return examples
        examples = [dataclasses.replace(example, id=None, group=example.id or "") for example in examples]
        for language in self.languages:
            if not any(example.group == language for example in examples):
                found = ", ".join(sorted({example.group for example in examples} - {""})) or "no column 'language'"
                raise InputError(f"--xnli_language={language}: not in {self.files_of(split)[0]}, which has {found}")
        return [example for example in examples if example.group in self.languages]

    def scores(self, split: Split, predictions: np.ndarray) -> dict[str, float]:
        """Computes the accuracy over all languages; if there are several, also the accuracy of each language."""
        labels, answers = split.columns["label_ids"].numpy(), self.answers(predictions)
        found = scores.compute(self.score_names, labels, answers)
        languages = np.array([example.group for example in split.examples])
        for language in self.languages if len(self.languages) > 1 else ():
            part = scores.compute(self.score_names, labels[languages == language], answers[languages == language])
            found |= {f"{name}_{language}": value for name, value in part.items()}
        return found

    def data_name_of(self, split: str) -> str:
        """Returns the names of the split's files; for dev and test, also returns the languages that are read."""
        files = super().data_name_of(split)
        return files if split == "train" else f"{files} ({' '.join(self.languages)})"


def xnli_task(languages: str, data_dir: str) -> XnliTask:
    """Returns the task for some languages.

    Args:
      languages: comma-separated codes, or "all".
      data_dir: folder that contains the unpacked archives.

    Raises:
      InputError: a language is unknown or is listed twice.
    """
    codes = LANGUAGES if languages == "all" else tuple(code.strip() for code in languages.split(","))
    for code in codes:
        if code not in LANGUAGES:
            raise InputError(f"--xnli_language={languages}: {code!r} is unknown; known are {', '.join(LANGUAGES)}")
    if len(set(codes)) < len(codes):
        raise InputError(f"--xnli_language={languages}: a language is listed twice; remove one")
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
    labels = ("contradiction", "entailment", "neutral")
    return XnliTask(
        NAME, splits, labels, ("accuracy",), skips_incomplete=True, data_dir=data_dir, languages=codes
    )  # fmt: skip
