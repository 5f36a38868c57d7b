import glob
import hashlib
import os

import numpy as np
import pytest
import tensorflow as tf

from tfrecords import writer
from tfrecords.schema import Feature, pretraining_features

FEATURES = (Feature("ids", "int64", 2), Feature("weights", "float", 1))


def example(number):
    return {"ids": np.array([number, -number]), "weights": np.array([number / 4], np.float32)}


def read(path):
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    return [tf.train.Example.FromString(record).features.feature for record in records]


def first_ids(path):
    return [features["ids"].int64_list.value[0] for features in read(path)]


def test_pretraining_features_are_the_originals_with_their_types_and_lengths():
    # names and types of write_instance_to_example_files in google-research/bert
    assert {f.name: (f.kind, f.length) for f in pretraining_features(128, 20)} == {
        "input_ids": ("int64", 128),
        "input_mask": ("int64", 128),
        "segment_ids": ("int64", 128),
        "masked_lm_positions": ("int64", 20),
        "masked_lm_ids": ("int64", 20),
        "masked_lm_weights": ("float", 20),
        "next_sentence_labels": ("int64", 1),
    }


def test_serialized_values_come_back_in_the_list_of_their_type():
    found = tf.train.Example.FromString(writer.serialize(example(3), FEATURES)).features.feature
    assert sorted(found) == ["ids", "weights"]
    assert list(found["ids"].int64_list.value) == [3, -3]
    assert list(found["weights"].float_list.value) == [0.75]


@pytest.mark.parametrize("ids", [[1], [1, 2, 3], []])
def test_serialize_refuses_another_length_and_names_the_feature(ids):
    with pytest.raises(ValueError, match=f"ids has {len(ids)} values, the schema says 2"):
        writer.serialize({"ids": np.array(ids), "weights": [0.0]}, FEATURES)


def test_shards_are_filled_in_turn_and_described(tmp_path):
    paths = [str(tmp_path / "deep" / "er" / name) for name in "abc"]
    shards = writer.write_shards(paths, map(example, range(7)), FEATURES)
    assert [first_ids(path) for path in paths] == [[0, 3, 6], [1, 4], [2, 5]]
    assert [(s.name, s.examples) for s in shards] == [("a", 3), ("b", 2), ("c", 2)]
    for path, shard in zip(paths, shards, strict=True):
        with open(path, "rb") as file:
            assert shard.sha256 == hashlib.sha256(file.read()).hexdigest()
    assert sorted(os.listdir(tmp_path / "deep" / "er")) == ["a", "b", "c"]


def test_an_error_midway_leaves_old_shards_whole_and_no_temporary_file(tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]
    (tmp_path / "a").write_bytes(b"old")

    def examples():
        yield example(1)
        assert len(glob.glob(f"{tmp_path}/*tmp*")) == 2, "what is half written must not stand under its name"
        raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        writer.write_shards(paths, examples(), FEATURES)
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_no_shard_appears_before_all_are_written(tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]

    def examples():
        for number in range(2):
            yield example(number)
        assert not any(os.path.exists(path) for path in paths)

    writer.write_shards(paths, examples(), FEATURES)
    assert all(os.path.exists(path) for path in paths)


def test_atomic_path_replaces_the_old_file_only_at_the_end(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with writer.atomic_path(str(path)) as temporary:
        with open(temporary, "w") as file:
            file.write("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["file"]


def test_atomic_path_reaches_the_disk_before_the_rename(tmp_path, monkeypatch):
    calls = []
    fsync, rename = os.fsync, tf.io.gfile.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), fsync(fd)))
    monkeypatch.setattr(tf.io.gfile, "rename", lambda *a, **k: (calls.append("rename"), rename(*a, **k)))
    writer.write_text(str(tmp_path / "file"), "text")
    assert calls == ["fsync", "rename"]


def test_write_text_makes_the_folder_and_keeps_every_character(tmp_path):
    writer.write_text(str(tmp_path / "new" / "file"), "Ünï — 😀\nline\n")
    assert (tmp_path / "new" / "file").read_bytes() == "Ünï — 😀\nline\n".encode()


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_sha256_is_that_of_all_bytes_whatever_the_size(tmp_path, size):
    content = np.random.default_rng(size).bytes(size)
    (tmp_path / "file").write_bytes(content)
    assert writer.sha256(str(tmp_path / "file")) == hashlib.sha256(content).hexdigest()
