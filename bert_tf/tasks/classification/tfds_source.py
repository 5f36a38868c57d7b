"""Reads examples from data sets of TensorFlow Datasets."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.finetuning.task_data import TaskData
from bert_tf.rows import Row
from bert_tf.rows.memory import with_class_names
from bert_tf.rows.sources import Source
from bert_tf.tasks.classification.example import CLASSIFICATION, MULTI_LABEL, REGRESSION, Example, TextData, of_row

_DEV_SPLITS = ("validation", "validation_matched", "dev", "valid")


def open_set(name: str, splits: str, columns: Mapping[str, str | None], is_regression: bool) -> TextData:
    """Opens a data set, and finds the features of the texts and of the label in its description; downloads nothing.
    `name`: name of the data set, such as `glue/mrpc`.
    `splits`: comma-separated splits for train, dev and test; "" for the usual names.
    `columns`: maps `text_a_column`, `text_b_column` and `label_column` to features, or to None if the description must
      show which feature is meant.
    `is_regression`: whether an integer label is a number to predict, not a class."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import read_only_builder

    try:
        with _quiet():
            builder = tfds.builder(name)
    except (ValueError, AssertionError, KeyError) as error:
        raise InputError(
            f"--tfds_name={name}: TensorFlow Datasets cannot find it; the data sets and their configurations are "
            "listed at www.tensorflow.org/datasets/catalog"
        ) from error
    # If only a data set's files are available, the library returns the features in a random order.
    is_ordered = not isinstance(builder, read_only_builder.ReadOnlyBuilder)
    features = dict(builder.info.features.items() if is_ordered else sorted(builder.info.features.items()))
    label = _label_feature(name, features, columns["label_column"])
    named = (columns["text_a_column"], columns["text_b_column"])
    text_a, text_b = _text_features(name, features, label, *named, is_ordered)
    kind, labels = _kind_of(name, label, features[label], is_regression)
    parts, has_dev = _splits(builder, splits)
    logging.info("%s: predicts %s from %s; splits: %s", name, label, " and ".join(filter(None, (text_a, text_b))),
                 parts)  # fmt: skip
    facts = {
        "tfds_name": str(builder.info.full_name),
        "tfds_split": parts["train"],
        "text_a_column": text_a,
        "text_b_column": text_b,
        "label_column": label,
    }
    columns = {"text_a": text_a, **({"text_b": text_b} if text_b else {}), "label": label}
    source = DataSet(name, builder, parts, columns, labels, has_dev)

    def parse(file: str, rows: Iterator[Row], split: str, with_labels: bool) -> list[Example]:
        if split == "dev" and not has_dev and parts["dev"] == "test":
            logging.warning("%s has no validation split, so its test split is the dev data; give --dev_share or "
                            "--tfds_splits for other dev data", name)  # fmt: skip
        every = list(rows)
        labeled = every if split == "test" else [row for row in every if row[1].get("label", "") is not None]
        if unlabeled := len(every) - len(labeled):
            logging.info("%s: left out %d examples without a label (-1)", file, unlabeled)
        if not labeled:
            raise InputError(f"{file}: holds no example with a label; choose another split with --tfds_splits")
        return [of_row(place, row, with_labels, kind) for place, row in labeled]

    return TextData(TaskData.of(source, parse, facts=facts), kind, bool(text_b))


@dataclasses.dataclass(frozen=True)
class DataSet(Source):
    """A data set of TensorFlow Datasets."""

    name: str
    builder: Any
    parts: Mapping[str, str]  # the split of the data set for each of "train", "dev" and "test"
    columns: Mapping[str, str]  # the feature for each cell of a row; see `of_row`
    names: tuple[str, ...]  # the names of the classes; () if the description does not name them
    has_dev: bool = False

    def files(self, split: str) -> list[str]:
        return [self.title(split)]

    def title(self, split: str) -> str:
        return f"{self.name} {self.parts[split]}"

    def class_names(self) -> tuple[str, ...]:
        return self.names

    def rows(self, file: str, with_labels: bool) -> Iterator[Row]:
        records = _records(self.name, self.builder, file.removeprefix(f"{self.name} "))
        for number, record in enumerate(records, 1):
            place = f"{file} example {number}"
            row = {cell: _value(place, record[feature]) for cell, feature in self.columns.items()}
            if self.names:
                row["label"] = None if row["label"] == -1 else with_class_names(row["label"], self.names)
            yield place, row


