"""Reads files in SQuAD's layout: articles that consist of paragraphs. A paragraph has a context, questions and answers.

Paper: sections 4.2 and 4.3.
"""

import bisect
import codecs
import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.tasks import tables

# A word of a context. As in google-research/bert, only the white space in this pattern separates words.
_WORD = re.compile("[^ \t\r\n\u202f]+")
# Half of a surrogate pair; it cannot be encoded as UTF-8.
_SURROGATE = re.compile("[\ud800-\udfff]")


class Answer(NamedTuple):
    """An answer: the text, and the index of the text's first character among the characters of the context."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True)
class Question:
    """A question about a context.

    Attributes:
      id: the question's id, which is unique in its file.
      text: the question.
      context: the passage that the question is about.
      answers: the annotators' answers; () for a question without an answer; None if the file lacks answers.
      is_impossible: whether the file marks the question as unanswerable. If the question has no `is_impossible` in
        the file, the value is true if `answers` is ().
      place: where the question is in its file, for messages.
    """

    id: str
    text: str
    context: str
    answers: tuple[Answer, ...] | None
    is_impossible: bool = False
    place: str = dataclasses.field(default="", repr=False, compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that the model reads."""
        return self.context, self.text

    @property
    def label(self) -> Answer | None:
        """The answer for training; None if absent."""
        return self.answers[0] if self.answers and not self.is_impossible else None


class Words(NamedTuple):
    """The words of a context, separated by white space as in google-research/bert.

    Attributes:
      texts: the words.
      starts, ends: range of each word's characters in the context; the end is exclusive.
    """

    texts: tuple[str, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def at(self, character: int) -> int:
        """Returns the index of the last word that begins at or before a character; -1 if there is no such word."""
        return bisect.bisect_right(self.starts, character) - 1


@functools.lru_cache(maxsize=16)
def words_of(context: str) -> Words:
    """Splits a context into words. The result is cached, because the questions of a paragraph share a context."""
    found = list(_WORD.finditer(context))
    return Words(
        tuple(word.group() for word in found),
        tuple(word.start() for word in found),
        tuple(word.end() for word in found),
    )


def answer_words(context: str, answer: Answer) -> tuple[int, int] | None:
    """Returns the indices of the first and the last word that overlap an answer.

    Returns None if these words and the words between them do not contain the answer's text. In this
    comparison, each sequence of white space counts as one space. As in google-research/bert, an answer with a no-break
    space or other special white space is not found.
    """
    last = answer.start + len(answer.text) - 1
    if not answer.text.strip() or answer.start < 0 or last >= len(context):
        return None
    words = words_of(context)
    first, end = words.at(answer.start), words.at(last)
    touched = " ".join(words.texts[max(first, 0) : end + 1])
    return (first, end) if first >= 0 and " ".join(answer.text.split()) in touched else None


def read_questions(path: str) -> list[Question]:
    """Reads the questions of a file.

    Raises:
      InputError: the file is missing, is not JSON, lacks a key, or has no questions.
    """
    questions = []
    for number, article in enumerate(_list(_parsed(path), "data", path)):
        place = f"{path}, data[{number}]"
        for at, paragraph in enumerate(_list(article, "paragraphs", place)):
            questions += _questions_of(paragraph, f"{place}.paragraphs[{at}]")
    if not questions:
        raise InputError(f"{path}: holds no question; give each paragraph its questions in 'qas'")
    return questions


def _parsed(path: str) -> Any:
    tables.require_file(path)
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    if not content.removeprefix(codecs.BOM_UTF8).strip():
        raise InputError(f"{path}: is empty; give a file in SQuAD's layout")
    tables.refuse_binary(path, content)
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise tables.not_utf8(path, error) from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: is not JSON ({error}); give a file in SQuAD's layout") from error


def _questions_of(paragraph: Any, place: str) -> list[Question]:
    context = _text(paragraph, "context", place)
    found = []
    for number, entry in enumerate(_list(paragraph, "qas", place)):
        where = f"{place}.qas[{number}]"
        id_ = _id(entry, where)
        where = f"{where} (id {id_})"
        answers = _answers(entry, where) if "answers" in entry else None
        is_impossible = entry.get("is_impossible", answers == ())
        if answers is None and entry.get("is_impossible"):
            answers = ()
        found.append(Question(id_, _text(entry, "question", where), context, answers, is_impossible, where))
    return found


def _answers(entry: Mapping, where: str) -> tuple[Answer, ...]:
    answers = []
    for number, answer in enumerate(_list(entry, "answers", where)):
        place = f"{where}.answers[{number}]"
        start = _member(answer, "answer_start", place)
        if not isinstance(start, int) or isinstance(start, bool):
            raise InputError(f"{place}: answer_start is {start!r}; it must be a whole number")
        answers.append(Answer(_text(answer, "text", place), start))
    return tuple(answers)


def _id(entry: Any, where: str) -> str:
    """Returns the id of a question as a string; some annotation tools write ids as numbers."""
    id_ = _member(entry, "id", where)
    return str(id_) if isinstance(id_, int) and not isinstance(id_, bool) else _text(entry, "id", where)


def _member(entry: Any, key: str, place: str) -> Any:
    if not isinstance(entry, dict) or key not in entry:
        raise InputError(f"{place}: the key {key!r} is missing; the file must have SQuAD's layout")
    return entry[key]


def _list(entry: Any, key: str, place: str) -> list:
    value = _member(entry, key, place)
    if not isinstance(value, list):
        raise InputError(f"{place}: {key!r} is {type(value).__name__}, not a list; the file must have SQuAD's layout")
    return value


def _text(entry: Any, key: str, place: str) -> str:
    value = _member(entry, key, place)
    if not isinstance(value, str):
        raise InputError(f"{place}: {key!r} is {type(value).__name__}, not a text; the file must have SQuAD's layout")
    return _SURROGATE.sub("\ufffd", value)
