"""Reads the questions of a run's splits, and checks that they have the answers that the run needs.

Paper: sections 4.2 and 4.3.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.finetuning.stratified_split import content_of
from bert_tf.finetuning.task_data import TaskData
from bert_tf.rows import Row
from bert_tf.rows.sources import Files
from bert_tf.tasks.questions.squad_file import Question, answer_words, of_row, read_rows

_MOST_NAMED = 10


def question_data(paths: Mapping[str, Sequence[str]], has_unanswerable: bool) -> TaskData:
    """Returns data in files in SQuAD's layout. Several training files are read as one data set.
    `has_unanswerable`: whether some questions have no answer, as in SQuAD 2.0."""

    def parse(file: str, rows: Iterator[Row], split: str, with_labels: bool) -> list[Question]:
        questions = [of_row(place, row, with_labels) for place, row in rows]
        if split == "train":
            return _trainable(file, questions, has_unanswerable)
        if split == "dev":
            _check_dev(file, questions, has_unanswerable)
        return questions

    def warn_of_repeated_ids(split: str, questions: Sequence[Question]) -> Sequence[Question]:
        counts = Counter(question.id for question in questions)
        if again := [id for id, count in counts.items() if count > 1]:
            logging.warning("%d ids occur in several of the files %s, for example %s; if this is a mistake, remove a "
                            "file", len(again), data.title(split), again[0])  # fmt: skip
        return questions

    source = Files("", paths, lambda split: (), lambda path, with_labels: read_rows(path))
    data = TaskData.of(source, parse, strata=_strata)
    return data.then(warn_of_repeated_ids)


def _strata(questions: Sequence[Question]) -> tuple[list[str], list[Hashable]]:
    """Returns the contexts as contents, so that all questions about a context are in the same split."""
    return [content_of(question.context) for question in questions], [q.is_impossible for q in questions]


def _check_dev(path: str, questions: Sequence[Question], has_unanswerable: bool) -> None:
    for question in questions:
        if question.answers is None:
            raise InputError(
                f"{path}: question {question.id} has no answers; give --do_predict without --do_eval, or a file with "
                "answers"
            )
        if not question.answers and not has_unanswerable:
            raise InputError(
                f"{path}: question {question.id} has no answer; give --version_2_with_negative, or --do_predict "
                "without --do_eval"
            )
    wrong = [q for q in questions if q.answers and not answer_words(q.context, q.answers[0])]
    _warn_of_offsets(path, wrong, len(questions), "do not affect the loss, but count in the metrics")


def _trainable(path: str, questions: Sequence[Question], has_unanswerable: bool) -> list[Question]:
    """Returns the questions for training. These are the questions whose answer is at its `answer_start`, and the
    questions without an answer. A warning states the number of other questions, and lists up to 10 of their ids."""
    if not questions:
        return []
    kept, wrong = [], []
    for question in questions:
        if question.answers is None:
            raise InputError(f"{path}: question {question.id} has no answers; training needs answers")
        if not question.answers and not (question.is_impossible and has_unanswerable):
            remedy = "set its is_impossible to true" if has_unanswerable else "give --version_2_with_negative"
            raise InputError(f"{path}: question {question.id} has no answer; {remedy}, or remove the question")
        if not question.answers or answer_words(question.context, question.answers[0]):
            kept.append(question)
        else:
            wrong.append(question)
    if not kept:
        hint = _white_space_hint(wrong)
        raise InputError(f"{path}: no answer is at its answer_start; count characters of the context from 0{hint}")
    _warn_of_offsets(path, wrong, len(questions), "are left out of training")
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
