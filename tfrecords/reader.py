"""Finding record files and checking them before any long work starts."""

import re
from collections.abc import Sequence

import tensorflow as tf

from tfrecords import schema
from tfrecords.errors import InputError


def expand_files(patterns: str, flag: str = "input_file") -> list[str]:
    """Expands a comma-separated list of paths and globs, in the order given, each glob sorted.

    Raises:
      InputError: the list is empty, a file is missing, or a glob matches nothing.
    """
    files = []
    for pattern in (part.strip() for part in patterns.split(",")):
        if not pattern:
            continue
        # a name may hold a bracket without being a glob
        names = [pattern] if tf.io.gfile.exists(pattern) else tf.io.gfile.glob(pattern)
        found = sorted(name for name in names if not tf.io.gfile.isdir(name))
        if not found:
            what = "the glob matches no file" if re.search(r"[*?\[]", pattern) else "no such file"
            raise InputError(f"--{flag}: {pattern}: {what}; check the path")
        files += found
    if not files:
        raise InputError(f"--{flag} is empty; give one path, a glob, or several with commas between")
    return files


def first_example(path: str) -> tf.train.Example:
    """The first record of a file.

    Raises:
      InputError: the file holds no record, is no TFRecord file, or its first record is damaged.
    """
    try:
        for record in tf.data.TFRecordDataset(path).take(1):
            return tf.train.Example.FromString(record.numpy())
    except (tf.errors.DataLossError, ValueError, TypeError) as error:
        raise InputError(
            f"{path}: record 0 cannot be read; it is damaged or no TFRecord file; make the file again"
        ) from error
    except Exception as error:
        # protobuf's DecodeError has moved between modules from version to version
        if type(error).__name__ != "DecodeError":
            raise
        raise InputError(f"{path}: record 0 is no tf.train.Example; make the file again") from error
    raise InputError(f"{path}: holds no record; make the file again, or leave it out")


def check_lengths(files: Sequence[str], features: Sequence[schema.Feature]) -> None:
    """Checks that the first record of every file has the features and lengths that are asked for.

    Raises:
      InputError: names the file, the feature, its length there and the length asked for.
    """
    for path in files:
        found = first_example(path).features.feature
        for feature in features:
            if feature.name not in found:
                raise InputError(
                    f"{path}: has no feature {feature.name!r} but {', '.join(sorted(found)) or 'none'}; "
                    "is it data for another task?"
                )
            values = found[feature.name]
            length = len(getattr(values, "float_list" if feature.kind == "float" else "int64_list").value)
            if length == feature.length:
                continue
            flag = "max_predictions_per_seq" if feature.name.startswith("masked_lm") else "max_seq_length"
            raise InputError(
                f"{path}: {feature.name} has {length} values but --{flag}={feature.length}; "
                f"give --{flag}={length}, or make the data again"
            )


def find_damage(files: Sequence[str]) -> str | None:
    """Reads files through and tells where the first damaged record stands; None where all are whole."""
    for path in files:
        count = 0
        try:
            for _ in tf.data.TFRecordDataset(path):
                count += 1
        except tf.errors.DataLossError:
            return f"{path}: record {count} (counted from 0) is damaged or cut off; make the file again"
    return None
