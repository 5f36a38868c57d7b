"""Warns about doubtful examples: empty texts, dev examples that are also training examples, contradictory labels."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

from absl import logging


class TextExample(Protocol):
    """An example."""

    texts: tuple[str, ...]
    label: Hashable


def warn_of_texts(examples: Mapping[str, Sequence[TextExample]]) -> None:
    """Warns about empty texts, dev examples that are also training examples, and contradictory training labels."""
    for split, of_split in examples.items():
        if empty := sum(not example.texts[0].strip() for example in of_split):
            logging.warning("%s: %d of %d examples have an empty text", split, empty, len(of_split))
    train, dev = examples.get("train", ()), examples.get("dev", ())
    labels: dict[tuple, set] = {}
    for example in train:
        labels.setdefault(example.texts, set()).add(example.label)
    if contradictory := sum(len(of_texts) > 1 for of_texts in labels.values()):
        logging.warning("train: %d texts occur several times with different labels", contradictory)
    if train and (shared := sum(example.texts in labels for example in dev)):
        logging.warning("%d of %d dev examples are also in train, so the dev metrics are too good; remove these "
                        "examples from train or from dev", shared, len(dev))  # fmt: skip
