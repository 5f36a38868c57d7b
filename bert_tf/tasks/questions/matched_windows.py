"""Finds a teacher's logits for the tokens of a student, whose windows and tokens may be others.

Letters: N rows of the student, M rows of the teacher, T tokens of all rows of the student, S row length of the teacher.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.finetuning.task import Split


class _Window(NamedTuple):
    """A row: the number of tokens of its question, and the first and last characters of the tokens of its window."""

    question: int
    starts: np.ndarray
    ends: np.ndarray

    @property
    def begin(self) -> int:
        """The position of the window's first token in the row."""
        return self.question + 2

    @property
    def end(self) -> int:
        return self.begin + len(self.starts)


def matched_logits(split: Split, taught: Split, outputs: np.ndarray, nowhere: float) -> np.ndarray:
    """Returns a teacher's logits for the tokens of a student's rows. A token has the start logit of the teacher's token
    with the same first character, and the end logit of the token with the same last character; a token without a
    counterpart has the logit `nowhere`. The teacher's row is one with all characters of the row, or else all rows with
    some of them. [CLS] means that the answer is not in the row, also for the teacher's tokens outside the row.
    `split`: the student's rows, N.
    `taught`: the teacher's rows of the same questions, M.
    `outputs`: the teacher's logits, float32 [M, S, 2].
    Returns float32 [T, 2], the tokens of one row after another."""
    of_teacher, matched = _windows(taught), []
    firsts = np.searchsorted(taught.example_ids, np.arange(len(split.examples) + 1))
    for example, own in zip(split.example_ids.tolist(), _windows(split), strict=True):
        rows = _teachers_of(own, of_teacher, range(firsts[example], firsts[example + 1]))
        values = np.full((own.end + 1, 2), nowhere, np.float32)
        if rows:
            _copy(values, own, outputs[rows], [of_teacher[row] for row in rows])
        matched.append(values)
    return np.concatenate(matched)


def _windows(split: Split) -> list[_Window]:
    names = ("token_starts", "token_ends")
    starts, ends = (np.split(split.columns[name].values.numpy(), split.columns[name].row_splits.numpy()[1:-1])
                    for name in names)  # fmt: skip
    questions = split.columns["segment_a"].row_lengths().numpy().tolist()
    return list(map(_Window, questions, starts, ends))


def _teachers_of(own: _Window, windows: Sequence[_Window], candidates: Sequence[int]) -> list[int]:
    """Returns the teacher's rows for a row of the student."""
    common = {row: _common(own, windows[row]) for row in candidates}
    best = max(common, key=common.__getitem__, default=None)
    if best is not None and common[best] == own.ends[-1] - own.starts[0]:
        return [best]
    return [row for row, count in common.items() if count > 0]


def _common(own: _Window, other: _Window) -> int:
    """Returns the number of characters that two windows have in common; not above 0 if they are apart."""
    return min(own.ends[-1], other.ends[-1]) - max(own.starts[0], other.starts[0])


def _copy(values: np.ndarray, own: _Window, logits: np.ndarray, others: Sequence[_Window]) -> None:
    for side, name in enumerate(("starts", "ends")):
        of_tokens = np.concatenate([getattr(other, name) for other in others])
        scores = np.concatenate([logits[row, w.begin : w.end, side] for row, w in enumerate(others)])
        characters, places = np.unique(of_tokens, return_inverse=True)
        best = np.full(len(characters), -np.inf, np.float32)
        np.maximum.at(best, places, scores)
        _, here, there = np.intersect1d(getattr(own, name), characters, return_indices=True)
        values[own.begin + here, side] = best[there]
        is_outside = (characters < own.starts[0]) | (characters > own.ends[-1])
        values[0, side] = np.logaddexp.reduce([logits[:, 0, side].min(), *best[is_outside]])
    if len(others) == 1 and own.question == others[0].question:  # both models have low logits there
        values[1 : own.begin] = logits[0, 1 : own.begin]
        values[own.end] = logits[0, others[0].end]
