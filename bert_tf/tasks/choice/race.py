"""Reads folders of RACE: each file is a JSON object with a passage and its questions, each with four options.

G. Lai et al., "RACE: Large-scale ReAding Comprehension Dataset From Examinations", 2017. The archive has the folders
train, dev and test, and each of them the folders middle and high.
"""

import json
import os
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.tasks import tables
from bert_tf.tasks.choice.choice_example import ChoiceExample

_LETTERS = "ABCD"


def files_in(folder: str) -> list[str]:
    """Returns the paths of the .txt files in a folder and its subfolders, in alphabetical order."""
    found = tf.io.gfile.walk(folder)
    return sorted(os.path.join(at, name) for at, _, names in found for name in names if name.endswith(".txt"))


def read(folder: str, has_labels: bool) -> Iterator[ChoiceExample]:
    """Yields an example for each question. The passage is the context, and the question the start.

    Raises:
      InputError: a file does not have RACE's layout.
    """
    for path in files_in(folder):
        try:
            content = json.loads("\n".join(tables.decoded_lines(path)))
            article, questions, options = content["article"], content["questions"], content["options"]
            answers = content["answers"] if has_labels else [None] * len(questions)
            for number, (question, choices, answer) in enumerate(zip(questions, options, answers, strict=True)):
                label = None if answer is None else _LETTERS.index(answer)
                name, place = f"{os.path.relpath(path, folder)}-{number}", f"{path}, question {number}"
                yield ChoiceExample(article, question, tuple(choices), label, name, place)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: does not have RACE's layout ({error!r}); copy the folder again") from error
