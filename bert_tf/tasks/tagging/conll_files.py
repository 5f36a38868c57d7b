"""Reads and writes CoNLL files.

Each line has a word and its tag. A blank line ends a sentence, and a -DOCSTART- line starts a document.
"""

import dataclasses
import re
from collections.abc import Sequence

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.tasks.tables import decoded_lines
from bert_tf.tasks.tagging import tag_schemes

DOCUMENT_START = "-DOCSTART-"
_BLANK = " \t\r\n"
_LANGUAGES = ("eng", "esp", "ned", "deu")
# File names of CoNLL-2003 and CoNLL-2002: the official names, and the names in common copies of the data.
FILE_NAMES = {
    "train": ("train.txt", *(f"{language}.train" for language in _LANGUAGES), "train.conll"),
    "dev": ("valid.txt", "dev.txt", *(f"{language}.testa" for language in _LANGUAGES), "dev.conll"),
    "test": ("test.txt", *(f"{language}.testb" for language in _LANGUAGES), "test.conll"),
}


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence of a file.

    Attributes:
      words: one or more words.
      tags: the tags of the words, as in the file; None if no tags were read.
      line: number of the first word's line, from 1; each further word is on the next line.
      starts_document: whether the sentence follows a -DOCSTART- line.
      path: path of the file.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    line: int
    starts_document: bool = False
    path: str = dataclasses.field(default="", repr=False, compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """The words that the model reads."""
        return self.words

    @property
    def label(self) -> tuple[str, ...] | None:
        """The right tags."""
        return self.tags


@dataclasses.dataclass(frozen=True)
class Layout:
    """The columns of a file.

    Attributes:
      word: index of the column with the word; a negative index counts from the last column, whose index is -1.
      tag: index of the column with the tag; see `word`.
    """

    word: int = 0
    tag: int = -1


def read_sentences(path: str, layout: Layout, with_tags: bool = True) -> list[Sentence]:
    """Reads the sentences of a file. Columns are separated by tabs or, in a line without a tab, by spaces.

    Args:
      path: path of the file.
      layout: columns of the file.
      with_tags: whether to read tags.

    Raises:
      InputError: the file is missing, is empty or is not UTF-8; a tag is missing or is not a tag of any scheme; a line
        has more or fewer columns than the first line; or the column of words contains the numbers of the words. The
        message names the file and, if possible, the line.
    """
    reader = _Reader(path, layout, with_tags)
    for number, line in enumerate(decoded_lines(path), 1):
        reader.take(number, line.strip(_BLANK))
    return reader.finish()


class _Reader:
    """Joins the lines of a file into sentences."""

    def __init__(self, path: str, layout: Layout, with_tags: bool):
        self._path, self._layout, self._with_tags = path, layout, with_tags
        self._sentences: list[Sentence] = []
        self._rows: list[tuple[str, str]] = []
        self._first_line, self._width, self._starts = 0, 0, False

    def take(self, number: int, line: str) -> None:
        if not line:
            self._end()
            return
        cells = [cell.strip(_BLANK) for cell in line.split("\t")] if "\t" in line else re.split(" +", line)
        if cells[0] == DOCUMENT_START:
            self._end()
            self._starts = True
            return
        place = f"{self._path}, line {number}"
        if not self._width:
            self._width = len(cells)
            self._check_columns(place)
        if len(cells) != self._width or not all(cells):
            given = len([cell for cell in cells if cell])
            raise InputError(f"{place}: has {given} columns, the first line has {self._width}; fix or remove the line")
        self._first_line = self._first_line or number
        tag = cells[self._layout.tag] if self._with_tags else ""
        if self._with_tags:
            self._check_tag(place, tag)
        self._rows.append((cells[self._layout.word], tag))

    def finish(self) -> list[Sentence]:
        self._end()
        if not self._sentences:
            raise InputError(f"{self._path}: holds no sentence; write one word and its tag on each line")
        if self._are_numbered():
            raise InputError(
                f"{self._path}: column {self._layout.word} contains the numbers of words, not the words; give the "
                "column of the words as --word_column"
            )
        return self._sentences

    def _are_numbered(self) -> bool:
        """Returns whether the words of each sentence are 1, 2, 3, ..., as in the first column of some files."""
        numbered = (tuple(map(str, range(1, len(s.words) + 1))) == s.words for s in self._sentences)
        return all(numbered) and max(len(s.words) for s in self._sentences) > 1

    def _end(self) -> None:
        if self._rows:
            words, tags = zip(*self._rows, strict=True)
            tags = tags if self._with_tags else None
            self._sentences.append(Sentence(words, tags, self._first_line, self._starts, self._path))
            self._starts = False
        self._rows, self._first_line = [], 0

    def _check_columns(self, place: str) -> None:
        wanted = {"word_column": self._layout.word} | ({"tag_column": self._layout.tag} if self._with_tags else {})
        for flag, column in wanted.items():
            if not -self._width <= column < self._width:
                raise InputError(
                    f"{place}: has {self._width} columns, counted from 0; --{flag}={column} is not one of them"
                )
        if len({column % self._width for column in wanted.values()}) < len(wanted):
            raise InputError(
                f"{place}: has {self._width} columns, so the word and the tag are in the same column; add the tags, "
                "or check --word_column and --tag_column"
            )

    def _check_tag(self, place: str, tag: str) -> None:
        try:
            tag_schemes.split_tag(tag)
        except ValueError as error:
            raise InputError(f"{place}: {error}; fix the tag, or check --tag_column") from error


def count_columns(path: str) -> int:
    """Returns the number of columns of the first line with a word; 0 if there is no such line."""
    for line in decoded_lines(path):
        cells = line.strip(_BLANK)
        if cells and not cells.startswith(DOCUMENT_START):
            return len(cells.split("\t") if "\t" in cells else re.split(" +", cells))
    return 0


def write_predictions(path: str, sentences: Sequence[Sentence], predicted: Sequence[Sequence[str]]) -> None:
    """Writes predictions atomically, in the official scorer's format.

    Each line has a word, the right tag if it is known, and the predicted tag. Spaces separate the columns. If any
    word contains a space, tabs separate the columns of all lines.
    """
    separator = "\t" if any(" " in word for sentence in sentences for word in sentence.words) else " "
    lines = []
    for sentence, tags in zip(sentences, predicted, strict=True):
        known = [] if sentence.tags is None else [sentence.tags]
        if sentence.starts_document:
            outside = [tag_schemes.OUTSIDE] * (1 + len(known))
            lines += [separator.join([DOCUMENT_START, *outside]), ""]
        lines += [separator.join(cells) for cells in zip(sentence.words, *known, tags, strict=True)]
        lines.append("")
    storage.write_text(path, "".join(f"{line}\n" for line in lines))
