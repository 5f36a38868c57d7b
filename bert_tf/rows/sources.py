"""Sources of rows: where the rows of each split of a data set come from."""

import dataclasses
import glob
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.rows import Row
from bert_tf.settings.finetuning import PATH_FLAGS, UNLABELED

# The file that a dataset or a dict of datasets has if the library datasets saved it.
_SAVED = ("state.json", "dataset_dict.json")


class Source:
    """The rows of a data set, which has the splits "train", "dev" and "test"."""

    has_dev: bool = False  # whether there is dev data

    def files(self, split: str) -> list[str]:
        """Returns the paths of a split's files, or other names of the parts of a split."""
        return []

    def rows(self, file: str, with_labels: bool) -> Iterator[Row]:
        """Yields the rows of a file or part.
        `with_labels`: whether to read the columns of labels."""
        return iter(())

    def title(self, split: str) -> str:
        """Returns the name of a split's data for reports and messages."""
        return ", ".join(map(os.path.basename, self.files(split)))

    def class_names(self) -> tuple[str, ...]:
        """Returns the names of the classes that the training data states beside its rows; () if none."""
        return ()


@dataclasses.dataclass(frozen=True)
class Files(Source):
    """Data in files. Flags name the files of a split, or the files are in a folder."""

    # folder that contains the file of each split that is not in `paths`; "" if there is no folder
    data_dir: str
    paths: Mapping[str, Sequence[str]]  # the files that flags name, by split; a name may be a glob
    # function that maps a split to the names that its file may have in `data_dir`; a name may be a glob
    names: Callable[[str], Sequence[str]]
    # function that returns the rows of a path; its second argument is false if the labels are not to be read
    read: Callable[[str, bool], Iterator[Row]]
    names_of_classes: Callable[[str], tuple[str, ...]] = lambda path: ()  # function that maps a file to class names

    @property
    def has_dev(self) -> bool:
        return bool(self._matches_of("dev"))

    def files(self, split: str) -> list[str]:
        matches, flag = self._matches_of(split), PATH_FLAGS.get(split)
        for folder in itertools.chain(*matches) if matches else [self.data_dir]:
            if folder and any(tf.io.gfile.exists(os.path.join(folder, name)) for name in _SAVED):
                raise InputError(f"{folder}: is a folder of save_to_disk; write its splits as Parquet with to_parquet")
        if len(matches) > 1 and not self.paths.get(split):
            listed = " and ".join(os.path.basename(each[0]) for each in matches)
            raise InputError(f"--data_dir={self.data_dir}: has {listed}; choose one with --{flag}")
        if not matches:
            more = ", or --dev_share=0.1 to hold out a tenth of the training data" if split == "dev" else ""
            missing = f"has none of {', '.join(self.names(split))}"
            raise InputError(f"--data_dir={self.data_dir}: {missing}; check the folder, or give --{flag}{more}")
        return list(itertools.chain(*matches))

    def rows(self, file: str, with_labels: bool) -> Iterator[Row]:
        return self.read(file, with_labels)

    def class_names(self) -> tuple[str, ...]:
        return next(filter(None, map(self.names_of_classes, self.files("train"))), ())

    def _matches_of(self, split: str) -> list[list[str]]:
        if split in self.paths or split == UNLABELED:
            return [_matches(path) or [path] for path in self.paths.get(split, ())]
        return list(filter(None, (_matches(name, self.data_dir) for name in self.names(split) if self.data_dir)))


def _matches(name: str, folder: str = "") -> list[str]:
    """Returns the file or folder with a name; without such a file, the sorted files that match the name as a glob."""
    path = os.path.join(folder, name)
    if tf.io.gfile.exists(path):
        return [path]
    return sorted(tf.io.gfile.glob(os.path.join(glob.escape(folder), name))) if "*" in name else []


@dataclasses.dataclass(frozen=True)
class Memory(Source):
    """Rows in memory."""

    of_split: Mapping[str, Sequence[Row]]
    what: str  # what the data is for messages, such as "texts in memory"
    names: tuple[str, ...] = ()  # see `class_names`
    remedy: str = ""  # what to do instead of reading a split that is not there
    others: Source = dataclasses.field(default_factory=Source)  # where another split comes from if it is there

    @property
    def has_dev(self) -> bool:
        return "dev" in self.of_split or self.others.has_dev

    def files(self, split: str) -> list[str]:
        if split in self.of_split:
            return [self.title(split)]
        if split == "dev" and self.others.has_dev:
            return self.others.files(split)
        raise InputError(f"there are no {split} {self.what}; {self.remedy}")

    def rows(self, file: str, with_labels: bool) -> Iterator[Row]:
        split = file.removesuffix(f" {self.what}")
        return iter(self.of_split[split]) if split in self.of_split else self.others.rows(file, with_labels)

    def title(self, split: str) -> str:
        return f"{split} {self.what}" if split in self.of_split or not self.others.has_dev else self.others.title(split)

    def class_names(self) -> tuple[str, ...]:
        return self.names
