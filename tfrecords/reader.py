"""Finds record files and checks them before long work starts."""

import fnmatch
import gzip
import os
import re
import zlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from bert_tf.core import storage
from bert_tf.core.datasets import without_autotune
from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import items
from tfrecords import manifest, schema

_GZIP_MAGIC = b"\x1f\x8b\x08"
# Bytes of a record's TFRecord framing: the length, a checksum of the length, and a checksum of the record.
FRAME_BYTES = 16
_BLOCK_BYTES = 1 << 20
# A damaged file may belong to the user, such as a corpus, so the message does not advise deleting it.
_REMEDY = "give a file that create_pretraining_data wrote, write it again, or download it again"


def expand_files(patterns: str, flag: str = "input_file") -> list[str]:
    """Expands a comma-separated list of paths and globs in the given order; the files of each glob are sorted.
    Manifests and unfinished files are in the same folder as the shards of a set; a glob leaves these files out. If a
    file is given twice, e.g. as a and as ./a, only the first path is returned."""
    files: list[str] = []
    for pattern in items(patterns):
        if tf.io.gfile.isdir(pattern):
            raise InputError(f"--{flag}: {pattern} is a folder; give its files, e.g. '{pattern.rstrip('/')}/*'")
        # If a file with this name exists, a bracket in the name does not make the name a glob.
        files += [pattern] if tf.io.gfile.exists(pattern) else _matches(pattern, flag)
    if not files:
        raise InputError(f"--{flag} is empty; give a path, a glob, or several separated by commas")
    first: dict[str, str] = {}
    for file in files:
        first.setdefault(os.path.abspath(file), file)
    return list(first.values())


def is_match(path: str, pattern: str) -> bool:
    """Returns whether a path matches a pattern of `expand_files`; the path does not have to exist."""
    path, pattern = os.path.abspath(path), os.path.abspath(pattern)
    (folder, name), (folders, names) = os.path.split(path), os.path.split(pattern)
    return fnmatch.fnmatchcase(name, names) and (folder == folders or fnmatch.fnmatchcase(folder, folders))


def _matches(pattern: str, flag: str) -> list[str]:
    folder, name = os.path.split(pattern)
    if re.search(r"[*?\[]", folder) and tf.io.gfile.isdir(folder):
        # TensorFlow would interpret the folder's name as a glob too.
        paths = [os.path.join(folder, one) for one in fnmatch.filter(storage.list_folder(folder), name)]
    else:
        paths = tf.io.gfile.glob(pattern)
    records = [one for one in paths if not tf.io.gfile.isdir(one) and storage.TEMPORARY not in os.path.basename(one)]
    kept = sorted(one for one in records if not one.endswith(manifest.SUFFIX))
    if not kept:
        what = "the glob matches no file" if re.search(r"[*?\[]", pattern) else "no such file"
        raise InputError(f"--{flag}: {pattern}: {what}; check the path")
    return kept


def compression(path: str) -> str:
    """Returns the compression of a record file as `tf.data.TFRecordDataset` expects it: "GZIP" or ""."""
    with tf.io.gfile.GFile(path, "rb") as file:
        return "GZIP" if file.read(3) == _GZIP_MAGIC else ""


def first_example(path: str) -> tf.train.Example:
    for record in checked_records(path):
        return parse_example(record, path, 0)
    raise InputError(f"{path}: contains no record; {_REMEDY}, or omit this file")


def parse_example(record: bytes, path: str, index: int) -> tf.train.Example:
    try:
        return tf.train.Example.FromString(record)
    except Exception as error:
        # Protobuf's versions define DecodeError in different modules, so compare the class's name.
        if type(error).__name__ != "DecodeError":
            raise
        raise InputError(f"{path}: record {index} is not a tf.train.Example; {_REMEDY}") from error


