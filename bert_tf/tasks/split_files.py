"""Finds the files of each split of a task's data, and reads them with a function of the kind of task."""

import functools
import glob
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.core import identity
from bert_tf.core.errors import InputError, unreadable
from bert_tf.finetuning.task_data import TaskData
from bert_tf.settings.finetuning import PATH_FLAGS, UNLABELED


def file_data(
    data_dir: str,
    paths: Mapping[str, Sequence[str]],
    names: Callable[[str], Sequence[str]],
    read_file: Callable[[str, str], list[Any]],
    folder_files: Callable[[str, str], list[str]] | None = None,
    **rest: Any,
) -> TaskData:
    """Returns data in files. Flags name the files of a split, or the files are in a folder.
    `data_dir`: folder that contains the file of each split that is not in `paths`; "" if there is no folder.
    `paths`: the files that flags name, by split; a name may be a glob.
    `names`: function that maps a split to the names that its file may have in `data_dir`; a name may be a glob.
    `read_file`: function that maps a path and a split to the file's examples. An example may have the attributes `id`
      and `place`, which names the example in messages. The function raises InputError for an invalid file.
    `folder_files`: function that maps a folder and a split to the files that are read, if a path may be a folder.
    `**rest`: other attributes of `TaskData`."""

    def found(split: str) -> list[list[str]]:
        if split in paths or split == UNLABELED:
            return [_matches(path) or [path] for path in paths.get(split, ())]
        return list(filter(None, (_matches(name, data_dir) for name in names(split) if data_dir)))

    def files(split: str) -> list[str]:
        known, flag = found(split), PATH_FLAGS.get(split)
        if len(known) > 1 and not paths.get(split):
            listed = " and ".join(os.path.basename(each[0]) for each in known)
            raise InputError(f"--data_dir={data_dir}: has {listed}; choose one with --{flag}")
        if not known:
            more = ", or --dev_share=0.1 to hold out a tenth of the training data" if split == "dev" else ""
            missing = f"has none of {', '.join(names(split))}"
            raise InputError(f"--data_dir={data_dir}: {missing}; check the folder, or give --{flag}{more}")
        return [path for each in known for path in each]

    @functools.cache
    def load(split: str) -> list[Any]:
        examples: list[Any] = []
        for path in files(split):
            with unreadable(path):
                read = read_file(path, "test" if split == UNLABELED else split)
            if not read:
                raise InputError(f"{path}: holds no example; add a line for each text")
            refuse_repeated_ids(path, read, len(examples))
            examples += read
        return examples

    def fingerprint(split: str) -> list[str]:
        """Returns one entry for each file, and one entry for all files of a folder."""
        contents = [folder_files(path, split) if tf.io.gfile.isdir(path) else [path] for path in files(split)]
        return [identity.text_of(identity.fingerprint(each, whole=True)) for each in contents]

    return TaskData(files, load, bool(found("dev")), own_fingerprint=fingerprint if folder_files else None, **rest)


def _matches(name: str, folder: str = "") -> list[str]:
    """Returns the file or folder with a name; without such a file, the sorted files that match the name as a glob."""
    path = os.path.join(folder, name)
    if tf.io.gfile.exists(path):
        return [path]
    return sorted(tf.io.gfile.glob(os.path.join(glob.escape(folder), name))) if "*" in name else []


def refuse_repeated_ids(path: str, examples: Sequence[Any], start: int = 0) -> None:
    """Raises InputError if two examples of a file would have the same name in prediction files, or if an id is empty.
    The name of an example is its id; if the example has no id, its name is its index.
    `start`: index of the first example."""
    first: dict[str, Any] = {}
    for number, example in enumerate(examples, start):
        id = getattr(example, "id", None)
        if id == "":
            raise InputError(f"{example.place}: the id is empty; give each example a unique id")
        name = str(number) if id is None else id
        other = first.setdefault(name, example)
        if other is not example:
            what = f"the id {name!r} is also the id of {other.place.removeprefix(f'{path}, ')}"
            reason = " (an example without an id has its number as its id)" if None in (id, other.id) else ""
            raise InputError(f"{example.place}: {what}{reason}; give each example a unique id")


def with_labels_if_right(path: str, split: str, read: Callable[[bool], list[Any]]) -> list[Any]:
    """Reads a file with its labels. If the labels of a test file are invalid, reads this file again without the labels.
    `read`: function that reads the examples, with labels if its argument is true."""
    try:
        return read(True)
    except InputError as error:
        if split != "test":
            raise
        examples = read(False)  # raises an error if there is another fault
        logging.info("%s: is read without labels, so metrics are not computed (%s)", path, error)
        return examples
