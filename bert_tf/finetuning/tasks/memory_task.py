"""A task whose examples are in memory: lists of texts and labels."""

import dataclasses
import hashlib
import json
import math
import numbers
from collections.abc import Mapping, Sequence

from bert_tf.finetuning.tasks.classification import ClassificationTask, Example
from bert_tf.finetuning.tasks.reading import READ_AS_IN_THE_PAPER, Reading
from tfrecords.errors import InputError
from tfrecords.flag_parsing import is_utf8

NAME = "texts"


@dataclasses.dataclass(frozen=True)
class MemoryTask(ClassificationTask):
    """A task over lists of texts and labels.

    Attributes:
      splits: "train" and perhaps "dev" to their examples.
      has_pairs: whether there are two texts.
      labels: in the order of their ids; () for a regression.
      reading: see `ClassificationTask`.
    """

    splits: Mapping[str, Sequence[Example]]
    has_pairs: bool
    labels: tuple[str, ...]
    reading: Reading = READ_AS_IN_THE_PAPER
    name: str = NAME
    score_range: tuple[float, float] = (-math.inf, math.inf)

    def files(self, split: str) -> list[str]:
        """Returns no files."""
        return []

    def fingerprint(self, split: str) -> list[str]:
        """Returns the number of examples and a hash of their texts and labels."""
        rows = [(example.text_a, example.text_b, example.label) for example in self.splits[split]]
        return [f"{len(rows):,} examples, {hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]}"]

    def read(self, split: str) -> Sequence[Example]:
        """See `Task`."""
        return self.splits[split]

    @property
    def score_names(self) -> tuple[str, ...]:
        """See `ClassificationTask`."""
        return ("pearson", "spearman") if self.is_regression else ("accuracy", "macro_f1")


def examples_of(texts: Sequence, labels: Sequence | None = None, what: str = "texts") -> list[Example]:
    """Converts texts and labels to examples.

    Args:
      texts: strings, or pairs of strings.
      labels: strings or integers that name classes, or floats to learn; None for texts without labels.
      what: name of the texts in messages.

    Raises:
      InputError: says which text or label is wrong.
    """
    if isinstance(texts, (str, bytes)):
        raise InputError(f"{what}: is one string; give a list of texts")
    texts = list(texts)
    if not texts:
        raise InputError(f"{what}: is empty; give at least one text")
    pairs = [_pair(text, f"{what}[{number}]") for number, text in enumerate(texts)]
    for number, (_, second) in enumerate(pairs):
        if (second is None) != (pairs[0][1] is None):
            raise InputError(f"{what}[{number}]: single texts and pairs are mixed; give all texts in one form")
    if labels is None:
        return [Example(first, second, None) for first, second in pairs]
    if len(labels) != len(texts):
        raise InputError(f"{len(texts)} {what}, but {len(labels)} labels; give one label for each text")
    named = [_label(label, f"the label of {what}[{number}]") for number, label in enumerate(labels)]
    return [Example(*pair, label) for pair, label in zip(pairs, named, strict=True)]


def class_names(labels: Sequence) -> tuple[str, ...]:
    """Returns the sorted names of classes, () where labels are floats.

    Raises:
      InputError: names and numbers are mixed, or there is only one class.
    """
    kinds = {_kind(label) for label in labels}
    if len(kinds) > 1:
        raise InputError(f"the labels mix {' and '.join(sorted(kinds))}; give labels of one kind")
    if kinds == {"floats"}:
        return ()
    names = tuple(str(label).strip() for label in sorted(set(labels)))
    if len(set(names)) < 2:
        raise InputError(f"all labels are {names[0]!r}; a classifier needs at least two classes")
    return tuple(dict.fromkeys(names))


def _kind(label) -> str:
    if isinstance(label, str):
        return "strings"
    return "integers" if isinstance(label, numbers.Integral) else "floats"


def _pair(text, where: str) -> tuple[str, str | None]:
    parts = text if isinstance(text, (tuple, list)) else (text, None)
    if len(parts) != 2 or not isinstance(parts[0], str) or not isinstance(parts[1], (str, type(None))):
        raise InputError(f"{where}: is {text!r:.60}; give a string, or a pair of strings")
    if not all(map(is_utf8, filter(None, parts))):
        raise InputError(f"{where}: has a lone surrogate, which is no character; decode the text as UTF-8")
    return parts[0], parts[1]


def _label(label, where: str) -> str:
    if isinstance(label, str) and label.strip() and is_utf8(label):
        return label.strip()
    if isinstance(label, numbers.Integral):
        return str(label)
    if isinstance(label, numbers.Real) and math.isfinite(label):
        return repr(float(label))
    raise InputError(f"{where} is {label!r:.60}; give a string, an integer, or a finite float")