def check_lengths(files: Sequence[str], features: Sequence[schema.Feature]) -> None:
    """Checks that the first record of every file has the expected features and lengths."""
    for path in files:
        stored = first_example(path).features.feature
        for feature in features:
            if feature.name not in stored:
                is_pairs_label = feature.name == "next_sentence_labels"
                raise InputError(
                    f"{path}: has no feature {feature.name!r} (found: {', '.join(sorted(stored)) or 'none'}); "
                    + ("give --nouse_next_sentence_label" if is_pairs_label else "is it data for another task?")
                )
            values = stored[feature.name]
            length = len(getattr(values, "float_list" if feature.kind == "float" else "int64_list").value)
            if length == feature.length:
                continue
            flag = "max_predictions_per_seq" if feature.name.startswith("masked_lm") else "max_seq_length"
            raise InputError(
                f"{path}: {feature.name} has {length} values but --{flag}={feature.length}; "
                f"give --{flag}={length}, or make the data again"
            )


def find_damage(files: Sequence[str]) -> str | None:
    """Reads all files and describes the first damaged or truncated record; returns None if all are intact."""
    for path in files:
        try:
            for _ in checked_records(path):
                pass
        except InputError as error:
            return str(error)
    return None


def checked_records(path: str) -> Iterator[bytes]:
    packed = compression(path)
    count, size = 0, 0
    try:
        records = without_autotune(tf.data.TFRecordDataset(path, compression_type=packed))
        for record in records.as_numpy_iterator():
            yield record
            count += 1
            size += len(record) + FRAME_BYTES
    except tf.errors.DataLossError as error:
        cut = "truncated" in str(error)
        raise InputError(f"{path}: {_fault(path, count, cut)}") from error
    # TensorFlow does not report three faults: a last record that is cut off within its frame, compressed data without
    # its end, and (in some files) data after the first gzip member.
    whole, unpacked = _unpacked_size(path) if packed else (True, tf.io.gfile.stat(path).length)
    if whole and unpacked - size > FRAME_BYTES:
        raise InputError(
            f"{path}: TensorFlow reads {count} record(s) and leaves {unpacked - size} bytes unread, because the file "
            "was compressed in several parts; decompress it, or compress it again as a whole"
        )
    if not whole or unpacked != size:
        raise InputError(f"{path}: {_fault(path, count, cut=True)}")


def _unpacked_size(path: str) -> tuple[bool, int]:
    """Returns whether a gzip file is complete, and the size of its decompressed contents in bytes."""
    size = 0
    with tf.io.gfile.GFile(path, "rb") as packed, gzip.GzipFile(fileobj=packed) as file:
        try:
            while block := file.read(_BLOCK_BYTES):
                size += len(block)
        except (EOFError, OSError, zlib.error):
            return False, size
    return True, size


def _fault(path: str, index: int, cut: bool) -> str:
    what = f"record {index} (counted from 0) is damaged"
    if cut:
        what = f"record {index} (counted from 0) is cut off: the file ends inside this record"
    elif not index:
        what = "record 0 cannot be read; the file is damaged or not a TFRecord file"
    return f"{what}; {_REMEDY}"


def find_faults(path: str) -> Iterator[str]:
    """Compares the shards of a set with the checksums in the manifest. Yields one line for each shard that is missing,
    or whose contents have changed since the generator wrote the shard."""
    entries = manifest.read_manifest(path)
    if entries is None:
        if tf.io.gfile.exists(manifest.work_folder(path)):
            raise InputError(f"{path}: no such manifest (the set is unfinished); run the same command without --verify")
        raise InputError(f"{path}: no such manifest; check --output_file (other tools do not write a manifest)")
    for shard in manifest.shards_of(entries):
        name = os.path.join(os.path.dirname(path), shard.name)
        if not tf.io.gfile.exists(name):
            yield f"{name}: missing; repeat the command that wrote it"
        elif storage.sha256(name) != shard.sha256:
            damage = find_damage([name]) or f"{name}: differs from what was written"
            yield f"{damage} (the manifest says {shard.examples} examples, {shard.bytes} bytes)"
