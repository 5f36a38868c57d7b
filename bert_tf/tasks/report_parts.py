"""The parts of an evaluation's report. A kind of task creates the parts, and `bert_tf.report` draws them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks import evaluation_file

MOST_ERRORS = 20
_MOST_CHARACTERS = 300
# Column titles for the one or two texts of an example.
TEXTS = ("text", "second text")


@dataclasses.dataclass(frozen=True)
class Table:
    """A table, and optionally a diagram of true and predicted scores."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]  # cells of each row. If there are no rows, only the note is shown.
    note: str = ""
    is_text: bool = False  # whether all columns are text. If false, all columns except the first are numbers.
    scores: Sequence[np.ndarray] = ()  # the true scores and the predicted scores, float [N] each; () for no diagram


@dataclasses.dataclass(frozen=True)
class Confusions:
    """The data of a confusion matrix."""

    truth: np.ndarray  # true labels, [N]
    answers: np.ndarray  # predicted labels, [N]
    labels: Sequence[str]  # names of all C classes


@dataclasses.dataclass(frozen=True)
class Histogram:
    """A diagram of the distributions of groups of values."""

    title: str
    groups: Mapping[str, np.ndarray]  # the values of each group by its name, float [N] each
    what: str  # the name of a value


Part = Table | Confusions | Histogram


def of_lines(parts: Callable[[list[dict], Sequence[str]], list[Part]]) -> Callable:
    """Returns a function for `TaskKind.report` that reads the lines of an evaluation's file.
    `parts`: function that returns the report's parts for the lines and the labels; see `evaluation_file.read`."""

    def report(folder: str, prefix: str, described: TaskDescription) -> list[Part]:
        entries = evaluation_file.read(folder, prefix)
        return parts(entries, described.labels) if entries else []

    return report


def errors(note: str, head: Sequence[str], rows: Sequence[Sequence[str]], what: str = "errors") -> Table:
    """Returns the table of the worst errors; drops the titles in `head` that have no column in `rows`."""
    return Table(f"Worst {what}", head[: len(rows[0])] if rows else head, rows, note, is_text=True)


def worst_choices(
    entries: Sequence[Mapping], names: Sequence[str], text_of: Callable[[Mapping, str], str]
) -> list[Part]:
    """Returns the table of the worst errors.
    `entries`: lines that `evaluation_file.read` returned.
    `names`: the column titles of the right answer and of the predicted answer.
    `text_of`: function that returns the text of an entry's "label" or "prediction"."""
    wrong = [entry for entry in entries if entry["label"] != entry["prediction"]]
    rows = [
        [f"{e['loss']:.3g}", text_of(e, "label"), f"{text_of(e, 'prediction')} ({max(e['probabilities']):.0%})",
         *texts(e)]
        for e in worst(wrong)
    ]  # fmt: skip
    note = f"{len(wrong):,} of {len(entries):,} answers are wrong."
    return [errors(note, ["loss", *names, *TEXTS], rows)]


def worst(entries: Sequence[Mapping]) -> list[Mapping]:
    """Returns the entries with the highest losses, the highest loss first."""
    return sorted(entries, key=lambda entry: -entry["loss"])[:MOST_ERRORS]


def texts(entry: Mapping) -> list[str]:
    return [short(entry[name]) for name in ("text_a", "text_b") if name in entry]


def short(text: str) -> str:
    """Truncates a text to the maximum length of a cell."""
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
