"""Reads files of SQuAD's layout: articles of paragraphs, each a context with questions and their answers.

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
from bert_tf.tasks.example_source import Placed

# The original's white space between the words of a context.
_WORD = re.compile("[^ \t\r\n\u202f]+")
# Half a surrogate pair has no UTF-8.
_SURROGATE = re.compile("[\ud800-\udfff]")


class Answer(NamedTuple):
    """An answer: its text, and the index of its first character in the context."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True)
class Question:
    """A question on a context.

    Attributes:
      id: unique in its file.
      text: the question.
      context: the passage that it is asked of.
      answers: those of the annotators, () for a question without an answer; None if the file does not say.
      is_impossible: whether the file says that there is no answer.
    """

    id: str
    text: str
    context: str
    answers: tuple[Answer, ...] | None
    is_impossible: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """What the model reads."""
        return self.context, self.text

    @property
    def label(self) -> Answer | None:
        """The answer that the model learns; None for none."""
        return self.answers[0] if self.answers and not self.is_impossible else None


class Words(NamedTuple):
    """The words of a context between the original's white space: their texts, and where they begin and end."""

    texts: tuple[str, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def at(self, character: int) -> int:
        """Returns the index of the word at a character or, between two words, of the one before; -1 before all."""
        return bisect.bisect_right(self.starts, character) - 1


@functools.lru_cache(maxsize=16)
def words_of(context: str) -> Words:
    """Splits a context; the questions of a paragraph share the result."""
    found = list(_WORD.finditer(context))
    return Words(
        tuple(word.group() for word in found),
        tuple(word.start() for word in found),
        tuple(word.end() for word in found),
    )


def answer_words(context: str, answer: Answer) -> tuple[int, int] | None:
    """Returns the first and the last word that an answer touches; None if these words do not hold its text.

    White space within the answer is not compared, as in the original.
    """
    last = answer.start + len(answer.text) - 1
    if not answer.text.strip() or answer.start < 0 or last >= len(context):
        return None
    words = words_of(context)
    first, end = words.at(answer.start), words.at(last)
    touched = " ".join(words.texts[max(first, 0) : end + 1])
    return (first, end) if first >= 0 and " ".join(answer.text.split()) in touched else None


def read_questions(path: str) -> list[Placed]:
    """Reads a file: each `Placed` has a `Question`.

    Raises:
      InputError: the file is missing, is not JSON, lacks a key, or holds no question.
    """
    questions = []
    for number, article in enumerate(_list(_parsed(path), "data", path)):
        place = f"{path}, data[{number}]"
        for at, paragraph in enumerate(_list(article, "paragraphs", place)):
            questions += _questions_of(paragraph, f"{place}.paragraphs[{at}]")
    if not questions:
        raise InputError(f"{path}: holds no question; give each paragraph its questions in 'qas'")
    if not any(question.context.strip() for _, question in questions):
        raise InputError(f"{path}: every context is empty; give each paragraph its text in 'context'")
    return questions


def _parsed(path: str) -> Any:
    tables.require_file(path)
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    if not content.removeprefix(codecs.BOM_UTF8).strip():
        raise InputError(f"{path}: is empty; give a file of SQuAD's layout")
    tables.refuse_binary(path, content)
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise tables.not_utf8(path, error) from error
    except json.JSONDecodeError as error:
        raise _not_json(path, error) from error
    except RecursionError as error:
        raise InputError(f"{path}: not SQuAD's layout, but lists within lists") from error


def _not_json(path: str, error: json.JSONDecodeError) -> InputError:
    """Returns the error of a file that is not JSON, or is several JSON texts."""
    begin = error.doc.lstrip("\ufeff \t\r\n")
    if not begin.startswith(("{", "[")):
        return InputError(f"{path}: begins with {begin.split()[0]!r:.40}, not as JSON; give a file of SQuAD's layout")
    if error.msg == "Extra data":
        return InputError(f"{path}, line {error.lineno}: a second JSON text; give one text of SQuAD's layout")
    return InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}, column {error.colno}); copy the file again")


def _questions_of(paragraph: Any, place: str) -> list[Placed]:
    context = _text(paragraph, "context", place)
    found = []
    for number, entry in enumerate(_list(paragraph, "qas", place)):
        where = f"{place}.qas[{number}]"
        id_ = _id(entry, where)
        where = f"{where} (id {id_})"
        answers = _answers(entry, where) if "answers" in entry else None
        is_impossible = entry.get("is_impossible", answers == ())
        if not isinstance(is_impossible, bool):
            raise InputError(f"{where}: is_impossible is {is_impossible!r}; it must be true or false")
        if answers is None and entry.get("is_impossible"):
            answers = ()
        question = Question(id_, _text(entry, "question", where), context, answers, is_impossible)
        found.append(Placed(where, question))
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
    """Returns the id of a question as JSON names it; some annotation tools write numbers."""
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
