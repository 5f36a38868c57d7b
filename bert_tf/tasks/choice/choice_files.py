"""Reads examples with several choices: tables of SWAG or of the Story Cloze Test, JSON Lines, and folders of RACE.

Paper: section 4.4. SWAG: R. Zellers et al., "SWAG: A Large-Scale Adversarial Dataset for Grounded Commonsense
Inference", 2018. Story Cloze Test: N. Mostafazadeh et al., "A Corpus and Cloze Evaluation for Deeper Understanding of
Commonsense Stories", 2016. RACE: G. Lai et al., "RACE: Large-scale ReAding Comprehension Dataset From Examinations",
2017; its folders train, dev and test have the folders middle and high, whose files are JSON objects with a passage and
its questions, each with four options.
"""

import contextlib
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
from bert_tf.finetuning.task_data import TaskData
from bert_tf.tasks import tables
from bert_tf.tasks.split_files import file_data, with_labels_if_right

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
    """Returns data with choices, with a file or a folder per split; see `file_data`."""
    # A folder of RACE has the name of its split.
    return file_data(
        data_dir, paths, lambda split: [*tables.file_names(split), split], read_file,
        lambda path, split: race_files(path), strata=_strata,
    )  # fmt: skip


def _strata(examples: Sequence[ChoiceExample]) -> tuple[list[str], list[Hashable]]:
    """Returns the contexts as contents, so that all examples with the same context are in the same split."""
    return [content_of(example.context) for example in examples], [None] * len(examples)


def read_file(path: str, split: str) -> list[ChoiceExample]:
    """Reads a table, a JSON Lines or Parquet file, or a folder of RACE."""
    read = _read_race if tf.io.gfile.isdir(path) else _read_rows
    return with_labels_if_right(path, split, lambda has_labels: list(map(_checked, read(path, has_labels))))


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


def _read_rows(path: str, has_labels: bool) -> Iterator[ChoiceExample]:
    is_table = not tables.has_objects(path)
    for line, entries in tables.read_rows(path, names_classes=False):  # the numbers count the choices
        cells = {name.lower(): cell for name, cell in entries.items()}
        for name in (_LABEL, _STORY_LABEL) if is_table else ():
            with contextlib.suppress(KeyError, ValueError):
                cells[name] = float(cells[name])
        yield _example(f"{path}, line {line}", cells, has_labels)


def _example(place: str, cells: Mapping[str, Any], has_labels: bool) -> ChoiceExample:
    if {*_STORY, *_ENDINGS} <= cells.keys():
        context, start = " ".join(_text(place, cells, [name]) for name in _STORY), ""
        choices, label, first, ids = [cells[name] for name in _ENDINGS], cells.get(_STORY_LABEL), 1, [_STORY_ID]
    else:
        context, start = _text(place, cells, _CONTEXT), _text(place, cells, _START, is_needed=False)
        endings = [cells[_RIGHT], *_numbered(cells, _WRONG)] if _RIGHT in cells else _numbered(cells, _CHOICE)
        choices, label = cells.get("choices", _without_blank_end(endings)), 0 if _RIGHT in cells else cells.get(_LABEL)
        first, ids = 0, _IDS
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise InputError(f"{place}: the choices are not a list of strings; give a list of texts")
    label = _label(place, label, choices) - first if has_labels else None
    id = next((str(cells[name]).strip() or None for name in ids if cells.get(name) is not None), None)
    return ChoiceExample(context, start, tuple(choices), label, id, place)


def _numbered(cells: Mapping[str, Any], pattern: re.Pattern) -> list[Any]:
    """Returns the choices of a row, sorted by the numbers in the names of their cells."""
    found = {int(match[1]): cell for name, cell in cells.items() if (match := pattern.fullmatch(name))}
    return [found[number] for number in sorted(found)]


def _without_blank_end(choices: list[Any]) -> list[Any]:
    """Returns the choices of a row that has fewer choices than the table has columns for them."""
    last = max((number for number, choice in enumerate(choices) if choice and str(choice).strip()), default=-1)
    return choices[: last + 1]


def _text(place: str, cells: Mapping[str, Any], names: Sequence[str], is_needed: bool = True) -> str:
    given = [name for name in names if cells.get(name) is not None]
    if not given and is_needed:
        have = ", ".join(name or "a column without a name" for name in cells)
        raise InputError(f"{place}: there is no {' or '.join(names)}; the line has {have or 'nothing'}")
    text = cells[given[0]] if given else ""
    if not isinstance(text, str):
        raise InputError(f"{place}: {given[0]} is {json_lines.meaning(text)}, not a string; fix the line")
    return text


def _label(place: str, label: Any, choices: Sequence[str]) -> int:
    """Returns the index of the right choice; `label` is this index or the text of the right choice."""
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


def race_files(folder: str) -> list[str]:
    """Returns the paths of the .txt files in a folder and its subfolders, in alphabetical order."""
    found = tf.io.gfile.walk(folder)
    return sorted(os.path.join(at, name) for at, _, names in found for name in names if name.endswith(".txt"))


def _read_race(folder: str, has_labels: bool) -> Iterator[ChoiceExample]:
    """Yields an example for each question. The passage is the context, and the question the start."""
    for path in race_files(folder):
        try:
            content = json.loads("\n".join(tables.decoded_lines(path)))
            article, questions, options = content["article"], content["questions"], content["options"]
            answers = content["answers"] if has_labels else [None] * len(questions)
            for number, (question, choices, answer) in enumerate(zip(questions, options, answers, strict=True)):
                label = None if answer is None else _RACE_LABELS[answer]
                name, place = f"{os.path.relpath(path, folder)}-{number}", f"{path}, question {number}"
                yield ChoiceExample(article, question, tuple(choices), label, name, place)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: does not have RACE's layout ({error!r}); copy the folder again") from error
