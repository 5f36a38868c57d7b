import os
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.core.errors import InputError
from tests.kit import refused
from tests.tfrecords.record_files import write_file
from tfrecords import manifest, reader, records, schema, writer


@pytest.fixture
def folder(tmp_path):
    for name in ("b-1", "b-0", "a", "c"):
        (tmp_path / name).write_text(name)
    (tmp_path / "b-folder").mkdir()
    return tmp_path


def record_file(path, seq=8, predictions=3, drop=(), packed=False):
    """Two records of zeros."""
    features = [f for f in schema.pretraining_features(seq, predictions) if f.name not in drop]
    columns = {f.name: np.zeros((2, f.length), np.float32 if f.kind == "float" else np.uint8) for f in features}
    write_file(str(path), records.serialize(columns, features), packed)
    return path


@pytest.mark.parametrize(
    "patterns, expected",
    [
        ("{0}/c,{0}/a", ["c", "a"]),
        ("{0}/c, {0}/b-*,{0}/a,", ["c", "b-0", "b-1", "a"]),
        ("{0}/b-[1],{0}/b-?", ["b-1", "b-0"]),
        ("{0}/c,{0}/a,{0}/./c", ["c", "a"]),
    ],
)
def test_files_keep_their_order_and_globs_are_sorted(folder, patterns, expected):
    assert [pathlib.Path(p).name for p in reader.expand_files(patterns.format(folder))] == expected


@pytest.mark.parametrize(
    "patterns, message",
    [
        ("{0}/a,{0}/none", "--text: {0}/none: no such file"),
        ("{0}/none*", "--text: {0}/none*: the glob matches no file"),
        ("{0}/b-folder", "--text: {0}/b-folder is a folder; give its files"),
        ("", "--text is empty"),
    ],
)
def test_missing_file_error_names_its_flag(folder, patterns, message):
    refused(re.escape(message.format(folder)), reader.expand_files, patterns.format(folder), flag="text")


def test_first_example_reads_the_first_record_only(tmp_path):
    path = record_file(tmp_path / "data")
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])  # the second record is cut off
    assert sorted(reader.first_example(str(path)).features.feature) == sorted(
        f.name for f in schema.pretraining_features(8, 3)
    )


def flipped(content, at, bit=0):
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


CUT = "record 0 (counted from 0) is cut off: the file ends inside this record"


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda content: b"", "contains no record"),
        (lambda content: content[:40], CUT),
        (lambda content: flipped(content, 30), "record 0 cannot be read"),
        (lambda content: b"just some text, longer than a header\n" * 9, "record 0 cannot be read"),
    ],
)
@pytest.mark.core
def test_damaged_files_are_refused_by_name(tmp_path, spoil, message):
    path = record_file(tmp_path / "data")
    path.write_bytes(spoil(path.read_bytes()))
    refused(re.escape(f"{path}: {message}"), reader.first_example, str(path))


RECORDS = [b"first", b"\0" * 12, b"", b"last"]
FRAME = 16


def small_file(path, packed):
    write_file(str(path), RECORDS, packed)
    return path.read_bytes()


def ends_of_records() -> list[int]:
    return np.cumsum([0, *(len(record) + FRAME for record in RECORDS)]).tolist()


@pytest.mark.quick_cases("truncated")
# TensorFlow's own message for a truncated file contains this word
@pytest.mark.parametrize("name", ["data", "truncated"])
def test_a_cut_plain_file_names_its_record(tmp_path, name):
    whole, ends, path = small_file(tmp_path / name, False), ends_of_records(), tmp_path / name
    assert len(whole) == ends[-1] and reader.find_damage([str(path)]) is None
    for cut in range(0, len(whole), 1 if name == "data" else 7):
        path.write_bytes(whole[:cut])
        index = sum(end <= cut for end in ends) - 1
        damage = reader.find_damage([str(path)])
        if cut in ends:
            # only a manifest can show this, see below
            assert damage is None and list(reader.checked_records(str(path))) == RECORDS[:index]
        else:
            assert damage == f"{path}: record {index} (counted from 0) is cut off: the file ends inside this record; " \
                "give a file that create_pretraining_data wrote, write it again, or download it again", cut  # fmt: skip


@pytest.mark.slow
def test_truncated_compressed_file_is_reported(tmp_path):
    path = tmp_path / "data"
    whole = small_file(path, True)
    assert list(reader.checked_records(str(path))) == RECORDS
    for cut in range(1, len(whole)):
        path.write_bytes(whole[:cut])
        damage = reader.find_damage([str(path)])
        assert damage and re.search(r"data: record \d+ \(counted from 0\) is cut off", damage), cut


def test_a_flipped_bit_in_a_plain_file_is_found(tmp_path):
    path = tmp_path / "data"
    whole, ends = small_file(path, False), ends_of_records()
    for at in range(len(whole)):
        path.write_bytes(flipped(whole, at, bit=at % 8))
        index = sum(end <= at for end in ends) - 1
        where = f"record {index} (counted from 0) is damaged" if index else "record 0 cannot be read"
        assert (reader.find_damage([str(path)]) or "").startswith(f"{path}: {where}"), at


