"""Reads files in SQuAD's layout: articles that consist of paragraphs. A paragraph has a context, questions and answers.

Paper: sections 4.2 and 4.3.
"""

import bisect
import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from bert_tf.core.errors import InputError
from bert_tf.rows import Row, files
from bert_tf.rows.text_files import decoded_lines, json_of

# A word of a context. As in google-research/bert, only the white space in this pattern separates words.
_WORD = re.compile("[^ \t\r\n\u202f]+")
# A character of a script that does not separate words by spaces: Thai to Burmese, Khmer, Japanese, Chinese.
_WITHOUT_SPACES = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
# Half of a surrogate pair; it cannot be encoded as UTF-8.
_SURROGATE = re.compile("[\ud800-\udfff]")


class Answer(NamedTuple):
    """An answer: the text, and the index of the text's first character among the characters of the context."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True)
class Question:
    """A question about a context."""

    id: str  # the question's id, which is unique in its file
    text: str
    context: str  # the passage that the question is about
    # the annotators' answers; () for a question without an answer; None if the file lacks answers. As in the official
    # metric, an answer without text does not count.
    answers: tuple[Answer, ...] | None
    # whether the file marks the question as unanswerable; `answers` is then (). If the question has no `is_impossible`
    # in the file, the value is true if `answers` is ().
    is_impossible: bool = False
    # where the question is in its file, for messages
    place: str = dataclasses.field(default="", repr=False, compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        return self.context, self.text

    @property
    def label(self) -> Answer | None:
        """The answer for training; None if absent."""
        return self.answers[0] if self.answers else None


class ContextWords(NamedTuple):
    """The words of a context, separated by white space as in google-research/bert."""

    texts: tuple[str, ...]
    # `starts`, `ends`: range of each word's characters in the context; the end is exclusive
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def at(self, character: int) -> int:
        """Returns the index of the last word that begins at or before a character; -1 if there is no such word."""
        return bisect.bisect_right(self.starts, character) - 1

    def are_words(self, first: int, last: int) -> bool:
        """Returns whether white space separates words here; in other scripts, a whole passage may be one word."""
        return not any(map(_WITHOUT_SPACES.search, self.texts[first : last + 1]))


@functools.lru_cache(maxsize=16)
def words_of(context: str) -> ContextWords:
    """Splits a context into words. The result is cached, because the questions of a paragraph share a context."""
    matches = list(_WORD.finditer(context))
    return ContextWords(
        tuple(word.group() for word in matches),
        tuple(word.start() for word in matches),
        tuple(word.end() for word in matches),
    )


def answer_words(context: str, answer: Answer) -> tuple[int, int] | None:
    """Returns the indices of the first and the last word that overlap an answer. Returns None if these words and the
    words between them do not contain the answer's text. In this comparison, each sequence of white space counts as one
    space. As in google-research/bert, an answer with a no-break space or other special white space is not found."""
    last = answer.start + len(answer.text.rstrip()) - 1
    if not answer.text.strip() or answer.start < 0 or last >= len(context):
        return None
    words = words_of(context)
    first, end = words.at(answer.start), words.at(last)
    touched = " ".join(words.texts[max(first, 0) : end + 1])
    return (first, end) if first >= 0 and " ".join(answer.text.split()) in touched else None


def read_rows(path: str) -> Iterator[Row]:
    """Yields a row for each question of a file in SQuAD's layout, or of a file with a question per row, as the
    libraries datasets and pandas write it. The rows may be in JSON Lines (.jsonl), in Parquet, or in the list of a JSON
    file (its only value, or `data`). The place of a question in SQuAD's layout is its path in the JSON value."""
    if path.lower().endswith((".jsonl", ".parquet", ".csv", ".tsv")):
        yield from files.rows(path)
        return
    content = json_of(path, decoded_lines(path), "give a file in SQuAD's layout, or name JSON Lines .jsonl")
    place = path
    with _layout(lambda: place):
        table = files.table_in(content)
        for number, entry in enumerate(content["data"] if table == [content] else table):
            place = of_article = f"{path}, data[{number}]"
            if "paragraphs" not in entry:
                yield place, entry
                continue
            for at, paragraph in enumerate(entry["paragraphs"]):
                place = of_paragraph = f"{of_article}.paragraphs[{at}]"
                context = {"context": paragraph["context"]}
                for index, asked in enumerate(paragraph["qas"]):
                    place = f"{of_paragraph}.qas[{index}]"
                    yield place, {**asked, **context}


@contextlib.contextmanager
def _layout(place: Callable[[], str]) -> Iterator[None]:
    """Turns the errors of code that expects SQuAD's layout into an InputError with the place."""
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        what = f"the key {error} is missing" if isinstance(error, KeyError) else error
        raise InputError(f"{place()}: {what}; the file must have SQuAD's layout") from error


def of_row(place: str, row: Mapping[str, Any], with_answers: bool) -> Question:
    """Returns the question of a row."""
    with _layout(lambda: place):
        question = _question(row, _text(row["context"]), place)
    return question if with_answers else dataclasses.replace(question, answers=None, is_impossible=False)


def _question(entry: Mapping[str, Any], context: str, place: str) -> Question:
    answers = None
    if entry.get("answers") is not None or _boolean(entry.get("is_impossible", False)):
        stated = entry.get("answers") or ()
        if isinstance(stated, str):
            raise TypeError(f"answers is the text {stated!r:.60}, not a list; write it as JSON or Parquet, not as CSV")
        if isinstance(stated, Mapping):  # of the library datasets
            texts, starts = stated["text"], stated["answer_start"]
            if len(texts) != len(starts):
                raise TypeError(f"answers has {len(texts)} texts, but {len(starts)} values of answer_start")
            pairs = zip(texts, starts, strict=True)
            stated = [{"text": text, "answer_start": start} for text, start in pairs]
        answers = tuple(
            Answer(_text(answer["text"]), _whole_number(answer["answer_start"]))
            for answer in stated
            if _text(answer["text"]).strip()
        )
    id_ = entry["id"]
    id_ = str(id_) if isinstance(id_, int) else _text(id_)  # some annotation tools write ids as numbers
    is_impossible = _boolean(entry.get("is_impossible", answers == ()))
    answers = () if is_impossible else answers
    return Question(id_, _text(entry["question"]), context, answers, is_impossible, f"{place} (id {id_})")


def _whole_number(value: Any) -> int:
    # pandas writes a column with gaps as floats.
    if not isinstance(value, (int, float)) or not float(value).is_integer():
        raise TypeError(f"answer_start is {value!r:.60}, which is not a whole number")
    return int(value)


def _boolean(value: Any) -> bool:
    text = str(value).lower()  # spreadsheets and some scripts write "True" or 1
    if text not in ("true", "false", "1", "0"):
        raise TypeError(f"is_impossible is {value!r:.60}, which is neither true nor false")
    return text in ("true", "1")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is not a text")
    return _SURROGATE.sub("\ufffd", value)