def _records(name: str, builder: Any, split: str) -> Iterator[Mapping[str, Any]]:
    import tensorflow_datasets as tfds

    try:
        with _quiet():
            return iter(tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False)))
    except AssertionError as error:  # the data is not on the disk
        raise InputError(
            f"--tfds_name={name}: is not in {builder.data_dir}; download it once with `tfds build {name}`, or name "
            "another folder in the environment variable TFDS_DATA_DIR"
        ) from error
    except (ValueError, KeyError) as error:
        splits = ", ".join(builder.info.splits) or "unknown"
        raise InputError(f"--tfds_name={name}: no split {split!r} (has {splits}); give --tfds_splits") from error


def _value(place: str, value: Any) -> Any:
    """Converts a value of NumPy to a string, a number, a boolean or a list of them."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{place}: the text is not UTF-8 ({error.reason})") from error
    value = value.tolist()
    return [_value(place, np.asarray(each)) for each in value] if isinstance(value, list) else value


def _label_feature(name: str, features: Mapping[str, Any], named: str | None) -> str:
    import tensorflow_datasets as tfds

    classes = [each for each, feature in features.items() if isinstance(feature, tfds.features.ClassLabel)]
    label = named or ("label" if "label" in features else classes[0] if len(classes) == 1 else "")
    if label not in features:
        what = f"no feature {label!r}" if label else "several features that may be the label, or none"
        raise InputError(f"--tfds_name={name}: has {what}; give --label_column, one of {', '.join(features)}")
    return label


def _text_features(
    name: str, features: Mapping[str, Any], label: str, text_a: str | None, text_b: str | None, is_ordered: bool
) -> tuple[str, str]:
    """Returns the features of the first and the second text; "" if there is no second text."""
    texts = [
        each
        for each, feature in features.items()
        if each != label and feature.shape == () and feature.np_dtype in (np.object_, np.bytes_, np.str_)
    ]
    for named in filter(None, (text_a, text_b)):
        if named not in texts:
            raise InputError(f"--tfds_name={name}: {named!r} is not one of its texts, {', '.join(texts)}")
    if text_a:
        return text_a, text_b or ""
    if len(texts) == 1:
        return texts[0], ""
    if len(texts) == 2 and is_ordered:
        return texts[0], texts[1]
    raise InputError(
        f"--tfds_name={name}: has {len(texts)} texts ({', '.join(texts)}) in unknown order; give "
        "--text_a_column and --text_b_column"
    )


def _kind_of(name: str, label: str, feature: Any, is_regression: bool) -> tuple[str, tuple[str, ...]]:
    """Returns the kind of the task and the names of the classes; the names are () if the description lists no names."""
    import tensorflow_datasets as tfds

    inner = getattr(feature, "feature", None)
    if isinstance(inner, tfds.features.ClassLabel):
        return MULTI_LABEL, tuple(inner.names)
    if feature.shape != ():
        raise InputError(f"--tfds_name={name}: {label!r} is neither a class nor a number; give --label_column")
    if isinstance(feature, tfds.features.ClassLabel) and not is_regression:
        return CLASSIFICATION, tuple(feature.names)
    is_float = np.issubdtype(feature.np_dtype, np.floating)
    return (REGRESSION if is_float or is_regression else CLASSIFICATION), ()


def _splits(builder: Any, named: str) -> tuple[dict[str, str], bool]:
    """Returns the splits for train, dev and test, and whether the data set has dev data."""
    splits: Sequence[str] = list(builder.info.splits)
    if named:
        names = [part.strip() for part in named.split(",")]
        return dict(zip(("train", "dev", "test"), [*names, *names[-1:] * 2], strict=False)), len(names) > 1
    dev = next((split for split in _DEV_SPLITS if split in splits), "test")
    test = "test_matched" if "test_matched" in splits else "test"
    return {"train": "train", "dev": dev, "test": test}, dev != "test"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides the library's log lines about a missing data set, because the error message is enough."""
    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)