@pytest.mark.slow
def test_a_flipped_bit_in_a_gzip_file_is_found(tmp_path):
    path, unnoticed = tmp_path / "data", 0
    whole = small_file(path, True)
    for at in range(len(whole)):
        path.write_bytes(flipped(whole, at, bit=at % 8))
        try:
            got = list(reader.checked_records(str(path)))
        except InputError as error:
            assert str(path) in str(error)
            continue
        assert got == RECORDS, at
        unnoticed += 1
    assert unnoticed <= 8, "of the header: its time, system and kind of packing"


def test_refuses_record_that_is_not_an_example(tmp_path):
    path = str(tmp_path / "data")
    with tf.io.TFRecordWriter(path) as file:
        file.write(b"\xff\xff\xff not a protocol buffer")
    refused(re.escape(f"{path}: record 0"), reader.first_example, path)


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


def test_missing_feature_error_names_found_features(tmp_path):
    path = record_file(tmp_path / "data", drop=("segment_ids", "masked_lm_ids"))
    with pytest.raises(InputError, match=r"data: has no feature 'segment_ids' \(found: input_ids, input_mask, masked_"):
        reader.check_lengths([str(path)], schema.pretraining_features(8, 3))


@pytest.mark.parametrize(
    "output, path",
    [
        ("out/train.tfrecord", "out/train.tfrecord.manifest.json"),
        ("out/train.tfrecord-00000-of-00012", "out/train.tfrecord.manifest.json"),
        ("train-0-of-2", "train-0-of-2.manifest.json"),
        ("x-00000-of-00002/train", "x-00000-of-00002/train.manifest.json"),
    ],
)
def test_the_manifest_is_beside_the_first_shard(output, path):
    assert manifest.manifest_path(output) == path


WITHOUT_NAME = b'{"settings": {}, "shards": [{"examples": 1, "bytes": 2, "sha256": ""}]}'
ELSEWHERE = b'{"settings": {}, "shards": [{"name": "../b", "examples": 1, "bytes": 2, "sha256": ""}]}'


@pytest.mark.parametrize(
    "content",
    [b"", b'{"settings": {', b"[]", b"{}", b'{"settings": [1], "shards": []}', WITHOUT_NAME, ELSEWHERE],
)
def test_a_damaged_manifest_is_refused_by_name(tmp_path, content):
    path = tmp_path / "m.json"
    path.write_bytes(content)
    refused(re.escape(f"{path}: not a manifest"), manifest.read_manifest, str(path))


@pytest.fixture(params=[False, True], ids=["plain", "packed"])
def a_set(tmp_path, request):
    """Two shards, and the path of their manifest."""
    names = [f"train-0000{index}-of-00002" for index in range(2)]
    shards = []
    for name in names:
        part = str(tmp_path / "part")
        writer.write_records(part, [name.encode(), b"second", b"third"])
        framed = pathlib.Path(part).read_bytes()
        size, digest = writer.write_framed(str(tmp_path / name), [framed], request.param)
        os.remove(part)
        shards.append(manifest.Shard(name, 3, size, digest))
    path = manifest.manifest_path(str(tmp_path / names[0]))
    manifest.write(path, {}, shards)
    return tmp_path / names[0], tmp_path / names[1], path


def test_a_whole_set_has_no_faults(a_set):
    assert list(reader.find_faults(a_set[2])) == []


@pytest.mark.slow
def test_truncated_shard_is_named_for_any_cut(a_set):
    whole = a_set[0].read_bytes()
    entries = manifest.read_manifest(a_set[2])
    for cut in range(len(whole)):
        a_set[0].write_bytes(whole[:cut])
        (fault,) = reader.find_faults(a_set[2])
        assert fault.startswith(f"{a_set[0]}: ") and "3 examples" in fault, cut
        with pytest.raises(InputError, match=f"{a_set[0].name}: has {cut} bytes, but its manifest says {len(whole)}"):
            manifest.check_size(str(a_set[0]), entries)
    a_set[0].write_bytes(whole + b"x")
    with pytest.raises(InputError, match=f"has {len(whole) + 1} bytes, but its manifest says {len(whole)}"):
        manifest.check_size(str(a_set[0]), entries)


def test_swapped_shards_are_both_named(a_set):
    one, two = (path.read_bytes() for path in a_set[:2])
    a_set[0].write_bytes(two)
    a_set[1].write_bytes(one)
    faults = list(reader.find_faults(a_set[2]))
    assert [fault.split(": ")[0] for fault in faults] == [str(path) for path in a_set[:2]]
    assert all("differs from what was written" in fault for fault in faults)


def test_any_shard_leads_to_the_manifest(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    shards = [manifest.Shard(name, 1, 1, "") for name in "ab"]
    manifest.write(str(tmp_path / "a.manifest.json"), {"seed": 1}, shards)
    (tmp_path / "0.manifest.json").write_text("damaged, of another set")
    for name in "ab":
        assert manifest.find_manifest(str(tmp_path / name))["settings"] == {"seed": 1}
    assert manifest.find_manifest(str(tmp_path / "c")) is None
