"""The parts of an evaluation's report; a kind of task creates them, and `bert_tf.report` draws them.

Letters: N examples, C classes.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

MOST_ERRORS = 20
_MOST_CHARACTERS = 300
# Column titles for the one or two texts of an example.
TEXTS = ("text", "second text")


@dataclasses.dataclass(frozen=True)
class Table:
    """A table, and optionally a diagram of true and predicted scores, float [N] each.

    The first column is text. The other columns are numbers, or text if `is_text`. Without rows, only the note is shown.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    is_text: bool = False
    scores: Sequence[np.ndarray] = ()


@dataclasses.dataclass(frozen=True)
class Confusions:
    """The data of a confusion matrix: true and predicted labels, [N] each, and the names of all C classes."""

    truth: np.ndarray
    answers: np.ndarray
    labels: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Probabilities of the predictions, float [N], whether the predictions are right, bool [N], and an explanation."""

    confidence: np.ndarray
    is_right: np.ndarray
    note: str = ""


Part = Table | Confusions | Calibration


def errors(note: str, head: Sequence[str], rows: Sequence[Sequence[str]], what: str = "errors") -> Table:
    """Returns the table of the worst errors; rows may have fewer columns than the head."""
    return Table(f"Worst {what}", head[: len(rows[0])] if rows else head, rows, note, is_text=True)


def chosen(entries: Sequence[Mapping], names: Sequence[str], text_of: Callable[[Mapping, str], str]) -> list[Part]:
    """Returns the calibration of predictions with probabilities, and the worst errors.

    Args:
      entries: lines of `evaluation_file`.
      names: column titles for the right and for the predicted answer.
      text_of: function that returns the text of an entry's "label" or "prediction".
    """
    is_right = np.array([entry["label"] == entry["prediction"] for entry in entries])
    confidence = np.array([max(entry["probabilities"]) for entry in entries])
    rows = [
        [f"{e['loss']:.3g}", text_of(e, "label"), f"{text_of(e, 'prediction')} ({max(e['probabilities']):.0%})",
         *texts(e)]
        for e in worst([entry for entry in entries if entry["label"] != entry["prediction"]])
    ]  # fmt: skip
    note = f"{np.sum(~is_right):,} of {len(entries):,} answers are wrong."
    return [Calibration(confidence, is_right), errors(note, ["loss", *names, *TEXTS], rows)]


def worst(entries: Sequence[Mapping]) -> list[Mapping]:
    """Returns the entries with the highest losses."""
    return sorted(entries, key=lambda entry: -entry["loss"])[:MOST_ERRORS]


def texts(entry: Mapping) -> list[str]:
    """Returns the one or two texts of an entry."""
    return [short(entry[name]) for name in ("text_a", "text_b") if name in entry]


def short(text: str) -> str:
    """Truncates a text to the length of a cell."""
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
