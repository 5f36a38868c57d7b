"""Reads and writes CoNLL files.

Each line has a word and its tag. A blank line ends a sentence, and a -DOCSTART- line starts a document. A line before a
sentence is a comment if it begins with # and differs from the lines of words in its columns or in its tag.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.rows import Row
from bert_tf.rows.text_files import decoded_lines
from bert_tf.tasks.tagging import tag_schemes

DOCUMENT_START = "-DOCSTART-"
BLANK = " \t\r\n"
_COMMENT = "#"
_LANGUAGES = ("eng", "esp", "ned", "deu")
# File names of CoNLL-2003 and CoNLL-2002: the official names, and the names in common copies of the data.
FILE_NAMES = {
    "train": ("train.txt", *(f"{language}.train" for language in _LANGUAGES), "train.conll"),
    "dev": ("valid.txt", "dev.txt", *(f"{language}.testa" for language in _LANGUAGES), "dev.conll"),
    "test": ("test.txt", *(f"{language}.testb" for language in _LANGUAGES), "test.conll"),
}


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence of a file."""

    words: tuple[str, ...]  # one or more words
    tags: tuple[str, ...] | None  # the tags of the words, as in the file; None if no tags were read
    line: int = dataclasses.field(repr=False)  # number of the first word's line, from 1
    path: str = dataclasses.field(default="", repr=False, compare=False)
    starts_document: bool = False  # whether the sentence follows a -DOCSTART- line
    # whether each further word is on the next line; otherwise, all words are on one line
    has_lines: bool = dataclasses.field(default=False, repr=False, compare=False)

    @property
    def place(self) -> str:
        return self.place_of(0)

    @property
    def texts(self) -> tuple[str, ...]:
        return self.words

    def place_of(self, word: int) -> str:
        """Returns where a word is, for messages."""
        return f"{self.path}, line {self.line + word * self.has_lines}"

    @property
    def label(self) -> tuple[str, ...] | None:
        return self.tags


def line_of(place: str) -> tuple[int, str]:
    """Returns the number of the line, and the path, in the place of a row."""
    path, _, line = place.rpartition(", line ")
    return int(line), path


@dataclasses.dataclass(frozen=True)
class WordColumns:
    """The columns of a file."""

    word: int = 0  # index of the column with the word; a negative index counts from the last column, whose index is -1
    tag: int = -1  # index of the column with the tag; see `word`


def rows(path: str, layout: WordColumns, with_tags: bool = True) -> Iterator[Row]:
    """Yields a row for each sentence of a file, with the cells `words`, `tags`, `starts_document` and `has_lines`; see
    `Sentence`. Columns are separated by tabs or, in a line without a tab, by spaces."""
    words: list[str] = []
    tags: list[str] = []
    first_line, width, starts_document, are_numbers, longest = 0, _width(path), False, True, 0
    for number, line in itertools.chain(enumerate(decoded_lines(path), 1), [(0, "")]):
        cells = _cells(line)
        if not cells or cells[0] == DOCUMENT_START:
            if words:
                row = {"words": words, "tags": tags, "starts_document": starts_document, "has_lines": True}
                yield f"{path}, line {first_line}", row
                are_numbers &= words == list(map(str, range(1, len(words) + 1)))
                longest = max(longest, len(words))
            starts_document = bool(cells) or (starts_document and not words)
            words, tags = [], []
            continue
        if not words and _is_comment(cells, width, layout.tag if with_tags else None):
            continue
        place = f"{path}, line {number}"
        if not first_line:
            _check_columns(place, layout, with_tags, width)
        if len(cells) != width or not all(cells):
            raise InputError(
                f"{place}: has {sum(map(bool, cells))} columns, the first line has {width}; fix or remove the line"
            )
        first_line = first_line if words else number
        words.append(cells[layout.word])
        tags.append(cells[layout.tag] if with_tags else tag_schemes.OUTSIDE)
        try:
            tag_schemes.split_tag(tags[-1])
        except ValueError as error:
            raise InputError(f"{place}: {error}; fix the tag, or check --tag_column") from error
    if are_numbers and longest > 1:  # in the first column of some files, the words of each sentence are 1, 2, 3, ...
        raise InputError(
            f"{path}: column {layout.word} contains the numbers of words, not the words; give the column of the words "
            "as --word_column"
        )


def _width(path: str) -> int:
    """Returns the number of columns of the first line that cannot be a comment, else of the last line."""
    width = 0
    for cells in filter(None, map(_cells, decoded_lines(path))):
        if cells[0] != DOCUMENT_START:
            width = len(cells)
            if not cells[0].startswith(_COMMENT):
                break
    return width


def _is_comment(cells: Sequence[str], width: int, tag_column: int | None) -> bool:
    if not cells[0].startswith(_COMMENT):
        return False
    if len(cells) != width or tag_column is None or not -width <= tag_column < width:
        return len(cells) != width
    try:
        tag_schemes.split_tag(cells[tag_column])
    except ValueError:
        return True
    return False


def _cells(line: str) -> list[str]:
    text = line.strip(BLANK)
    return [cell.strip(BLANK) for cell in text.split("\t")] if "\t" in text else re.split(" +", text) if text else []


def _check_columns(place: str, layout: WordColumns, with_tags: bool, width: int) -> None:
    wanted = {"word_column": layout.word} | ({"tag_column": layout.tag} if with_tags else {})
    for flag, column in wanted.items():
        if not -width <= column < width:
            raise InputError(f"{place}: has {width} columns, counted from 0; --{flag}={column} is not one of them")
    if len({column % width for column in wanted.values()}) < len(wanted):
        raise InputError(
            f"{place}: has {width} columns, so the word and the tag are in the same column; add the tags, or check "
            "--word_column and --tag_column"
        )


def write_predictions(path: str, sentences: Sequence[Sentence], predicted: Sequence[Sequence[str]]) -> None:
    """Writes predictions atomically, in the official scorer's format. Each line has a word, the right tag if it is
    known, and the predicted tag. Spaces separate the columns. If any word contains a space, tabs separate the columns
    of all lines."""
    separator = "\t" if any(" " in word for sentence in sentences for word in sentence.words) else " "
    lines = []
    for sentence, tags in zip(sentences, predicted, strict=True):
        right = [] if sentence.tags is None else [sentence.tags]
        if sentence.starts_document:
            outside = [tag_schemes.OUTSIDE] * (1 + len(right))
            lines += [separator.join([DOCUMENT_START, *outside]), ""]
        lines += [separator.join(cells) for cells in zip(sentence.words, *right, tags, strict=True)]
        lines.append("")
    storage.write_text(path, "".join(f"{line}\n" for line in lines))
