"""Reads the questions of a run's splits, and checks that they have the answers that the run needs.

Paper: sections 4.2 and 4.3.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.tasks.example_source import FileSource, Placed
from bert_tf.tasks.questions.squad_file import Question, answer_words, read_questions

_MOST_NAMED = 10


@dataclasses.dataclass(frozen=True)
class QuestionSource(FileSource):
    """Source of questions from files in SQuAD's layout. Several training files are read as one data set.

    Each `Placed` contains a `Question`.

    Attributes:
      data_dir: always "", because every file is named by a flag.
      paths: see `FileSource`.
      has_unanswerable: whether some questions have no answer, as in SQuAD 2.0.
    """

    data_dir: str = ""
    paths: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    has_unanswerable: bool = False

    def read_file(self, path: str, split: str) -> list[Placed]:
        """Reads the questions of a file; in a training file, skips the questions that cannot be used for training.

        Raises:
          InputError: the file is invalid (see `squad_file.read_questions`), or lacks answers that the run needs.
        """
        placed = read_questions(path)
        if not self.has_unanswerable:
            placed = [Placed(place, dataclasses.replace(q, is_impossible=False)) for place, q in placed]
        if split == "train":
            return _trainable(path, placed, self.has_unanswerable)
        if split == "dev":
            self._check_dev(path, [question for _, question in placed])
        return placed

    def _read(self, split: str) -> list[Placed]:
        placed = super()._read(split)
        counts = Counter(question.id for _, question in placed)
        if again := [id for id, count in counts.items() if count > 1]:
            logging.warning("%d ids occur in several of the files %s, for example %s; if this is a mistake, remove a "
                            "file", len(again), self.name_of(split), again[0])  # fmt: skip
        return placed

    def _check_dev(self, path: str, questions: Sequence[Question]) -> None:
        for question in questions:
            if question.answers is None:
                raise InputError(
                    f"{path}: question {question.id} has no answers; give --do_predict without --do_eval, or a file "
                    "with answers"
                )
            if not question.answers and not self.has_unanswerable:
                raise InputError(
                    f"{path}: question {question.id} has no answer; give --version_2_with_negative, or --do_predict "
                    "without --do_eval"
                )
        wrong = [q for q in questions if q.answers and not answer_words(q.context, q.answers[0])]
        _warn_of_offsets(path, wrong, len(questions), "do not affect the loss, but count in the metrics")


def _trainable(path: str, placed: Sequence[Placed], has_unanswerable: bool) -> list[Placed]:
    """Returns the questions for training.

    These are the questions whose answer is at its `answer_start`, and the questions without an answer. A warning states
    the number of other questions, and lists up to 10 of their ids.

    Raises:
      InputError: answers are missing, or no answer is at its `answer_start`.
    """
    kept, wrong = [], []
    for place, question in placed:
        if question.answers is None:
            raise InputError(f"{path}: question {question.id} has no answers; training needs answers")
        if not question.answers and not (question.is_impossible and has_unanswerable):
            remedy = "set its is_impossible to true" if has_unanswerable else "give --version_2_with_negative"
            raise InputError(f"{path}: question {question.id} has no answer; {remedy}, or remove the question")
        if question.is_impossible or answer_words(question.context, question.answers[0]):
            kept.append(Placed(place, question))
        else:
            wrong.append(question)
    if not kept:
        hint = _white_space_hint(wrong)
        raise InputError(f"{path}: no answer is at its answer_start; count characters of the context from 0{hint}")
    _warn_of_offsets(path, wrong, len(placed), "are left out of training")
    return kept


def _warn_of_offsets(path: str, wrong: Sequence[Question], total: int, consequence: str) -> None:
    """Warns about questions whose answer is not at its `answer_start`; the message lists up to 10 ids."""
    if wrong:
        named = ", ".join(question.id for question in wrong[:_MOST_NAMED])
        more = f" and {len(wrong) - _MOST_NAMED:,} more" if len(wrong) > _MOST_NAMED else ""
        logging.warning(
            "%s: the answers of %d of %d questions are not at their answer_start and %s: %s%s%s",
            path, len(wrong), total, consequence, named, more, _white_space_hint(wrong),
        )  # fmt: skip


def _white_space_hint(wrong: Sequence[Question]) -> str:
    """Returns advice for answers that are at their `answer_start`, but contain special white space; else ""."""
    answers = [(question.context, question.answers[0]) for question in wrong]
    if not any(
        answer.text.strip() and context.startswith(answer.text, max(answer.start, 0)) for context, answer in answers
    ):
        return ""
    return (
        "; as in the original, an answer with a no-break space or other special white space is not found; replace such "
        "characters with spaces in contexts and answers"
    )
