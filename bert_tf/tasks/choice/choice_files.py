"""Reads examples with several choices: tables of SWAG or of the Story Cloze Test, JSON Lines, and folders of RACE.

Paper: section 4.4. SWAG: R. Zellers et al., "SWAG: A Large-Scale Adversarial Dataset for Grounded Commonsense
Inference", 2018. Story Cloze Test: N. Mostafazadeh et al., "A Corpus and Cloze Evaluation for Deeper Understanding of
Commonsense Stories", 2016. RACE: G. Lai et al., "RACE: Large-scale ReAding Comprehension Dataset From Examinations",
2017; its folders train, dev and test have the folders middle and high, whose files are JSON objects with a passage and
its questions, each with four options.
"""

import dataclasses
import json
import os
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.core import json_lines
from bert_tf.core.errors import InputError
from bert_tf.finetuning.stratified_split import content_of
from bert_tf.finetuning.task_data import TaskData, each_row
from bert_tf.rows import Row, cells, files
from bert_tf.rows.delimited import TextCells
from bert_tf.rows.sources import Files
from bert_tf.rows.text_files import decoded_lines

# Possible names of the context and of the start, as columns or as fields in JSON Lines. If a file has several of these
# names, the first in this list is used.
_CONTEXT = ("context", "sent1")
_START = ("start", "question", "sent2")
# If a file has several of these columns, the first in this list is used.
_IDS = ("id", "fold-ind")
_LABEL = "label"
_CHOICE = re.compile(r"(?:ending|choice)[-_ ]?(\d+)")
# SWAG's "full" files have no numbered endings. One column has the right ending, and further columns have wrong endings.
_RIGHT, _WRONG = "gold-ending", re.compile(r"distractor-(\d+)")
# The Story Cloze Test has four sentences of context and two endings. Its labels count the endings from 1.
_STORY = tuple(f"inputsentence{number}" for number in range(1, 5))
_ENDINGS = ("randomfifthsentencequiz1", "randomfifthsentencequiz2")
_STORY_ID, _STORY_LABEL = "inputstoryid", "answerrightending"
# A number in a table, which may have been written as a float.
_NUMBER = re.compile(r"\s*-?\d+(\.0+)?\s*")
_RACE_LABELS = {letter: number for number, letter in enumerate("ABCD")}


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
    """A context and several ways to continue it."""

    context: str  # the first text
    start: str  # the beginning of the second text, which each choice continues; "" if absent
    choices: tuple[str, ...]  # two or more choices
    label: int | None  # index of the right choice; None if no label was read
    id: str | None = None  # id of the example in its file; None if absent
    # where the example is, for messages; for instance, the file and the line
    place: str = dataclasses.field(default="", repr=False, compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        return self.context, self.start, *self.choices


def choice_data(data_dir: str, paths: Mapping[str, Sequence[str]]) -> TaskData:
    """Returns data with choices, with a file or a folder per split; see `Files`. A folder of RACE has the name of its
    split."""
    source = Files(data_dir, paths, lambda split: [*files.names_of(split), split], _rows)
    return TaskData.of(source, each_row(of_row), strata=_strata)


def _rows(path: str, with_labels: bool) -> Iterator[Row]:
    # The numbers of classes count the choices.
    return _race_rows(path, with_labels) if tf.io.gfile.isdir(path) else files.rows(path, names_classes=False)


def _strata(examples: Sequence[ChoiceExample]) -> tuple[list[str], list[Hashable]]:
    """Returns the contexts as contents, so that all examples with the same context are in the same split."""
    return [content_of(example.context) for example in examples], [None] * len(examples)


def _checked(example: ChoiceExample) -> ChoiceExample:
    place = example.place
    if not example.context.strip():
        raise InputError(f"{place}: the context is empty; fix or remove the line")
    if len(example.choices) < 2:
        raise InputError(
            f"{place}: has {len(example.choices)} choices; give at least two, as ending0 and ending1 or choices"
        )
    for number, choice in enumerate(example.choices):
        if not choice.strip():
            raise InputError(f"{place}: choice {number}, counted from 0, is empty; fix or remove the line")
    if example.label is not None and not 0 <= example.label < len(example.choices):
        raise InputError(
            f"{place}: the label {example.label} is not the number of a choice; give a number from 0 to "
            f"{len(example.choices) - 1}"
        )
    return example


def of_row(place: str, row: Mapping[str, Any], with_label: bool) -> ChoiceExample:
    """Returns the example of a row with the columns of SWAG, of the Story Cloze Test, or with the field `choices`."""
    row = type(row)((name.lower(), cell) for name, cell in row.items())
    if {*_STORY, *_ENDINGS} <= row.keys():
        context, start = " ".join(_text(place, row, [name]) for name in _STORY), ""
        choices, label, first, ids = [row[name] for name in _ENDINGS], _STORY_LABEL, 1, [_STORY_ID]
    else:
        context, start = _text(place, row, _CONTEXT), _text(place, row, _START, is_needed=False)
        endings = [row[_RIGHT], *_numbered(row, _WRONG)] if _RIGHT in row else _numbered(row, _CHOICE)
        choices, label, first, ids = (
            cells.items(row, "choices") if "choices" in row else _without_blank_end(endings),
            _LABEL,
            0,
            _IDS,
        )
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise InputError(f"{place}: the choices are not a list of strings; give a list of texts")
    number = None
    if with_label:
        number = 0 if _RIGHT in row else _label(place, row, label, choices) - first
    id = next((str(row[name]).strip() or None for name in ids if row.get(name) is not None), None)
    return _checked(ChoiceExample(context, start, tuple(choices), number, id, place))


def _numbered(cells: Mapping[str, Any], pattern: re.Pattern) -> list[Any]:
    """Returns the choices of a row, sorted by the numbers in the names of their cells."""
    by_number = {int(match[1]): cell for name, cell in cells.items() if (match := pattern.fullmatch(name))}
    return [by_number[number] for number in sorted(by_number)]


def _without_blank_end(choices: list[Any]) -> list[Any]:
    """Returns the choices of a row that has fewer choices than the table has columns for them."""
    last = max((number for number, choice in enumerate(choices) if choice and str(choice).strip()), default=-1)
    return choices[: last + 1]


def _text(place: str, row: Mapping[str, Any], names: Sequence[str], is_needed: bool = True) -> str:
    there = [name for name in names if row.get(name) is not None]
    if not there and is_needed:
        have = ", ".join(name or "a column without a name" for name in row)
        raise InputError(f"{place}: there is no {' or '.join(names)}; the line has {have or 'nothing'}")
    return cells.text(place, row, there[0]) if there else ""


def _label(place: str, row: Mapping[str, Any], name: str, choices: Sequence[str]) -> int:
    """Returns the index of the right choice; the label is this index or the text of the right choice."""
    label = row.get(name)
    if isinstance(row, TextCells) and _NUMBER.fullmatch(label or ""):
        label = float(label)
    if isinstance(label, float) and label.is_integer():  # some libraries write integers as floats
        return int(label)
    if isinstance(label, int) and not isinstance(label, bool):
        return label
    if not isinstance(label, str):
        told = "there is no label" if label is None else f"the label is {json_lines.meaning(label)}"
        raise InputError(f"{place}: {told}; give the number of the right choice, from 0, or its text")
    label = label.strip()
    texts = [choice.strip() for choice in choices]
    meant = {texts.index(label)} if label in texts else set()
    if label.isdecimal() and (int(label) < len(texts) or not meant):
        meant.add(int(label))
    if len(meant) != 1:
        what = "the text of one choice and the number of another" if meant else "not one of the choices"
        raise InputError(f"{place}: the label {label!r} is {what}; give the number of the choice, from 0, as a number")
    return meant.pop()


def _race_rows(folder: str, with_labels: bool) -> Iterator[Row]:
    """Yields a row for each question in the .txt files of a folder and its subfolders, in alphabetical order. The
    passage is the context, and the question the start."""
    folders = tf.io.gfile.walk(folder)
    for path in sorted(os.path.join(at, name) for at, _, names in folders for name in names if name.endswith(".txt")):
        try:
            content = json.loads("\n".join(decoded_lines(path)))
            article, questions, options = content["article"], content["questions"], content["options"]
            answers = content["answers"] if with_labels else [None] * len(questions)
            for number, (question, choices, answer) in enumerate(zip(questions, options, answers, strict=True)):
                label = None if answer is None else _RACE_LABELS[answer]
                row = {"context": article, "start": question, "choices": choices, "label": label}
                yield f"{path}, question {number}", row | {"id": f"{os.path.relpath(path, folder)}-{number}"}
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: does not have RACE's layout ({error!r}); copy the folder again") from error
