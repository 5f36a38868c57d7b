"""Reads the questions of a run's splits, and checks that they have the answers that the run needs.

Paper: sections 4.2 and 4.3.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.finetuning.stratified_split import content_of
from bert_tf.finetuning.task_data import TaskData
from bert_tf.tasks.questions.squad_file import Question, answer_words, read_questions
from bert_tf.tasks.split_files import file_data

_MOST_NAMED = 10


def question_data(paths: Mapping[str, Sequence[str]], has_unanswerable: bool) -> TaskData:
    """Returns data in files in SQuAD's layout. Several training files are read as one data set.
    `has_unanswerable`: whether some questions have no answer, as in SQuAD 2.0."""
    read = functools.partial(_read_file, has_unanswerable=has_unanswerable)
    data = file_data("", paths, lambda split: (), read, strata=_strata)

    @functools.cache
    def load(split: str) -> list[Question]:
        questions = data.load(split)
        counts = Counter(question.id for question in questions)
        if again := [id for id, count in counts.items() if count > 1]:
            logging.warning("%d ids occur in several of the files %s, for example %s; if this is a mistake, remove a "
                            "file", len(again), data.title(split), again[0])  # fmt: skip
        return questions

    return dataclasses.replace(data, load=load)


def _strata(questions: Sequence[Question]) -> tuple[list[str], list[Hashable]]:
    """Returns the contexts as contents, so that all questions about a context are in the same split."""
    return [content_of(question.context) for question in questions], [q.is_impossible for q in questions]


def _read_file(path: str, split: str, has_unanswerable: bool) -> list[Question]:
    """Reads the questions of a file; in a training file, skips the questions that cannot be used for training."""
    questions = read_questions(path)
    if split == "train":
        return _trainable(path, questions, has_unanswerable)
    if split == "dev":
        _check_dev(path, questions, has_unanswerable)
    return questions


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
