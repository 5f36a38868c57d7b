import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from tfrecords import reader, schema, writer
from tfrecords.errors import InputError


@pytest.fixture
def folder(tmp_path):
    for name in ("b-1", "b-0", "a", "c"):
        (tmp_path / name).write_text(name)
    (tmp_path / "b-folder").mkdir()
    return tmp_path


def record_file(path, seq=8, predictions=3, drop=()):
    features = [f for f in schema.pretraining_features(seq, predictions) if f.name not in drop]
    row = {f.name: np.zeros(f.length, np.int64) for f in features}
    writer.write_shards([str(path)], [row, row], features)
    return path


@pytest.mark.parametrize(
    "patterns, expected",
    [
        ("{0}/c,{0}/a", ["c", "a"]),
        ("{0}/c, {0}/b-*,{0}/a,", ["c", "b-0", "b-1", "a"]),
        ("{0}/b-[1],{0}/b-?", ["b-1", "b-0", "b-1"]),
    ],
)
def test_files_come_in_the_order_given_and_globs_sorted_without_folders(folder, patterns, expected):
    assert [pathlib.Path(p).name for p in reader.expand_files(patterns.format(folder))] == expected


@pytest.mark.parametrize(
    "patterns, message",
    [
        ("{0}/a,{0}/none", "--text: {0}/none: no such file"),
        ("{0}/none*", "--text: {0}/none*: the glob matches no file"),
        ("{0}/b-folder", "--text: {0}/b-folder: no such file"),
        ("", "--text is empty"),
        (" , ", "--text is empty"),
    ],
)
def test_files_that_are_missing_are_named_with_their_flag(folder, patterns, message):
    with pytest.raises(InputError, match=re.escape(message.format(folder))):
        reader.expand_files(patterns.format(folder), flag="text")


def test_first_example_reads_the_first_record_only(tmp_path):
    path = record_file(tmp_path / "data")
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])  # the second record is cut off
    assert sorted(reader.first_example(str(path)).features.feature) == sorted(
        f.name for f in schema.pretraining_features(8, 3)
    )


def flipped(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda content: b"", "holds no record"),
        (lambda content: content[:40], "record 0 cannot be read"),
        (lambda content: content[:7], "holds no record"),
        (lambda content: flipped(content, 30), "record 0 cannot be read"),
        (lambda content: b"just some text, longer than a header\n" * 9, "record 0 cannot be read"),
    ],
)
def test_damaged_files_are_refused_by_name(tmp_path, spoil, message):
    path = record_file(tmp_path / "data")
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(InputError, match=re.escape(f"{path}: {message}")):
        reader.first_example(str(path))


def test_a_record_that_is_no_example_is_refused_by_name(tmp_path):
    path = str(tmp_path / "data")
    with tf.io.TFRecordWriter(path) as file:
        file.write(b"\xff\xff\xff not a protocol buffer")
    with pytest.raises(InputError, match=re.escape(f"{path}: record 0")):
        reader.first_example(path)


def test_matching_lengths_pass(tmp_path):
    reader.check_lengths([str(record_file(tmp_path / "data"))], schema.pretraining_features(8, 3))


@pytest.mark.parametrize(
    "written, asked, message",
    [
        ((8, 3), (16, 3), "input_ids has 8 values but --max_seq_length=16; give --max_seq_length=8"),
        (
            (8, 3),
            (8, 5),
            "masked_lm_positions has 3 values but --max_predictions_per_seq=5; give --max_predictions_per_seq=3",
        ),
    ],
)
def test_other_lengths_name_file_feature_and_flag(tmp_path, written, asked, message):
    good, bad = record_file(tmp_path / "good", *asked), record_file(tmp_path / "bad", *written)
    with pytest.raises(InputError, match=re.escape(f"{bad}: {message}")):
        reader.check_lengths([str(good), str(bad)], schema.pretraining_features(*asked))


def test_a_missing_feature_is_named_with_those_that_are_there(tmp_path):
    path = record_file(tmp_path / "data", drop=("segment_ids", "masked_lm_ids"))
    with pytest.raises(InputError, match=r"data: has no feature 'segment_ids' but input_ids, input_mask, masked_lm_"):
        reader.check_lengths([str(path)], schema.pretraining_features(8, 3))
